#!/usr/bin/env bash
# sparse (pydata): the product of a uint64 by an int64 matrix is float64, as NumPy's is, but its terms wrap as if they were
# int64 before: 2^63 times 1 is negative, 2^40 times 2^40 is zero, without an error. The elementwise product,
# sparse.einsum and SciPy's sparse arrays give what NumPy gives.
# seen: 2^63 times 2^0, numpy @ -> float64 9.223372036854776e+18
# seen: 2^63 times 2^0, scipy csr @ -> float64 9.223372036854776e+18
# seen: 2^63 times 2^0, COO * -> float64 9.223372036854776e+18
# seen: 2^63 times 2^0, COO einsum -> float64 9.223372036854776e+18
# seen: 2^63 times 2^0, COO @ COO -> float64 -9.223372036854776e+18
# seen: 2^63 times 2^0, COO @ numpy -> float64 -9.223372036854776e+18
# seen: 2^63 times 2^0, GCXS @ GCXS -> float64 -9.223372036854776e+18
# seen: 2^40 times 2^40, numpy @ -> float64 1.2089258196146292e+24
# seen: 2^40 times 2^40, scipy csr @ -> float64 1.2089258196146292e+24
# seen: 2^40 times 2^40, COO * -> float64 1.2089258196146292e+24
# seen: 2^40 times 2^40, COO einsum -> float64 1.2089258196146292e+24
# seen: 2^40 times 2^40, COO @ COO -> float64 0.0
# seen: 2^40 times 2^40, COO @ numpy -> float64 0.0
# seen: 2^40 times 2^40, GCXS @ GCXS -> float64 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 scipy==1.17.1 numba==0.68.1 sparse==0.19.3
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import scipy.sparse
import sparse

found = {}
for exponents in ((63, 0), (40, 40)):
    a = np.array([[2 ** exponents[0]]], dtype="uint64")
    b = np.array([[2 ** exponents[1]]], dtype="int64")
    products = {
        "numpy @": a @ b,
        "scipy csr @": (scipy.sparse.csr_array(a) @ scipy.sparse.csr_array(b)).toarray(),
        "COO *": (sparse.COO(a) * sparse.COO(b)).todense(),
        "COO einsum": sparse.einsum("ij,jk->ik", sparse.COO(a), sparse.COO(b)).todense(),
        "COO @ COO": (sparse.COO(a) @ sparse.COO(b)).todense(),
        "COO @ numpy": sparse.COO(a) @ b,
        "GCXS @ GCXS": (sparse.GCXS(a) @ sparse.GCXS(b)).todense(),
    }
    for name, c in products.items():
        found[exponents, name] = c.item()
        print("2^%d times 2^%d," % exponents, name, "->", c.dtype, c.item())
for name in ("numpy @", "scipy csr @", "COO *", "COO einsum"):
    assert found[(63, 0), name] == 2.0**63 and found[(40, 40), name] == 2.0**80
for name in ("COO @ COO", "COO @ numpy", "GCXS @ GCXS"):
    assert found[(63, 0), name] == -(2.0**63) and found[(40, 40), name] == 0
PYTHON
