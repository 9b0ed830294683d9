"""Products of JAX arrays: `matmul` and `dot_general` under jit, grad, vmap and shard_map.

`ozaki.matmul` itself takes concrete arrays of JAX, too, and can return a report.

Examples
--------
>>> import jax, jax.numpy as jnp
>>> import ozaki.jax
>>> f = jax.jit(lambda a, b: ozaki.jax.matmul(a, b, accuracy="fp32"))
>>> a, b = jnp.ones((2, 3)), jnp.ones((3, 4))
>>> jax.grad(lambda x: f(x, b).sum())(a)
Array([[4., 4., 4.],
       [4., 4., 4.]], dtype=float32)
"""

from ozaki.jax.functions import dot_general, matmul

__all__ = ["dot_general", "matmul"]
