#!/usr/bin/env bash
# Casts between numpy.longdouble (64 bits on x86) and numpy-quaddtype (113 bits) keep 53 bits, in both directions, though
# one holds every number of the other exactly.
# seen: 1 + 2^-63 as longdouble, cast to quad, minus 1: 0.0
# seen: 1 + 2^-63 as quad, cast to longdouble, minus 1: 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 numpy-quaddtype==1.0.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from numpy_quaddtype import QuadPrecDType, QuadPrecision as Q

assert np.finfo(np.longdouble).nmant >= 63, "needs the longdouble of x86"
one = np.longdouble(1)
there = np.array([one + np.longdouble(2) ** -63]).astype(QuadPrecDType())[0] - Q(1)
back = np.array([Q(1) + Q(2) ** -63]).astype(np.longdouble)[0] - one
print("1 + 2^-63 as longdouble, cast to quad, minus 1:", float(there))
print("1 + 2^-63 as quad, cast to longdouble, minus 1:", float(back))
assert there == 0 and back == 0
PYTHON
