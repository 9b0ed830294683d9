"""Operands of many kinds and layouts on host and device, and the comparison of their products, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from ozaki.schemes.named import forced

cp = pytest.importorskip("cupy")


def tensor_core():
    """The model of the device's tensor cores."""
    from ozaki.backends.cupy import backend

    core = backend.machine().core()
    if core is None:
        pytest.skip(f"no model of compute capability {cp.cuda.Device().compute_capability}")
    return core


def random_matrix(rng, shape, dtype, spread):
    """Normal entries times powers of two drawn for each row and for each element; some zeros."""
    x = rng.standard_normal(shape)
    with np.errstate(over="ignore"):
        x = np.ldexp(x, rng.integers(-spread, spread + 1, (*shape[:-1], 1)))
        x = np.ldexp(x, rng.integers(-spread, spread + 1, shape) // 2)
        x[rng.random(shape) < 0.05] = 0
        return x.astype(dtype)


def views(rng, x):
    """A view of x on the host and an equal one on the device, in a memory layout drawn at random."""
    kind = int(rng.integers(6))
    if kind == 1:
        x = np.asfortranarray(x)
    y = cp.asarray(x, order="F" if kind == 1 else "C")
    if kind == 2:
        x, y = x[..., ::-1], y[..., ::-1]
    if kind == 3:
        x, y = x[..., ::-1, :], y[..., ::-1, :]
    if kind == 4:
        x, y = x[..., ::2], y[..., ::2]
    if kind == 5:
        x, y = (
            np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
            cp.ascontiguousarray(y.swapaxes(-1, -2)).swapaxes(-1, -2),
        )
    return x, y


def same_bits(x, y):
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(cp.asnumpy(y))
    assert x.dtype == y.dtype and x.shape == y.shape
    if x.tobytes() != y.tobytes():
        at = tuple(np.argwhere(x.view(f"i{x.itemsize}") != y.view(f"i{y.itemsize}"))[0])
        pytest.fail(f"first difference at {at}: {x[at].item().hex()} on NumPy, {y[at].item().hex()} on CuPy")


def engines(scheme, slices, k):
    """The names of the engines of this device that multiply such slices."""
    from ozaki.backends.cupy import devices
    from ozaki.backends.cupy.steps.engines.choice import slice_engine

    if scheme == "fp16-digits":
        return ("cublas",)
    try:
        slice_engine(devices.current(), forced(scheme, slices), "fused", 1, (300, k, 300))
    except ValueError:
        return ("cublas",)
    return "cublas", "fused"
