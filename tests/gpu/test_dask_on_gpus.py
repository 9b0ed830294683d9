"""Products of dask arrays whose chunks lie on a real GPU: the bits of one call on NumPy."""

import numpy as np
import pytest

import ozaki
from ozaki.distributed import gemm, matmul

cp = pytest.importorskip("cupy")
dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.gpu


def on_gpu(x, chunks):
    return da.from_array(x, chunks=chunks).map_blocks(cp.asarray, meta=cp.empty((0, 0), x.dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    "method",
    [
        {"scheme": "residues", "slices": 14},
        {"accuracy": "fp32"},
        {"accuracy": ozaki.Accuracy("row-column", 1e-10)},
        {"accuracy": ozaki.Accuracy("relative", 1e-6)},
    ],
)
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_bits(dtype, method, scheduler):
    rng = np.random.default_rng(59)
    a, b, c = (rng.standard_normal(shape) for shape in ((500, 1700), (1700, 300), (500, 300)))
    if dtype.startswith("complex"):
        a, b, c = (x + 1j * x[::-1, ::-1] for x in (a, b, c))
    a, b, c = (x.astype(dtype) for x in (a, b, c))
    if "accuracy" not in method or method["accuracy"] == "fp32":
        a[3, 7], b[900, 9] = np.nan, np.inf
    given = {"reproducible": True, "inner_scaling": False, **method}
    x, y, z = on_gpu(a, (200, 600)), on_gpu(b, (500, 300)), on_gpu(c, 256)
    with dask.config.set(scheduler=scheduler, num_workers=4), np.errstate(all="ignore"):
        found = matmul(x, y, **method)
        assert isinstance(found._meta, cp.ndarray)
        found, more = found.compute(), gemm(-1.5, x, y, 0.5, z, **method).compute()
        want, plus = ozaki.matmul(a, b, **given), ozaki.gemm(-1.5, a, b, 0.5, c, **given)
    assert isinstance(found, cp.ndarray)
    assert np.array_equal(cp.asnumpy(found), want, equal_nan=True)
    assert np.array_equal(cp.asnumpy(more), plus, equal_nan=True)
