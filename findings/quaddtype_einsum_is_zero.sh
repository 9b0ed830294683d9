#!/usr/bin/env bash
# numpy.einsum of numpy-quaddtype's numbers returns zeros, without an error, where it has products or sums to compute;
# with optimize=True the same contraction is right. numpy.dot, inner and tensordot raise a TypeError for this dtype, so
# that one would expect einsum to raise, too.
# seen: ij,jk->ik [[0.0, 0.0], [0.0, 0.0]]
# seen: ij->i [0.0, 0.0]
# seen: ij,ij->ij [[0.0, 0.0], [0.0, 0.0]]
# seen: ij->ji [[1.0, 3.0], [2.0, 4.0]]
# seen: optimize=True [[5.0, 8.0], [8.0, 13.0]]
# seen: numpy.dot raises a TypeError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 numpy-quaddtype==1.0.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from numpy_quaddtype import QuadPrecDType

a = np.array([[1, 2], [3, 4]]).astype(QuadPrecDType())
for subscripts, operands in (("ij,jk->ik", (a, a)), ("ij->i", (a,)), ("ij,ij->ij", (a, a)), ("ij->ji", (a,))):
    print(subscripts, np.einsum(subscripts, *operands).astype(float).tolist())
print("optimize=True", np.einsum("ij,jk->ik", a, a, optimize=True).astype(float).tolist())
try:
    np.dot(a, a)
except TypeError:
    print("numpy.dot raises a TypeError")
assert np.einsum("ij,jk->ik", a, a).astype(float).tolist() == [[0, 0], [0, 0]]
assert np.einsum("ij->i", a).astype(float).tolist() == [0, 0]
PYTHON
