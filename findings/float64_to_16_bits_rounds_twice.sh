#!/usr/bin/env bash
# float64 numbers become 16-bit floats by way of float32 in PyTorch, JAX and ml_dtypes, and so are rounded twice: a number
# just above the middle of two neighbours becomes the lower one, where NumPy's own cast to float16 gives the upper one.
# seen: numpy float16 of 1 + 2^-11 + 2^-40 is 1.0009765625
# seen: torch float16 of 1 + 2^-11 + 2^-40 is 1.0
# seen: jax float16 of 1 + 2^-11 + 2^-40 is 1.0
# seen: ml_dtypes bfloat16 of 1 + 2^-8 + 2^-40 is 1.0
# seen: torch bfloat16 of 1 + 2^-8 + 2^-40 is 1.0
# seen: jax bfloat16 of 1 + 2^-8 + 2^-40 is 1.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0 jax==0.10.2 torch==2.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import jax
import ml_dtypes
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)
half, brain = 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40
found = {
    ("numpy float16", "11"): np.float64(half).astype(np.float16),
    ("torch float16", "11"): torch.tensor(half, dtype=torch.float64).to(torch.float16),
    ("jax float16", "11"): jax.numpy.asarray(half).astype(jax.numpy.float16),
    ("ml_dtypes bfloat16", "8"): np.float64(brain).astype(ml_dtypes.bfloat16),
    ("torch bfloat16", "8"): torch.tensor(brain, dtype=torch.float64).to(torch.bfloat16),
    ("jax bfloat16", "8"): jax.numpy.asarray(brain).astype(jax.numpy.bfloat16),
}
for (name, bits), x in found.items():
    print(f"{name} of 1 + 2^-{bits} + 2^-40 is {float(x)}")
assert [float(x) for x in found.values()] == [1 + 2.0**-10, 1, 1, 1, 1, 1]
PYTHON
