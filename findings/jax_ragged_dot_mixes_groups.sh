#!/usr/bin/env bash
# jax.lax.ragged_dot multiplies groups of rows, each by a matrix of its own. On a CPU an Inf or NaN in one of these
# matrices makes all rows of the other groups NaN, and so does one in a matrix that no row belongs to: every row is
# multiplied by every matrix, as zeros by those that are not its own, and zero times Inf is NaN. A NaN in a row stays in
# that row.
# seen: jax 0.10.2 on cpu
# seen: float32, all finite -> 2 2 20 20
# seen: float32, Inf in the second matrix -> nan nan inf inf; group by group -> 2 2 inf inf
# seen: float32, NaN in a matrix of no rows -> nan nan nan nan; group by group -> 2 2 2 2
# seen: float32, NaN in the last row -> 2 2 20 nan; group by group -> 2 2 20 nan
# seen: bfloat16, all finite -> 2 2 20 20
# seen: bfloat16, Inf in the second matrix -> nan nan inf inf; group by group -> 2 2 inf inf
# seen: bfloat16, NaN in a matrix of no rows -> nan nan nan nan; group by group -> 2 2 2 2
# seen: bfloat16, NaN in the last row -> 2 2 20 nan; group by group -> 2 2 20 nan
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 jax==0.10.2
JAX_PLATFORMS=cpu "$folder/env/bin/python" -W ignore - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np


def by_groups(rows, matrices, sizes):
    ends = np.cumsum(sizes)
    parts = [rows[end - size : end] @ matrix for end, size, matrix in zip(ends, sizes, matrices)]
    return jnp.concatenate(parts)


print("jax", jax.__version__, "on", jax.devices()[0].platform)
for dtype in ("float32", "bfloat16"):
    rows = jnp.ones((4, 2), dtype)
    matrices = jnp.stack([jnp.full((2, 1), 1, dtype), jnp.full((2, 1), 10, dtype)])
    cases = {
        "all finite": (rows, matrices, (2, 2)),
        "Inf in the second matrix": (rows, matrices.at[1, 0].set(jnp.inf), (2, 2)),
        "NaN in a matrix of no rows": (rows, matrices.at[1, 0].set(jnp.nan), (4, 0)),
        "NaN in the last row": (rows.at[3, 0].set(jnp.nan), matrices, (2, 2)),
    }
    for name, (a, b, sizes) in cases.items():
        ragged = np.float32(jax.lax.ragged_dot(a, b, jnp.array(sizes)))[:, 0]
        apart = np.float32(by_groups(a, b, sizes))[:, 0]
        print(f"{dtype}, {name} ->", *(f"{x:g}" for x in ragged), end="")
        print("" if name == "all finite" else "; group by group -> " + " ".join(f"{x:g}" for x in apart))
        own = {"Inf in the second matrix": [2, 2], "NaN in a matrix of no rows": [2, 2, 2, 2]}.get(name, [])
        assert apart[: len(own)].tolist() == own and np.isnan(ragged[: len(own)]).all()
        assert np.array_equal(ragged[len(own) :], apart[len(own) :], equal_nan=True)
PYTHON
