"""Concrete arrays of JAX as arrays of NumPy or CuPy, and back."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from ozaki.interchange.halves import HalfArray
from ozaki.records.formats import HALVES


class JaxArrays:
    """Arrays of JAX on one CPU or CUDA device each (`kinds.Kind`)."""

    name = "a jax array"

    def view(self, label: str, x: Any, halves: bool = False) -> tuple[Any, Any]:
        """The elements of an array, and its device; a copy where they are 16-bit floats, with `halves` their bits.

        On a CPU it waits until they are computed; on a GPU CuPy's current stream does.

        Raises
        ------
        TypeError
            If it is traced, and so has no elements yet; or if it is `out`, since arrays of JAX do not change.
        ValueError
            If it lies on several devices, or on one that is neither a CPU nor of CUDA.
        ImportError
            If it lies on a GPU, and CuPy is not installed.
        """
        if isinstance(x, jax.core.Tracer):
            raise TypeError(
                f"{label}: a traced array, which has no elements yet; call this outside of jit, vmap and grad (of "
                "products use ozaki.jax.matmul)"
            )
        if label == "out":
            raise TypeError("out: a jax array, which cannot be written; omit `out`")
        devices = x.devices()
        if len(devices) > 1:
            raise ValueError(
                f"{label}: lies on {len(devices)} devices; use ozaki.jax.matmul under jax.shard_map, or "
                "jax.device_put to one of them"
            )
        (device,) = devices
        if device.platform not in ("cpu", "gpu", "cuda"):
            raise ValueError(f"{label}: lies on {device}; expected a CPU or a CUDA device")
        if x.dtype.name in HALVES and halves:
            bits, device = self.view(label, x.view(np.uint16))
            return HalfArray(bits, x.dtype.name), device
        if x.dtype.name in HALVES:
            x = x.astype(np.float32)
        if device.platform == "cpu":
            return np.asarray(x), device
        try:
            import cupy as cp
        except ImportError:
            raise ImportError(
                f"{label}: an array on a GPU, whose products run through CuPy; pip install 'cupy-cuda13x[ctk]' (or 12x)"
            ) from None
        with self.on(device):
            return cp.from_dlpack(x), device

    def given(self, x: Any) -> None:
        """None: `view` has to wait until elements are computed."""

    def stream(self, device: int) -> None:
        """None: JAX has streams of its own."""

    def new(self, shape: tuple[int, ...], dtype: str, device: int) -> tuple[Any, int]:
        """Arrays of JAX do not change, so none is made to be written."""
        raise NotImplementedError

    def on(self, device: Any) -> AbstractContextManager[Any]:
        """Within it, CuPy works on an array's device; on its current stream."""
        if device is None or device.platform == "cpu":
            return nullcontext()
        import cupy as cp

        found: AbstractContextManager[Any] = cp.cuda.Device(device.local_hardware_id)
        return found

    def written(self, out: Any) -> None:
        """Arrays of JAX do not change (`view` refuses them as `out`)."""

    def holds(self, dtype: Any) -> bool:
        """Whether arrays of this dtype are made as they are: float64, where that is switched on."""
        return bool(jax.dtypes.canonicalize_dtype(dtype) == dtype)

    def made(self, c: Any, device: Any) -> Any:
        """An array as one of JAX, on that device.

        Integers have 32 bits where 64 are not switched on, as all integers of JAX then.

        Raises
        ------
        ValueError
            If JAX would make another dtype of it that cannot hold it, as it does of float64 where that is not switched
            on.
        """
        known = jax.dtypes.canonicalize_dtype(c.dtype)
        if known != c.dtype:
            if c.dtype.kind not in "iu" or not bool((c.astype(known) == c).all()):
                raise ValueError(
                    f"dtype: {c.dtype} needs jax.config.update('jax_enable_x64', True); without it ask for a dtype of "
                    "32 bits, or 'mp'"
                )
            c = c.astype(known)
        if device is None or device.platform == "cpu":
            return jax.device_put(np.asarray(c), device)
        return jax.dlpack.from_dlpack(c)

    def made_of_bits(self, bits: Any, half: str, device: Any) -> Any:
        """An array of bits as one of a 16-bit format of JAX."""
        return self.made(bits, device).view(getattr(jax.numpy, half))


JAX_ARRAYS = JaxArrays()
