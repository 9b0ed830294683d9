#!/usr/bin/env bash
# jax.lax.dot_general of complex operands with preferred_element_type=float64 drops the imaginary part of the result,
# without an error or a warning; so does an integer type.
# seen: complex128: (-5+10j)
# seen: into float64: float64 -5.0
# seen: into int64: -5
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 jax==0.10.2
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
a, b = jnp.array([[1 + 2j]]), jnp.array([[3 + 4j]])
numbers = (((1,), (0,)), ((), ()))
print("complex128:", jax.lax.dot_general(a, b, numbers)[0, 0])
found = jax.lax.dot_general(a, b, numbers, preferred_element_type=jnp.float64)
print("into float64:", found.dtype, found[0, 0])
print("into int64:", jax.lax.dot_general(a, b, numbers, preferred_element_type=jnp.int64)[0, 0])
assert found.dtype == jnp.float64 and float(found[0, 0]) == -5
PYTHON
