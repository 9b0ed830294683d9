"""Products of matrices that are shared out over processes: the bits of one process, whatever is shared out how."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launching import with_gloo, with_mpi, with_threads
from processes import products

import ozaki
from ozaki import distributed
from ozaki.distributed import BlockCyclic, BlockNonCyclic, Box, Boxes, ProcessGrid, Replicated, Slab
from ozaki.distributed.communicators.communicator import ProcessError
from ozaki.distributed.communicators.threads import run


def check(found):
    wanted = products.expected()
    assert found
    for name, digest in found.items():
        method = name.split(", ")[-1]
        assert digest == wanted[method], name


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_threads_have_the_bits_of_one_call(size):
    first, *others = with_threads("products", size)
    check(first)
    assert all(each == first for each in others)


@pytest.mark.parametrize(("launch", "size"), [(with_gloo, 3), (with_gloo, 4), (with_mpi, 3), (with_mpi, 4)])
def test_processes_have_the_bits_of_one_call(launch, size):
    for each in launch("products", size):
        assert each is not None and "result" in each, each
        check(each["result"])


KINDS = ["normal", "spread", "sparse", "integers", "graded", "nonfinite", "zeros"]

METHODS = [
    {"scheme": "residues", "slices": 12},
    {"scheme": "digits", "slices": 8},
    {"accuracy": "fp64"},
    {"accuracy": "fp32"},
    {"accuracy": 1e-6},
    {"accuracy": "exact"},
    {"accuracy": ozaki.Accuracy("row-column", 1e-9)},
    {"accuracy": ozaki.Accuracy("normwise", 1e-12)},
    {"accuracy": ozaki.Accuracy("relative", 1e-9)},
    {"accuracy": "fp64", "inner_scaling": True},
    {"accuracy": "fp64", "inner_scaling": False},
]


def matrix(rng, shape, kind, dtype):
    x = rng.standard_normal(shape)
    if kind == "spread":
        x = np.ldexp(x, rng.integers(-30, 31, shape))
    elif kind == "sparse":
        x[rng.random(shape) > 0.1] = 0
    elif kind == "integers":
        x = np.rint(100 * x)
    elif kind == "graded":
        x *= 2.0 ** np.linspace(0, 60, shape[1])
    elif kind == "nonfinite":
        x[rng.random(shape) < 0.003] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == "zeros":
        x[::3] = 0
    if np.dtype(dtype).kind == "c":
        other = rng.standard_normal(shape)
        found = np.empty(shape, np.complex128)
        found.real, found.imag = x, np.where(x == 0, 0, other)
        x = found
    with np.errstate(over="ignore"):
        return x.astype(dtype)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 2**32))
def test_any_sharing_has_the_bits_of_one_call(data, seed):
    rng, draw = np.random.default_rng(seed), data.draw
    size, layers = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (4, 4)]))
    m, n, k = draw(st.integers(0, 40)), draw(st.integers(0, 40)), draw(st.sampled_from([0, 1, 3, 30, 200, 1500]))
    kind, dtype = draw(st.sampled_from(KINDS)), draw(st.sampled_from(["f4", "f8", "c8", "c16"]))
    method = draw(st.sampled_from(METHODS))
    if np.dtype(dtype).kind == "c" and method.get("scheme") == "digits":
        method = METHODS[0]
    a, b = matrix(rng, (m, k), kind, dtype), matrix(rng, (n, k), kind, dtype).T
    if kind == "graded":
        b = b * (2.0 ** -np.linspace(0, 120, k)[:, None]).astype(b.real.dtype)
    names = draw(st.tuples(*[st.sampled_from([*products.layouts(size)])] * 3))
    of_a, of_b, of_c = (products.layouts(size)[name][i] for i, name in enumerate(names))
    c = matrix(rng, (m, n), "normal", dtype) if draw(st.booleans()) else None

    def one():
        if c is None:
            return ozaki.matmul(a, b, reproducible=True, **method)
        return ozaki.gemm(-1.5, a, b, 0.75, c, reproducible=True, **method)

    def many(communicator):
        x, y = distributed.share_of(a, of_a, communicator), distributed.share_of(b, of_b, communicator)
        if c is None:
            return distributed.matmul(x, y, of_c, layers=layers, **method).gather()
        added = distributed.share_of(c, of_c, communicator)
        return distributed.gemm(-1.5, x, y, 0.75, added, layers=layers, **method).gather()

    try:
        wanted = one()
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error).split(":")[0]):
            run(size, many)
        return
    for found in run(size, many):
        assert np.array_equal(found.view("u1"), wanted.view("u1"))


def shared(x, of, communicator):
    return distributed.share_of(x, of, communicator)


def test_transposes_move_nothing():
    x = np.random.default_rng(1).standard_normal((20, 33))

    def work(communicator):
        a = shared(x, Slab.X, communicator)
        assert a.T.distribution == Slab.Y and np.shares_memory(a.T.local, a.local)
        return distributed.matmul(a.T, a, accuracy="fp64").gather(), distributed.matmul(
            a, a.T, accuracy="fp64"
        ).gather()

    for gram, outer in run(3, work):
        assert np.array_equal(gram, ozaki.matmul(x.T, x, accuracy="fp64", reproducible=True))
        assert np.array_equal(outer, ozaki.matmul(x, x.T, accuracy="fp64", reproducible=True))


def test_report_names_processes_and_the_bound_of_one_call():
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((50, 60)), rng.standard_normal((60, 40))

    def work(communicator):
        a, b = shared(x, Slab.X, communicator), shared(y, Slab.Y, communicator)
        return distributed.matmul(a, b, accuracy="fp64", return_report=True)[1]

    found, *others = run(2, work)
    _, one = ozaki.matmul(x, y, accuracy="fp64", reproducible=True, return_report=True)
    assert found.bound == one.bound and found.plan.slices == one.slices and others == [found]
    assert [each.rank for each in found.processes] == [0, 1]
    assert sum(each.received for each in found.processes) == sum(each.sent for each in found.processes) > 0
    assert "2 processes" in str(found) and "process 1: " in str(found)
    assert "native product ruled out: its bits would depend on how operands are shared out" in str(found)


def test_products_are_recorded_on_each_process():
    def work(communicator):
        a = shared(np.ones((4, 5)), Slab.X, communicator)
        with ozaki.recording() as record:
            distributed.matmul(a, a.T, scheme="residues", slices=10)
        (entry,) = record.account.entries
        return entry.shape, entry.count, entry.how

    assert run(2, work) == [((4, 5, 4), 1, "10 residues")] * 2


def test_an_addend_may_be_wider_than_a_named_format():
    rng = np.random.default_rng(8)
    x, c = rng.standard_normal((5, 6)), rng.standard_normal((5, 5))

    def work(communicator):
        a, added = shared(x, Slab.X, communicator), shared(c, Slab.Y, communicator)
        return distributed.gemm(2.0, a, a.T, 0.5, added, dtype="float32", accuracy="fp32").gather()

    wanted = ozaki.gemm(2.0, x, x.T, 0.5, c, dtype="float32", accuracy="fp32", reproducible=True)
    assert all(np.array_equal(found, wanted) for found in run(2, work))


def test_progress_counts_panels():
    calls = []

    def work(communicator):
        a = shared(np.ones((4, 20_000)), Slab.X, communicator)
        distributed.matmul(a, a.T, progress=lambda *of: calls.append(of), scheme="residues", slices=10)

    run(1, work)
    assert calls[-1][0] == calls[-1][1] and calls[-1][2] == "panels"


def test_a_given_plan_is_proven_for_these_operands():
    rng = np.random.default_rng(3)
    x, wild = rng.standard_normal((30, 40)), np.ldexp(rng.standard_normal((30, 40)), rng.integers(-60, 60, (30, 40)))
    plan = ozaki.plan(x, x.T, accuracy="fp64", reproducible=True)

    def work(communicator):
        a, b = (shared(each, Slab.X, communicator) for each in (x, wild))
        c = distributed.matmul(a, a.T, plan=plan).gather()
        with pytest.raises(ValueError, match="plan: proves a componentwise error of"):
            distributed.matmul(b, b.T, plan=plan)
        return c

    assert np.array_equal(run(2, work)[1], ozaki.matmul(x, x.T, plan=plan))


def test_a_plan_holds_a_limit_of_workspace():
    x = np.random.default_rng(9).standard_normal((40, 40))
    options = {"dtype": "float64", "scheme": "residues", "slices": 14}

    def product(communicator, limit):
        a = shared(x, Slab.X, communicator)
        plan = ozaki.plan(x.shape, x.shape, workspace_limit=limit, **options)
        return distributed.matmul(a, a, plan=plan).gather()

    assert np.array_equal(run(2, lambda of: product(of, 10**6))[1], ozaki.matmul(x, x, **options))
    refused(2, lambda of: product(of, 1000), ValueError, "workspace_limit: leaves 1000 bytes")


def test_an_infinite_time_limit():
    x = np.ones((4, 4))
    a = run(2, lambda of: shared(x, Slab.X, of).redistribute(Slab.Y).gather(), float("inf"))
    assert np.array_equal(a[0], x)
    with pytest.raises(TypeError, match="timeout: '5'; expected a number of seconds"):
        run(2, lambda of: None, "5")


@pytest.mark.parametrize(
    ("a", "options", "match"),
    [
        (9, {}, "a: shape 9; expected"),
        ((3, 9, 7), {}, "a: shape"),
        ((9, 7), {"distributions": (Slab.X,)}, "distributions: .* expected 3"),
        ((9, 7), {"distributions": (1, 2, 3)}, "distribution: 1; expected one"),
    ],
)
def test_wrong_arguments_of_plans_are_named(a, options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        distributed.plan(a, (7, 5), 2, dtype=np.float64, scheme="residues", slices=14, **options)


@pytest.mark.parametrize("limit", [8 * 2**20, 16 * 2**20])
@pytest.mark.parametrize("method", [{"scheme": "residues", "slices": 14}, {"accuracy": "fp64"}])
def test_a_limit_of_workspace_holds(limit, method):
    """Operands are three times the limit and more; the bits are those without a limit."""
    n = 1800 if limit < 10 * 2**20 else 2600
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((n, n)), rng.standard_normal((n, 300))
    assert x.nbytes > 3 * limit

    def work(communicator):
        a, b = shared(x, Slab.X, communicator), shared(y, Slab.X, communicator)
        tracemalloc.start()
        c, report = distributed.matmul(a, b, workspace_limit=limit, return_report=True, **method)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return c.local, peak, report

    ((c, peak, report),) = run(1, work)
    assert peak - c.nbytes <= limit
    assert report.sharing.blocks != (1, 1) or report.sharing.width < n
    assert np.array_equal(c, ozaki.matmul(x, y, reproducible=True, **method))


def test_a_limit_of_workspace_holds_while_layers_are_added():
    """Two processes, whose memory is counted together."""
    n, k, limit = 700, 4000, 24 * 2**20
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((n, k)), rng.standard_normal((k, n))
    options = {"layers": 2, "workspace_limit": limit, "scheme": "residues", "slices": 14}

    def work(communicator):
        return distributed.matmul(shared(x, Slab.Y, communicator), shared(y, Slab.X, communicator), **options).local

    tracemalloc.start()
    found = run(2, work)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 2 * limit + x.nbytes + y.nbytes + n * n * 8
    assert np.array_equal(np.concatenate(found, axis=1), ozaki.matmul(x, y, scheme="residues", slices=14))


def test_a_product_is_planned_that_no_process_could_hold():
    limit = 16 * 2**30
    found = distributed.plan(
        (200_000, 20_000), (20_000, 200_000), 8, dtype="float64", scheme="residues", slices=14, workspace_limit=limit
    )
    assert max(found.workspace) <= limit < 200_000**2 * 8 // 8
    assert sum(found.shares) == 8 * (2 * 200_000 * 20_000 + 200_000**2)
    assert "process 7: " in str(found)
    with pytest.raises(ValueError, match="workspace_limit: leaves"):
        distributed.plan((200_000, 20_000), (20_000, 200_000), 8, dtype="float64", slices=14, scheme="residues",
                         workspace_limit=10**6)  # fmt: skip
    for options, error, match in (
        ({"verify": True}, NotImplementedError, "verify: True is not for shared out operands"),
        ({"scheme": "native"}, ValueError, "scheme: 'native' has no bits"),
        ({"distributions": (Slab.X, Slab.Y)}, ValueError, "distributions: 2; expected 3"),
        ({"distributions": (Slab.X, Slab.Y, "X")}, TypeError, "distribution: 'X'"),
        ({"dtype": "int64"}, ValueError, "dtype: 'int64'; expected one of"),
    ):
        with pytest.raises(error, match=match):
            distributed.plan((4, 5), (5, 4), 2, **{"dtype": np.float64, **options})


def refused(size, work, error, match):
    """Every process raises the same error, before anything is computed."""

    def each(communicator):
        with pytest.raises(error, match=match):
            work(communicator)
        return True

    assert all(run(size, each))


def test_what_differs_among_processes_is_refused_on_all():
    x = np.ones((6, 6))

    def other_slices(communicator):
        a = shared(x, Slab.X, communicator)
        distributed.matmul(a, a, scheme="residues", slices=10 + communicator.rank)

    def other_dtypes(communicator):
        distributed.array(x[:3].astype("f4" if communicator.rank else "f8"), Slab.X, communicator)

    def other_shapes(communicator):
        distributed.array(x[: 2 + communicator.rank, :], Slab.X, communicator)

    def other_distributions(communicator):
        shared(x, Slab.Y if communicator.rank else Slab.X, communicator)

    def no_distribution(communicator):
        a = shared(x, Slab.X, communicator)
        a.redistribute(Slab.Y if communicator.rank else "Y")

    def one_box(communicator):
        distributed.array(x[:3], Box((0, 0), (3, 6)) if communicator.rank else Slab.X, communicator)

    def one_grid(communicator):
        other = BlockNonCyclic(ProcessGrid((3, 1)))
        distributed.array(x[:3], other if communicator.rank else Slab.X, communicator)

    def one_report(communicator):
        a = shared(x, Slab.X, communicator)
        distributed.matmul(a, a, return_report=bool(communicator.rank))

    def other_files(communicator):
        shared(x[: 5 + communicator.rank], Slab.X, communicator)

    refused(2, one_box, ValueError, "distribution: 'Slab.X' on process 0, but 'a Box of")
    refused(2, one_grid, (ValueError, ProcessError), "distribution: for 3 processes")
    refused(2, one_report, ValueError, "return_report: False on process 0, but True on process 1")
    refused(2, other_files, ValueError, r"shape: \(5, 6\) on process 0")
    refused(2, other_distributions, ValueError, "distribution: 'Slab.X' on process 0, but 'Slab.Y' on process 1")
    refused(2, no_distribution, (TypeError, ProcessError), "expected")
    refused(2, other_slices, ValueError, "options: .* on process 0, but .* on process 1")
    refused(2, other_dtypes, ValueError, "dtype: 'float64' on process 0, but 'float32' on process 1")
    refused(
        2, other_shapes, ValueError,
        r"local: shapes \(2, 6\) on process 0, \(3, 6\) on process 1; expected \(3, 6\) on process 0, \(2, 6\) on",
    )  # fmt: skip

    def narrow(communicator):
        distributed.array(x[:2, : 5 if communicator.rank == 0 else 6], Slab.X, communicator)

    refused(3, narrow, ValueError, r"local: shapes \(2, 5\) on process 0, \(2, 6\) on process 1; expected \(2, 6\) on")

    def some_boxes(communicator):
        distributed.array(x[:3], Slab.X if communicator.rank else Box((0, 0), (3, 6)), communicator)

    refused(2, some_boxes, ValueError, "distribution: 'a Box of each process' on process 0, but 'Slab.X' on process 1")

    def other_size(communicator):
        distributed.array(x[:3], BlockNonCyclic(ProcessGrid((2 + communicator.rank, 1))), communicator)

    refused(2, other_size, (ValueError, ProcessError), "distribution: for 3 processes, but there are 2")

    def other_matrix(communicator):
        shared(x[: 6 - communicator.rank], Slab.X, communicator)

    refused(2, other_matrix, ValueError, r"shape: \(6, 6\) on process 0, but \(5, 6\) on process 1")


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"scheme": "native"}, ValueError, "scheme: 'native' has no bits"),
        ({"scheme": "halfhalf"}, (ValueError, TypeError), "halfhalf"),
        ({"verify": True}, NotImplementedError, "verify: True is not"),
        ({"dtype": "int64"}, ValueError, "dtype: 'int64'"),
        ({"layers": 3}, ValueError, "layers: 3; expected a divisor of 2"),
        ({"layers": 1.0}, TypeError, "layers: 1.0; expected a whole number"),
        ({"dtype": "f2"}, TypeError, "dtype: 'f2'"),
        ({"distribution": Boxes((Box((0, 0), (3, 6)),) * 2)}, ValueError, "distribution: boxes of 36 elements"),
        ({"distribution": Boxes((Box((0, 0), (6, 6)), Box((6, 0), (9, 6))))}, ValueError, "boxes of 54 elements"),
        ({"grid": ProcessGrid((3, 1))}, ValueError, "grid: .* has 3 processes"),
        ({"distribution": Box((0, 0), (1, 1))}, TypeError, "distribution: Box"),
        ({"distribution": BlockNonCyclic(ProcessGrid((3, 1)))}, ValueError, "for 3 processes, but there are 2"),
        ({"engine": "cublas"}, ValueError, "engine: "),
        ({"accuracy": -1.0}, ValueError, "accuracy: "),
        ({"accuracy": "bf16"}, ValueError, "accuracy: 'bf16' is of products of two 16-bit operands"),
    ],
)
def test_bad_options_are_refused_on_all(options, error, match):
    def work(communicator):
        a = shared(np.ones((6, 6)), Slab.X, communicator)
        distributed.matmul(a, a, **options)

    refused(2, work, error, match)


def test_bad_operands_are_refused_on_all():
    x = np.ones((6, 4))

    def inner(communicator):
        a = shared(x, Slab.X, communicator)
        distributed.matmul(a, a)

    def mixed(communicator):
        a = shared(x, Slab.X, communicator)
        distributed.matmul(a.T, distributed.array(x[:3] + 0j, Slab.X, communicator))

    def one_only(communicator):
        a = shared(x, Slab.X, communicator)
        distributed.matmul(a.T, a if communicator.rank else x)

    def real(communicator):
        a = shared(x, Slab.X, communicator)
        distributed.gemm(1.0, a, a.T, 1.0, shared(np.ones((6, 6), complex), Slab.X, communicator))

    def other_ranks(communicator):
        a = shared(x, Slab.X, communicator)
        turned = replace(a, communicator=SimpleNamespace(rank=1 - communicator.rank, size=2))
        distributed.matmul(a.T, turned)

    refused(2, real, TypeError, "c: complex, but a and b are real")
    refused(2, other_ranks, ValueError, "b: on 2 processes, of which this one is ")
    refused(2, lambda of: shared(np.ones(3), Slab.X, of), (TypeError, ProcessError), "x: 1 axes")
    masked = np.ma.masked_array(x, x > 0)
    for take in (distributed.array, shared):
        refused(2, lambda of, take=take: take(masked, Slab.X, of), (TypeError, ProcessError), "masked elements")
    refused(2, inner, ValueError, "b: shape")
    refused(2, one_only, (TypeError, ProcessError), "b: ndarray; expected an Array")
    refused(2, mixed, TypeError, "b: one operand is complex")
    refused(1, lambda communicator: distributed.matmul(x, x), TypeError, "a: ndarray; expected an Array")
    refused(2, lambda of: distributed.array(np.ones(3), Slab.X, of), (ValueError, ProcessError), "local: 1 axes")
    for local, match in (
        (np.ones((2, 2), "i4"), r"local: dtype int32 .* \(local.astype\('float64'\) is exact\)"),
        (np.ones((2, 2), "i8"), r"local: dtype int64 .* \(local.astype\('float64'\) is exact up to 2\*\*53\)"),
        (np.ones((2, 2), "f2"), r"local: dtype float16 .* \(local.astype\('float32'\) is exact\)"),
        (ozaki.mparray([[1]]), r"local: multiprecision numbers; expected floats, as local.astype\('float64'\)"),
        (np.ma.array([[1.0]], mask=[[True]]), "local: masked elements"),
    ):
        refused(2, lambda of, x=local: distributed.array(x, Slab.X, of), (TypeError, ProcessError), match)
    refused(2, lambda of: distributed.share_of([[1.0]], Slab.X, of), (TypeError, ProcessError), "x: list; expected an")
    refused(
        1, lambda of: distributed.matmul([shared(x, Slab.X, of)], x), TypeError, "a: list; strips lie on the GPUs of"
    )


def test_a_shared_out_matrix_is_no_array_of_numpy():
    def convert(communicator):
        np.asarray(shared(np.ones((6, 4)), Slab.X, communicator))

    refused(2, convert, TypeError, r"of shape \(6, 4\): its elements lie on 2 processes; use .gather\(\).* or .local")


def test_boxes_that_do_not_cover_the_matrix_are_refused():
    """Two of them overlap, and leave as many elements to none as they have in common."""
    boxes = Boxes((Box((0, 0), (2, 2)), Box((0, 0), (1, 2)), Box((1, 2), (2, 4))))

    def array(communicator):
        box = boxes.boxes[communicator.rank]
        distributed.array(np.ones(box.share.shape), box, communicator)

    refused(3, array, ValueError, "distribution: boxes of 8 elements for a matrix of shape")
    refused(3, lambda of: shared(np.ones((2, 4)), boxes, of), (ValueError, ProcessError), "boxes of 8 elements")
    refused(
        3, lambda of: shared(np.ones((2, 4)), Slab.X, of).redistribute(boxes), (ValueError, ProcessError), "of 8 elem"
    )
    with pytest.raises(ValueError, match="boxes of 8 elements"):
        distributed.plan(
            (2, 3), (3, 4), 3, distributions=(Slab.X, Slab.X, boxes), dtype="f8", scheme="residues", slices=14
        )
    empty = Boxes((Box((0, 0), (0, 5)),) * 2)
    assert run(2, lambda of: shared(np.ones((0, 5)), empty, of).shape) == [(0, 5)] * 2


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Slab(2), "axis: 2; expected 0 or 1"),
        (lambda: ProcessGrid(4), "shape: 4; expected two numbers"),
        (lambda: ProcessGrid((2.0, 1)), "shape: "),
        (lambda: BlockCyclic(ProcessGrid((2, 1)), 2), "block_sizes: 2; expected two sizes"),
        (lambda: BlockCyclic(ProcessGrid((2, 1)), (2.5, 1)), "block_sizes: "),
        (lambda: BlockCyclic(ProcessGrid((2, 1)), (2, 1), 0), "first_process: 0"),
        (lambda: Box((-1, 0), (1, 1)), "lower: .* none negative"),
        (lambda: Box((0, 0), 5), "upper: 5"),
        (lambda: Boxes((1, 2)), "boxes: 1; expected a Box"),
        (lambda: Boxes((Box((0, 0), (1, 1)),) * 2, (0,)), "replicas: 1 numbers; expected 2"),
    ],
)
def test_distributions_name_what_is_wrong(make, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make()
    assert ProcessGrid(np.array([2, 1])) == ProcessGrid((2, 1))  # equal on all processes, however they are given


def test_options_that_are_equal_may_be_given_or_not():
    x = np.ones((6, 6))

    def one_default(communicator):
        a = shared(x, Slab.X, communicator)
        given = {"accuracy": None, "reproducible": False} if communicator.rank else {}
        return distributed.matmul(a, a, **given).local

    assert all((each == 6).all() for each in run(2, one_default))


def test_an_error_on_one_process_is_known_to_the_others():
    def work(communicator):
        local = np.ones((2, 2), "f8" if communicator.rank else "i4")
        distributed.array(local, Slab.X, communicator)

    errors = []

    def each(communicator):
        try:
            work(communicator)
        except (TypeError, ProcessError) as error:
            errors.append((communicator.rank, type(error).__name__, str(error)))

    run(3, each)
    by_rank = {rank: (name, text) for rank, name, text in errors}
    assert by_rank[0][0] == "TypeError"
    assert by_rank[1][0] == by_rank[2][0] == "ProcessError" and "process 0" in by_rank[1][1]


def test_operands_are_not_changed():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((6, 9))
    x.setflags(write=False)
    before = x.copy()

    def work(communicator):
        rows = x[3 * communicator.rank : 3 * communicator.rank + 3]
        a = distributed.array(rows, Slab.X, communicator)
        return distributed.matmul(a, a.T, accuracy="fp64").gather()

    run(2, work)
    assert np.array_equal(x, before)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.75), (-0.0, -0.0), (-2.0, 0.0), (1.0, -0.0)])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_factors_of_zero_leave_nan_and_inf_unread(alpha, beta, dtype):
    rng = np.random.default_rng(7)
    x, c = rng.standard_normal((5, 8)).astype(dtype), rng.standard_normal((5, 5)).astype(dtype)
    x[1, 6], x[3, 0], c[0, 2], c[4, 1] = np.nan, np.inf, np.nan, -np.inf
    wanted = ozaki.gemm(alpha, x, x.T, beta, c, accuracy="fp64", reproducible=True)

    def work(communicator):
        a, added = shared(x, Slab.Y, communicator), shared(c, Slab.X, communicator)
        return distributed.gemm(alpha, a, a.T, beta, added, layers=2, accuracy="fp64").gather()

    for found in run(2, work):
        assert found.tobytes() == wanted.tobytes()


def test_replicated_results_lie_everywhere():
    x = np.random.default_rng(6).standard_normal((7, 8))

    def work(communicator):
        a = shared(x, Replicated(), communicator)
        return distributed.matmul(a, a.T, accuracy="fp64").local

    for c in run(3, work):
        assert np.array_equal(c, ozaki.matmul(x, x.T, accuracy="fp64", reproducible=True))


def test_block_cyclic_as_scalapack_has_it():
    of = BlockCyclic(ProcessGrid((2, 3)), (2, 2))
    rows, cols = of.share((9, 7), rank=4, size=6)  # process (1, 1)
    assert [*rows] == [2, 3, 6, 7] and [*cols] == [2, 3]
    assert of.T.share((7, 9), 4, 6) is not None
    whole = np.zeros((9, 7), int)
    for rank in range(6):
        whole[np.ix_(*map(list, of.share((9, 7), rank, 6)))] += 1
    assert (whole == 1).all()
