"""Products of ozaki.distributed whose shares lie on a real GPU: threads in the place of processes, all on one GPU."""

from unittest import mock

import numpy as np
import pytest

import ozaki
from ozaki import distributed
from ozaki.distributed import Slab, sharing
from ozaki.distributed.communicators.threads import run

cp = pytest.importorskip("cupy")

pytestmark = pytest.mark.gpu


def operands(dtype):
    rng = np.random.default_rng(57)
    shapes = (700, 3000), (3000, 500), (700, 500)
    a, b, c = (np.ldexp(rng.standard_normal(shape), rng.integers(-9, 10, shape)) for shape in shapes)
    if dtype.startswith("complex"):
        a, b, c = (x + 1j * x[::-1, ::-1] for x in (a, b, c))
    return a.astype(dtype), b.astype(dtype), c.astype(dtype)


def shared(x, of, communicator):
    rows, cols = of.share(x.shape, communicator.rank, communicator.size)
    return distributed.array(cp.asarray(np.ascontiguousarray(x[np.ix_(rows, cols)])), of, communicator)


def same_bits(size, a, b, c, given, **method):
    """Compare a product and an expression of so many threads with those of one call on NumPy."""

    def work(communicator):
        x, y = shared(a, Slab.X, communicator), shared(b, Slab.Y, communicator)
        found, report = distributed.matmul(x, y, return_report=True, **given, **method)
        more = distributed.gemm(-1.5, x, y, 0.5, shared(c, Slab.Y, communicator), **given, **method)
        return cp.asnumpy(found.gather()), cp.asnumpy(more.gather()), report

    want = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method)
    plus = ozaki.gemm(-1.5, a, b, 0.5, c, reproducible=True, inner_scaling=False, **method)
    for found, more, report in run(size, work, 60):
        assert np.array_equal(found, want, equal_nan=True)
        assert np.array_equal(more, plus, equal_nan=True)
        assert report.sharing.layers == given["layers"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("method", [{"scheme": "residues", "slices": 14}, {"accuracy": "fp32"}])
@pytest.mark.parametrize(("size", "layers"), [(1, 1), (2, 1), (2, 2), (3, 3)])
def test_panels(dtype, method, size, layers):
    with mock.patch.object(sharing, "WIDTH", 640):
        same_bits(size, *operands(dtype), {"layers": layers}, **method)


@pytest.mark.parametrize(
    "method",
    [
        {"scheme": "digits", "slices": 8},
        {"scheme": "residues", "slices": 60},
        {"accuracy": "fp64"},
        {"accuracy": "exact"},
        {"accuracy": ozaki.Accuracy("normwise", 1e-12)},
    ],
)
def test_other_slices(method):
    with mock.patch.object(sharing, "WIDTH", 1000):
        same_bits(2, *operands("float64"), {"layers": 2}, **method)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_nan_and_inf(dtype):
    a, b, c = operands(dtype)
    a[3, 7], a[600, 2999], b[9, 2], b[2000, 2], c[3, 3] = np.nan, np.inf, np.inf, -np.inf, np.inf
    with mock.patch.object(sharing, "WIDTH", 640):
        same_bits(2, a, b, c, {"layers": 2}, scheme="residues", slices=14)


@pytest.mark.parametrize("engine", ["auto", "cublas"])
def test_limits(engine):
    given = {"layers": 1, "workspace_limit": 40 * 10**6, "engine": engine}
    same_bits(2, *operands("float64"), given, scheme="residues", slices=14)
