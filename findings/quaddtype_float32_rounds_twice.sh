#!/usr/bin/env bash
# astype(float32) and astype(float16) of numpy-quaddtype's numbers round twice, to float64 first: a number just above the
# middle of two float32 numbers becomes the lower one. (astype(float64) rounds once.)
# seen: float64 1 + a little more than half an ulp becomes 1 + 2.220446049250313e-16
# seen: float32 1 + a little more than half an ulp becomes 1 + 0.0
# seen: float16 1 + a little more than half an ulp becomes 1 + 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 numpy-quaddtype==1.0.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from numpy_quaddtype import QuadPrecision as Q

above = {np.float64: Q(2) ** -53 + Q(2) ** -100, np.float32: Q(2) ** -24 + Q(2) ** -70, np.float16: Q(2) ** -11 + Q(2) ** -70}
found = {}
for dtype, x in above.items():
    found[dtype] = float(np.array([Q(1) + x]).astype(dtype)[0] - 1)
    print(dtype.__name__, "1 + a little more than half an ulp becomes 1 +", found[dtype])
assert found[np.float64] == 2.0**-52
assert found[np.float32] == 0 and found[np.float16] == 0
PYTHON
