#!/usr/bin/env bash
# SciPy: scipy.linalg.norm scales sums of squares of a vector, but not those of a matrix. So the same numbers have the
# norm 5e-170 as a vector, 0 as a matrix of one row, by default and with "fro", and 5e-170 as its spectral norm, which is
# the same number; 1e200 twice has 1.4e200, inf and 1.4e200.
# seen: SCIPY_NORM 1.17.1
# seen: [3e-170, 4e-170] vector 5e-170 row 0 fro 0 spectral 5e-170
# seen: [1e+200, 1e+200] vector 1.414e+200 row inf fro inf spectral 1.414e+200
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scipy
from scipy.linalg import norm

print("SCIPY_NORM", scipy.__version__)
found = []
for x in ([3e-170, 4e-170], [1e200, 1e200]):
    row = np.array([x])
    norms = norm(row[0]), norm(row), norm(row, "fro"), norm(row, 2)
    print(x, *(f"{name} {value:.4g}" for name, value in zip(("vector", "row", "fro", "spectral"), norms)))
    found.append([float(f"{value:.1e}") for value in norms])
assert found == [[5e-170, 0, 0, 5e-170], [1.4e200, np.inf, np.inf, 1.4e200]], found
PYTHON
