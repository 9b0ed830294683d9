#!/usr/bin/env bash
# ml_dtypes: NumPy's @ and vecdot of its integers of four bits are computed in int8 and wrap there, of uint4, too: 15 times
# 15 is -31. np.dot of the same operands returns uint4. Of floats of 8 bits @ and vecdot give float32, and dot their own
# type, rounded or NaN.
# seen: uint4, 1 times 15 * 15, @ -> int8 -31
# seen: uint4, 1 times 15 * 15, vecdot -> int8 -31
# seen: uint4, 1 times 15 * 15, dot -> uint4 1
# seen: int4, 2 times -8 * -8, @ -> int8 -128
# seen: int4, 2 times -8 * -8, vecdot -> int8 -128
# seen: int4, 2 times -8 * -8, dot -> int4 0
# seen: float8_e4m3fn, 1000 times 1 * 1, @ -> float32 1000
# seen: float8_e4m3fn, 1000 times 1 * 1, vecdot -> float32 1000
# seen: float8_e4m3fn, 1000 times 1 * 1, dot -> float8_e4m3fn nan
# seen: float8_e5m2, 1000 times 1 * 1, @ -> float32 1000
# seen: float8_e5m2, 1000 times 1 * 1, vecdot -> float32 1000
# seen: float8_e5m2, 1000 times 1 * 1, dot -> float8_e5m2 1024
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import ml_dtypes
import numpy as np

found = {}
for name, value, length in (("uint4", 15, 1), ("int4", -8, 2), ("float8_e4m3fn", 1, 1000), ("float8_e5m2", 1, 1000)):
    x = np.full((1, length), value, dtype=getattr(ml_dtypes, name))
    for way, c in {"@": x @ x.T, "vecdot": np.vecdot(x, x), "dot": np.dot(x, x.T)}.items():
        found[name, way] = c.dtype.name, float(c.item())
        print(f"{name}, {length} times {value} * {value}, {way} -> {c.dtype.name} {float(c.item()):g}")
assert found["uint4", "@"] == found["uint4", "vecdot"] == ("int8", -31) and found["uint4", "dot"] == ("uint4", 1)
assert found["int4", "@"] == found["int4", "vecdot"] == ("int8", -128) and found["int4", "dot"] == ("int4", 0)
assert found["float8_e5m2", "@"] == ("float32", 1000) and found["float8_e5m2", "dot"] == ("float8_e5m2", 1024)
assert found["float8_e4m3fn", "@"] == ("float32", 1000) and found["float8_e4m3fn", "dot"][1] != 1000
PYTHON
