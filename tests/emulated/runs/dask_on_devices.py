"""Products of dask arrays whose chunks lie on GPUs: the bits of NumPy, chunk by chunk."""

from __future__ import annotations

from typing import Any
from unittest import mock

import cupy as cp
import dask
import dask.array as da
import numpy as np
import pytest

import ozaki
from ozaki.distributed import dask_graphs, gemm, matmul
from runs.operands import hard, matrix, same


def on_gpu(x: np.ndarray, chunks: Any) -> Any:
    """A dask array whose chunks lie on the current device."""
    return da.from_array(x, chunks=chunks).map_blocks(cp.asarray, meta=cp.asarray(np.empty((0, 0), x.dtype)))


def gathered(c: Any) -> np.ndarray:
    """The result in host memory; its chunks are on a device."""
    assert isinstance(c._meta, cp.ndarray) and c._meta.dtype == c.dtype

    def fetch(block: Any) -> np.ndarray:
        assert isinstance(block, cp.ndarray)
        of_block: np.ndarray = cp.asnumpy(block)
        return of_block

    found: np.ndarray = c.map_blocks(fetch, meta=np.empty((0, 0), c.dtype)).compute()
    return found


def compare(a: np.ndarray, b: np.ndarray, chunks: Any, c: np.ndarray | None = None, **method: Any) -> None:
    """Compare a product, and an expression, with those of one call, bit for bit."""
    given = {"reproducible": True, "inner_scaling": False, **method}
    with dask.config.set(scheduler="synchronous"), np.errstate(all="ignore"):
        x, y = on_gpu(a, chunks[0]), on_gpu(b, chunks[1])
        same(ozaki.matmul(a, b, **given), gathered(matmul(x, y, **method)))
        if c is not None:
            found = gemm(-1.5, x, y, 0.5, on_gpu(c, 5), **method)
            same(ozaki.gemm(-1.5, a, b, 0.5, c, **given), gathered(found))


CHUNKS = (((20, 21), (50, 20)), ((30, 0, 40), (35,)))


def chunks_on_devices(rng: np.random.Generator) -> None:
    """By a named count: chunks along k that differ, strands, and what NaN and Inf touch."""
    a, b = hard(rng, 70, "f8")
    b, c = b[:35].T, matrix(rng, (41, 35), "f8")
    c[2, 3] = np.nan
    for method in ({"scheme": "residues", "slices": 14}, {"scheme": "digits", "slices": 7}):
        compare(a, b, CHUNKS, c, **method)
    compare(a, b, (41, 70), c, scheme="residues", slices=60)
    compare(a[:5], b[:, :4], ((5, 70), (70, 4)), scheme="residues", slices=14)  # a single pair of blocks
    with mock.patch.object(dask_graphs, "_bytes_of_sums", return_value=0.01):
        for strands in (1, 3, 100):
            with mock.patch.object(dask_graphs, "_STRANDS", strands):
                compare(a[:7], b[:, :9], (7, 9), scheme="residues", slices=12)
    x, y = (matrix(rng, of, "f4") + 1j * matrix(rng, of, "f4") for of in ((9, 20), (20, 7)))
    y[2, 3] = np.inf
    compare(x, y, (6, 11), x[:, :7], scheme="residues", slices=12)
    for m, k, n in ((0, 5, 3), (4, 0, 3), (1, 1, 1)):
        compare(matrix(rng, (m, k), "f8"), matrix(rng, (k, n), "f8"), (3, 3), scheme="residues", slices=12)


def chunks_to_an_accuracy(rng: np.random.Generator) -> None:
    a, b = matrix(rng, (23, 60), "f8", 20), matrix(rng, (60, 17), "f8", 20)
    a[:, ::3] *= rng.random((23, 20)) < 0.1
    for accuracy in (
        "fp64",
        "exact",
        ozaki.Accuracy("row-column", 1e-12),
        ozaki.Accuracy("normwise", 1e-8),
        ozaki.Accuracy("relative", 1e-9),
    ):
        compare(a, b, ((9, 25), (20, 17)), accuracy=accuracy)
    compare(a.astype("f4"), b.astype("f4"), ((12, 60), (50, 9)), accuracy="fp32")
    x, y = np.ldexp(a, -20) + 1j * rng.standard_normal(a.shape), rng.standard_normal(b.shape) - 1j
    compare(x, y, ((12, 60), (50, 9)), accuracy="fp64")
    with pytest.raises(NotImplementedError, match="scheme: complex-residues are slices of parts"):
        compare(x, y, ((12, 60), (50, 9)), scheme="residues", slices=70)
    compare(a, a.T, ((12, 31), (31, 12)), accuracy="fp64")
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", accuracy=ozaki.Accuracy("row-column", 1e-9), reproducible=True)
    with dask.config.set(scheduler="synchronous"):
        same(ozaki.matmul(a, b, plan=plan), gathered(matmul(on_gpu(a, 10), on_gpu(b, 20), plan=plan)))


def chunks_on_another_device(rng: np.random.Generator) -> None:
    """Tasks enter the device of their chunks."""
    a, b = matrix(rng, (12, 30), "f8"), matrix(rng, (30, 9), "f8")

    def there(block: np.ndarray) -> Any:
        with cp.cuda.Device(1):
            return cp.asarray(block)

    x, y = (da.from_array(each, chunks=10).map_blocks(there, meta=cp.asarray(np.empty((0, 0)))) for each in (a, b))
    with dask.config.set(scheduler="synchronous"), cp.cuda.Device(0):
        for method in ({"scheme": "residues", "slices": 14}, {"accuracy": "fp64"}):
            blocks = matmul(x, y, **method).to_delayed().ravel()
            found = dask.compute(*blocks)
            assert all(block.data.device_id == 1 for block in found)
            with cp.cuda.Device(1):
                whole = cp.concatenate(found, axis=0)
                same(ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method), whole)
        z = on_gpu(b, 10)
        with pytest.raises(ValueError, match="a chunk: on device"):
            matmul(x, z, scheme="residues", slices=14).compute()


def refused_chunks(rng: np.random.Generator) -> None:
    a = matrix(rng, (6, 6), "f8")
    x, y = on_gpu(a, 3), da.from_array(a, chunks=3)
    count: dict[str, Any] = {"scheme": "residues", "slices": 14}
    scaled = ozaki.plan(a, a, inner_scaling=True, accuracy="fp64", reproducible=True)
    calls: tuple[tuple[Any, type[Exception], str], ...] = (
        (lambda: matmul(x, y, **count), ValueError, r"b: its chunks are in host memory.*map_blocks"),
        (lambda: matmul(a, x, **count), ValueError, r"a: its chunks are in host memory"),
        (lambda: gemm(1.0, x, x, 1.0, y, **count), ValueError, r"c: its chunks are in host memory"),
        (lambda: gemm(1.0, y, y, 1.0, x, **count), ValueError, r"a: its chunks are in host memory"),
        (lambda: matmul(cp.asarray(a), x, **count), TypeError, r"a: an array of CuPy; use dask.array.from_array"),
        (lambda: matmul(x, x, inner_scaling=True, **count), NotImplementedError, "inner_scaling: True"),
        (lambda: matmul(x, x, plan=scaled), NotImplementedError, "inner_scaling: True"),
        (lambda: matmul(x, x, engine="float64", **count), ValueError, "engine: 'float64' is not available"),
        (
            lambda: matmul(x, x, engine="fused", scheme="digits", slices=5),
            NotImplementedError,
            "scheme: engine='fused'",
        ),
        (
            lambda: matmul(x.map_blocks(cp.asnumpy, meta=x._meta), x, **count).compute(scheduler="synchronous"),
            TypeError,
            "a: a chunk is in host memory; expected one on a GPU",
        ),
    )
    for call, error, match in calls:
        with pytest.raises(error, match=match):
            call()
