"""Products of dask arrays: the bits of one NumPy product, whatever the chunks and the scheduler, and who dies."""

import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ozaki
from ozaki import Accuracy

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from ozaki.distributed import dask_graphs, dask_tasks, gemm, matmul  # noqa: E402

SHAPE = 23, 150, 17
CHUNKINGS = {
    "one": ((23,), (150,), (150,), (17,)),
    "even": ((8, 8, 7), (50, 50, 50), (40, 40, 40, 30), (9, 8)),
    "odd": ((1, 22), (149, 1), (3, 0, 100, 47), (17,)),
}

BY_COUNT = {"scheme": "residues", "slices": 12}


@pytest.fixture(params=["synchronous", "threads"])
def scheduler(request):
    with dask.config.set(scheduler=request.param, num_workers=2):
        yield


def numbers(rng, dtype, kind="normal"):
    """Two matrices of a kind, shapes (m, k) and (k, n)."""
    m, k, n = SHAPE
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if kind == "graded":
        a, b = a * 2.0 ** np.linspace(0, 60, k), b * 2.0 ** -np.linspace(0, 60, k)[:, None]
    if kind == "sparse":  # entries without a common inner index are zero, and those of few have no bound at first
        a, b = a * (rng.random(a.shape) < 0.04), np.ldexp(b, rng.integers(-40, 40, b.shape))
    if kind == "nonfinite":
        a[[0, 3, 20], [0, 149, 70]], b[[1, 70, 149], [0, 5, 16]] = (np.nan, np.inf, -np.inf), (np.inf, 0.0, np.nan)
    if kind == "wide":
        a = np.ldexp(a, rng.integers(-40, 40, a.shape))
    if np.dtype(dtype).kind == "c":
        with np.errstate(invalid="ignore"):
            return (a + 1j * rng.permutation(a)).astype(dtype), (b - 1j * rng.permutation(b)).astype(dtype)
    return a.astype(dtype), b.astype(dtype)


def chunked(a, b, chunking):
    rows, k_of_a, k_of_b, cols = CHUNKINGS[chunking]
    return da.from_array(a, chunks=(rows, k_of_a)), da.from_array(b, chunks=(k_of_b, cols))


def same(found, expected):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(np.ascontiguousarray(found).view("u1"), np.ascontiguousarray(expected).view("u1"))


@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize(
    ("dtype", "kind", "options"),
    [
        ("f8", "normal", BY_COUNT),
        ("f8", "nonfinite", BY_COUNT),
        ("f8", "graded", BY_COUNT | {"inner_scaling": True}),
        ("f8", "normal", {"scheme": "digits", "slices": 9}),
        ("c8", "nonfinite", BY_COUNT),
        ("f8", "normal", {"accuracy": "fp64"}),
        ("f4", "wide", {"accuracy": "fp32"}),
        ("f8", "sparse", {"accuracy": "fp64"}),
        ("c16", "nonfinite", {"accuracy": "fp64"}),
        ("f8", "graded", {"accuracy": "fp64", "inner_scaling": True}),
        ("f8", "graded", {"accuracy": "fp64"}),
        ("f8", "wide", {"accuracy": "exact"}),
        ("f8", "normal", {"accuracy": Accuracy("relative", 1e-9)}),
        ("f4", "normal", {"accuracy": "fp32", "dtype": "float64"}),
    ],
)
def test_bits_are_those_of_one_product(rng, chunking, dtype, kind, options):
    a, b = numbers(rng, dtype, kind)
    with np.errstate(all="ignore"):
        expected = ozaki.matmul(a, b, reproducible=True, **options)
    with dask.config.set(scheduler="threads", num_workers=2):
        found = matmul(*chunked(a, b, chunking), **options)
        assert (found.shape, found.dtype, found._meta.dtype) == (expected.shape, expected.dtype, expected.dtype)
        same(found.compute(), expected)


@pytest.mark.usefixtures("scheduler")
def test_strands_and_groups_change_no_bits(rng, monkeypatch):
    a, b = numbers(rng, "f8", "nonfinite")
    expected = ozaki.matmul(a, b, reproducible=True, **BY_COUNT)
    x, y = da.from_array(a, chunks=(12, 10)), da.from_array(b, chunks=(10, 17))
    for strands in (1, 4, 10, 1000):
        for of_entry in (0.01, 10, 1e9):  # a pair of blocks a task; some; all
            monkeypatch.setattr(dask_graphs, "_STRANDS", strands)
            monkeypatch.setattr(dask_graphs, "_bytes_of_sums", lambda _, size=of_entry: size)
            same(matmul(x, y, **BY_COUNT).compute(), expected)


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0), (1, 1, 1), (0, 0, 0)])
@pytest.mark.parametrize("options", [BY_COUNT, {"accuracy": "fp64"}])
def test_empty_and_single(shape, options):
    m, k, n = shape
    a, b = np.full((m, k), 3.0), np.full((k, n), 0.1)
    same(
        matmul(da.from_array(a), da.from_array(b), **options).compute(),
        ozaki.matmul(a, b, reproducible=True, **options),
    )


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("dtype", ["f8", "c8"])
@pytest.mark.parametrize("options", [BY_COUNT, {"accuracy": "fp32"}])
def test_gemm(rng, dtype, options):
    a, b = numbers(rng, dtype, "nonfinite")
    c = rng.standard_normal((SHAPE[0], SHAPE[2])).astype(dtype)
    c[4, 4] = np.inf
    with np.errstate(all="ignore"):
        expected = ozaki.gemm(-1.5, a, b, 0.75, c, reproducible=True, **options)
        without = ozaki.gemm(3.0, a, b, 0.0, None, reproducible=True, **options)
    x, y = chunked(a, b, "even")
    same(gemm(-1.5, x, y, 0.75, da.from_array(c, chunks=5), **options).compute(), expected)
    same(gemm(-1.5, x, b, 0.75, c, **options).compute(), expected)
    same(gemm(3.0, x, y, 0.0, None, **options).compute(), without)


def test_transposed_and_rechunked_operands(rng):
    a, _ = numbers(rng, "f8")
    x = da.from_array(a, chunks=(10, 33))
    same(matmul(x, x.T, accuracy="fp64").compute(), ozaki.matmul(a, a.T, accuracy="fp64", reproducible=True))
    same(matmul(x.T[:20], x, **BY_COUNT).compute(), ozaki.matmul(a.T[:20], a, reproducible=True, **BY_COUNT))


def test_a_plan_of_the_caller(rng):
    a, b = numbers(rng, "f8")
    x, y = chunked(a, b, "even")
    of_shapes = ozaki.plan(a.shape, b.shape, accuracy=Accuracy("row-column", 1e-12), dtype="float64", reproducible=True)
    of_operands = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    for plan in (of_shapes, of_operands):
        same(matmul(x, y, plan=plan).compute(), ozaki.matmul(a, b, plan=plan))
    with pytest.raises(ValueError, match="misses its accuracy"):
        matmul(np.ldexp(x, np.arange(150) % 90), y, plan=of_operands)


# What is computed when ----------------------------------------------------------------------------------------------


def counted(x):
    """A dask array, and the list of its chunks that were computed."""
    seen = []

    def see(block):
        seen.append(block.shape)
        return block

    return x.map_blocks(see, meta=x._meta), seen


@pytest.mark.parametrize("options", [BY_COUNT, BY_COUNT | {"inner_scaling": True}, {"plan": None}])
def test_a_named_count_computes_nothing(rng, options):
    a, b = numbers(rng, "f8")
    if "plan" in options:
        accuracy = Accuracy("row-column", 1e-12)
        options = {"plan": ozaki.plan(a.shape, b.shape, accuracy=accuracy, dtype="float64", reproducible=True)}
    (x, seen), y = counted(da.from_array(a, chunks=(8, 50))), da.from_array(b)
    c = matmul(x, y, **options)
    assert seen == []
    same(c[:8].compute(scheduler="synchronous"), ozaki.matmul(a, b, reproducible="plan" not in options, **options)[:8])
    assert len(seen) == (3 if not options.get("inner_scaling") else 9)  # the chunks of some rows alone, once


def test_a_named_accuracy_computes_facts(rng):
    a, b = numbers(rng, "f8")
    x, seen = counted(da.from_array(a, chunks=(8, 50)))
    with dask.config.set(scheduler="synchronous"):
        matmul(x, b, accuracy="fp64")
    assert len(seen) >= 9


def test_equal_calls_have_equal_keys(rng):
    x, y = chunked(*numbers(rng, "f8"), "even")
    one, other = (matmul(x, y, **BY_COUNT) for _ in range(2))
    assert set(one.dask.to_dict()) == set(other.dask.to_dict())
    names = {one.name, matmul(x, y, scheme="residues", slices=11).name, gemm(2.0, x, y, 0.0, None, **BY_COUNT).name}
    assert len(names) == 3


def test_no_key_has_two_meanings(rng):
    """Schedulers of clusters refuse to take a key for other work: facts as data and what finds them differ."""
    x, y = chunked(*numbers(rng, "f8"), "even")
    by_count = matmul(x, y, **BY_COUNT)
    by_plan = matmul(x, y, accuracy="fp64", scheme="residues", slices=14)
    same_count = matmul(x, y, scheme="residues", slices=14)
    ours = [{key for key in c.dask.to_dict() if "ozaki" in str(key)} for c in (by_count, by_plan, same_count)]
    assert not ours[1] & (ours[0] | ours[2])


def test_tasks_change_nothing_that_they_are_given(rng):
    a, b = numbers(rng, "f8", "nonfinite")
    left, right = (
        dask_tasks.described(extremes, [dask_tasks.sums(*of, extremes, 150)], 150, "float64")
        for side, x in enumerate((a, b))
        for of in [(side, x, "float64", dask_tasks.Inner(slice(None), slice(None)), None)]
        for extremes in [dask_tasks.extremes(*of)]
    )
    product = dask_tasks.Product(ozaki.plan(a, b, **BY_COUNT).scheme, "auto", 150, "float64")
    halves = [
        dask_tasks.Panel((dask_tasks.Inner(at, at),), ("float64", "float64")) for at in (slice(0, 70), slice(70, 150))
    ]
    first = dask_tasks.multiplied(product, halves[0], left, right, [], [a], [b], None)
    before = pickle.dumps(first)
    whole = dask_tasks.rounded(product, halves[1], left, right, [first], [a], [b], None, None, None)
    again = dask_tasks.multiplied(product, halves[1], left, right, [first], [a], [b], None)
    assert pickle.dumps(first) == before
    nothing = dask_tasks.Panel((), ("", ""))
    other = dask_tasks.rounded(product, nothing, left, right, [again], [], [], None, None, None)
    same(other, whole)
    same(whole, ozaki.matmul(a, b, reproducible=True, **BY_COUNT))


# What is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: matmul(x[x[:, 0] > 0], x.T, **BY_COUNT), "a: .*compute_chunk_sizes"),
        (lambda x: matmul(x, x, **BY_COUNT), "b: shape"),
        (lambda x: matmul(x, np.ones(3)), "b: 1 axes"),
        (lambda x: matmul([[1.0]], x), "a: list"),
        (lambda x: matmul(x, x.T, return_report=True), "return_report: not for dask"),
        (lambda x: matmul(x, x.T, timeout=5.0), "timeout: not for dask"),
        (lambda x: matmul(x, x.T, progress=print), "progress: .*ProgressBar"),
        (lambda x: matmul(x, x.T, layers=2), "layers: "),
        (lambda x: matmul(x, x.T, timeout=9), "timeout: not for dask"),
        (lambda x: matmul(x, x.T, placements=[]), "placements: not for dask"),
        (
            lambda x: matmul(
                x, x.T, plan=ozaki.plan(x.shape, x.T.shape, dtype="float64", workspace_limit=10**6, **BY_COUNT)
            ),
            "workspace_limit: .*rechunk",
        ),
        (lambda x: matmul(x, x.T, workspace_limit=10**9), "workspace_limit: .*rechunk"),
        (lambda x: matmul(x.astype(int), x.T), "a: dtype int64"),
        (lambda x: matmul(x, 1j * x.T), "b: one operand is complex"),
        (lambda x: matmul(x.map_blocks(np.ma.masked_array), x.T), "a: its chunks are of MaskedArray"),
        (lambda x: matmul(x, x.T, verify=True), "verify: "),
        (lambda x: matmul(x, x.T, scheme="native"), "scheme: 'native'"),
        (lambda x: gemm(1.0, x, x.T, 1.0, None), "c: missing"),
        (lambda x: gemm(1.0, x, x.T, 1.0, x), "c: shape"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        call(da.ones((4, 6), chunks=3))


def test_chunks_that_are_not_what_their_array_says():
    x = da.ones((4, 6), chunks=3).map_blocks(lambda block: block.astype("f4"), meta=np.empty((0, 0)))
    with pytest.raises(TypeError, match="a: a chunk is dtype float32; expected a NumPy array of dtype float64"):
        matmul(x, np.ones((6, 2)), **BY_COUNT).compute(scheduler="synchronous")


def test_workers_with_different_engines_are_found():
    product = dask_tasks.Product(
        ozaki.plan((2, 2), (2, 2), dtype="float64", **BY_COUNT).scheme, "float64", 2, "float64"
    )
    rows = dask_tasks.described(np.array([[1.0], [-1.0]]), [np.ones((4, 1), np.int64)], 2, "float64")
    other = dask_tasks.Partial(np.zeros((12, 1, 1, 1)), 1, [], "Another")
    with pytest.raises(RuntimeError, match="engine='float64'"):
        dask_tasks.multiplied(product, dask_tasks.Panel((), ("", "")), rows, rows, [other], [], [], None)


def test_dask_is_not_imported_for_others():
    code = "import sys, ozaki.distributed; assert 'dask' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


# Clusters -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.filterwarnings("default::ResourceWarning", "default::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("options", [BY_COUNT, {"accuracy": "fp64"}])
def test_a_worker_that_is_killed_costs_no_bits(rng, tmp_path, options):
    """A chunk ends the process that computes it, once, when others have been multiplied."""
    distributed = pytest.importorskip("distributed")
    a, b = rng.standard_normal((60, 400)), rng.standard_normal((400, 50))
    expected = ozaki.matmul(a, b, reproducible=True, **options)
    marker, kill = str(tmp_path / "killed"), int(signal.SIGKILL)

    def fragile(block, block_id):  # by value: workers do not import this file
        import os

        if block_id == (2, 3) and not os.path.exists(marker):
            os.close(os.open(marker, os.O_CREAT))
            os.kill(os.getpid(), kill)
        return block

    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=2, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        x = da.from_array(a, chunks=(20, 100)).map_blocks(fragile, meta=np.empty((0, 0)))
        c = matmul(x, da.from_array(b, chunks=(50, 25)), **options)
        same(c.compute(), expected)
        same(client.persist(c).compute(), expected)
    assert Path(marker).exists()


@pytest.mark.full
def test_many_tasks_at_a_time(rng):
    """In threads of one process, which share libraries and memory for slices."""
    a, b = numbers(rng, "f8", "wide")
    expected = ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    with dask.config.set(scheduler="threads", num_workers=8):
        for _ in range(4):
            same(matmul(da.from_array(a, chunks=6), da.from_array(b, chunks=11), accuracy="fp64").compute(), expected)
