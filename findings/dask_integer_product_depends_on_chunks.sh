#!/usr/bin/env bash
# dask.array: dtype and values of the product of int8 arrays depend on the chunks of the inner axis. One chunk: int8, which
# wraps, as NumPy's product does; several: int64, the true value. Of bool arrays True becomes a count.
# seen: int8 inner axis of 300 in chunks of 300 -> int8 44
# seen: int8 inner axis of 300 in chunks of 100 -> int64 300
# seen: uint8 inner axis of 300 in chunks of 300 -> uint8 44
# seen: uint8 inner axis of 300 in chunks of 100 -> uint64 300
# seen: bool inner axis of 300 in chunks of 300 -> bool True
# seen: bool inner axis of 300 in chunks of 100 -> int64 3
# seen: numpy int8 -> int8 44
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 dask[array]==2026.8.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import dask.array as da
import numpy as np

found = {}
for dtype in ("int8", "uint8", "bool"):
    for chunks in (300, 100):
        x = da.ones((2, 300), dtype=dtype, chunks=chunks)
        c = (x @ x.T).compute()
        found[dtype, chunks] = c.dtype.name, c[0, 0].item()
        print(dtype, "inner axis of 300 in chunks of", chunks, "->", *found[dtype, chunks])
x = np.ones((2, 300), dtype="int8")
print("numpy int8 ->", (x @ x.T).dtype, (x @ x.T)[0, 0])
assert found["int8", 300] == ("int8", 44) and found["int8", 100] == ("int64", 300)
assert found["bool", 300] == ("bool", True) and found["bool", 100] == ("int64", 3)
PYTHON
