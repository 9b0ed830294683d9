#!/usr/bin/env bash
# numpy.errstate(over="raise") is heeded by dot, inner, matmul and tensordot, and ignored by vdot and einsum, which return
# Inf for the same operands.
# seen: dot FloatingPointError
# seen: inner FloatingPointError
# seen: matmul FloatingPointError
# seen: tensordot FloatingPointError
# seen: vdot inf
# seen: einsum inf
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np

x = np.array([1e200, 1e200])
found = {}
calls = {
    "dot": lambda: np.dot(x, x),
    "inner": lambda: np.inner(x, x),
    "matmul": lambda: np.matmul(x, x),
    "tensordot": lambda: np.tensordot(x, x, 1),
    "vdot": lambda: np.vdot(x, x),
    "einsum": lambda: np.einsum("i,i", x, x),
}
with np.errstate(over="raise"):
    for name, call in calls.items():
        try:
            found[name] = str(float(call()))
        except FloatingPointError as error:
            found[name] = type(error).__name__
        print(name, found[name])
assert found["vdot"] == found["einsum"] == "inf"
assert {found[name] for name in ("dot", "inner", "matmul", "tensordot")} == {"FloatingPointError"}
PYTHON
