#!/usr/bin/env bash
# PyTorch 2.13 converts Inf to float8_e4m3fn as 448, a finite number, so that an overflow further up leaves no trace;
# its other formats of 8 bits keep Inf, or make it NaN where they have none, as ml_dtypes does of all of them.
# seen: torch 2.13.0 float8_e4m3fn of [448, 465, 10000, inf, -inf] is [448.0, 448.0, 448.0, 448.0, -448.0]
# seen: torch 2.13.0 float8_e5m2 of [448, 465, 10000, inf, -inf] is [448.0, 448.0, 10240.0, inf, -inf]
# seen: torch 2.13.0 float8_e4m3fnuz of [448, 465, 10000, inf, -inf] is [nan, nan, nan, nan, nan]
# seen: ml_dtypes 0.6.0 float8_e4m3fn of [448, 465, 10000, inf, -inf] is [448.0, nan, nan, nan, nan]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0 torch==2.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import ml_dtypes
import numpy as np
import torch

given = [448, 465, 10000, float("inf"), -float("inf")]
x, found = np.array(given, np.float32), {}
for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"):
    found["torch", name] = torch.tensor(x).to(getattr(torch, name)).float().tolist()
found["ml_dtypes", "float8_e4m3fn"] = x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32).tolist()
for (library, name), values in found.items():
    print(f"{library} {version(library)} {name} of {given} is {values}")
inf, nan = float("inf"), float("nan")
expected = [[448, 448, 448, 448, -448], [448, 448, 10240, inf, -inf], [nan] * 5, [448, nan, nan, nan, nan]]
assert all(map(lambda a, b: np.array_equal(a, b, equal_nan=True), found.values(), expected))
PYTHON
