#!/usr/bin/env bash
# int() of a QuadPrecision beyond 64 bits is 2^63 - 1, without an error, though the number holds 2^100 + 1 exactly; int()
# of a float or a longdouble of that size is exact.
# seen: x - 2^100: 1.0
# seen: int(x): 9223372036854775807 int(-x): -9223372036854775808
# seen: int(longdouble(2^100)) == 2^100: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 numpy-quaddtype==1.0.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from numpy_quaddtype import QuadPrecision

x = QuadPrecision(2**100 + 1)
print("x - 2^100:", float(x - QuadPrecision(2) ** 100))
print("int(x):", int(x), "int(-x):", int(-x))
print("int(longdouble(2^100)) == 2^100:", int(np.longdouble(2**100)) == 2**100)
assert int(x) == 2**63 - 1
PYTHON
