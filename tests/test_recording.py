"""What ran, for those who want to know: contexts, linear algebra, other array libraries, and what all of it costs."""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import math
import subprocess
import sys
import threading
import weakref
from collections import Counter
from functools import partial

import numpy as np
import pytest

import ozaki
from ozaki.driver.watching import RECORDINGS, step

FP64 = {"accuracy": "fp64", "reproducible": True}
GIVEN = {"scheme": "residues", "slices": 14}


@pytest.fixture
def a(rng):
    return rng.standard_normal((6, 6)) + 6 * np.eye(6)


FUNCTIONS = {
    "solve": ((6, 6, 6), "normwise"),
    "inv": ((6, 6, 6), "normwise"),
    "lstsq": ((6, 6, 6), "normwise"),
    "cholesky": ((6, 6, 6), "row-column"),
    "qr": ((6, 6, 6), "columnwise"),
    "lq": ((6, 6, 6), "rowwise"),
    "lu_factor": ((6, 6, 6), "row-column"),
    "lu_solve": ((6, 6, 1), "normwise"),
    "cho_solve": ((6, 6, 1), "normwise"),
    "solve_triangular": ((6, 6, 6), "normwise"),
    "eig": ((6, 6, 6), "eigenvalue"),
    "eigh": ((6, 6, 6), "eigenvalue"),
    "eigvalsh": ((6, 6, 1), "eigenvalue"),
    "eigvals": ((6, 6, 1), "eigenvalue"),
    "det": ((6, 6, 1), "relative"),
    "slogdet": ((6, 6, 1), "absolute"),
    "expm": ((6, 6, 6), "normwise"),
    "svd": ((6, 6, 1), "singular value"),
    "svdvals": ((6, 6, 1), "singular value"),
    "matrix_rank": ((6, 6, 6), "singular value"),
    "pinv": ((6, 6, 6), "normwise"),
    "cond": ((6, 6, 1), "relative"),
    "norm": ((6, 6, 1), "relative"),
}


@pytest.mark.parametrize("name", ozaki.linalg.__all__)
def test_each_function_of_linear_algebra(name, a, caplog):
    function = getattr(ozaki.linalg, name)
    if not inspect.isfunction(function) or name in ozaki.linalg.blas.__all__:  # which are products alone
        return
    two = dict.fromkeys(["solve", "lstsq", "solve_triangular"], (a, a))
    arguments = {**two, "lu_solve": (a, a[0]), "cho_solve": (a, a[0]), "cholesky": (a @ a.T,)}.get(name, (a,))
    if name in ("eig", "eigvals"):
        arguments = (a + a.T,)  # whose eigenvalues are real
    if name == "lu_solve":
        arguments = ozaki.linalg.lu_factor(a), *arguments[1:]
    if name == "cho_solve":
        arguments = ozaki.linalg.cholesky(a @ a.T), *arguments[1:]
    with caplog.at_level(logging.INFO, "ozaki"), ozaki.recording() as run:
        found = function(*arguments)
        found = function(*arguments)
    (entry,) = run.results.entries
    assert (entry.operator, entry.count) == (name, 2)
    assert (entry.shape, entry.measure) == FUNCTIONS[name]
    assert (entry.bound, entry.dtype) == (found.error_bound, "float64")
    assert run.account.entries == []
    # Of others native products of slices may do, and small determinants are found modulo primes.
    by_products = name in ("eig", "eigvals", "svd", "matrix_rank", "cond", "norm")
    assert run.inside > 0 or not by_products
    assert f"2 results of ozaki.linalg, with {run.inside} products inside\n" in str(run)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert caplog.messages[0].startswith(f"{name}: (6 x 6) (")
    assert caplog.messages[0].startswith(f"{name}: (6 x 6) (")
    assert f"{found.iterations} correction" in caplog.messages[0] and " error <= " in caplog.messages[0]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "ozaki"):
        function(*arguments)
    *steps, last = caplog.records
    assert last.levelname == "INFO" and {record.levelname for record in steps} == {"DEBUG"}
    assert all(message.startswith(f"{name}: ") for message in caplog.messages)
    assert any(" up to " in message or "correction 1" in message for message in caplog.messages)


def test_bounds_of_steps_are_rounded_up(caplog):
    bounds = [1.04, 3.000001e-8, 2.5, 9.99e-301, math.inf]
    with caplog.at_level(logging.DEBUG, "ozaki"):
        for bound in bounds:
            step("correction %d: errors up to %s", 1, bound)
    printed = [float(message.rpartition(" ")[2]) for message in caplog.messages]
    assert all(x <= y <= 1.1 * x for x, y in zip(bounds, printed, strict=True))


def test_empty_and_multiprecision_results(a):
    with ozaki.recording() as run:
        ozaki.linalg.solve(a, a[:, :0])
        ozaki.linalg.inv(a[:0, :0])
        ozaki.linalg.qr(a[:, :0])
        ozaki.linalg.solve(a + 1j, a[0], accuracy=100, dtype="mp")
    empty, _, _, wide = run.results.entries
    assert (empty.shape, empty.bound) == ((6, 6, 0), 0.0)
    assert wide.dtype.startswith("complex mp10") and wide.bound < 2.0**-100


def test_products_of_multiprecision_numbers(a):
    x = ozaki.mparray(a)
    with ozaki.recording() as run:
        x @ x
        a @ x
        ozaki.matmul(x + x * 1j, x, accuracy=100)
        ozaki.matmul(a.astype(int), a.astype(int), dtype="int64")
    counts = Counter()  # of each format: `x @ x` and `a @ x` may have plans of their own
    for entry in run.account.entries:
        counts[entry.operator, entry.dtype] += entry.count
    assert counts == {("matmul", "mp53"): 2, ("matmul", "complex mp100"): 1, ("matmul", "int64"): 1}


def test_numpys_functions_inside_emulate(a):
    with ozaki.recording() as run, ozaki.emulate(**FP64) as emulation:
        np.dot(a, a)
    assert emulation.account.products == run.account.products == 1


def test_other_functions_have_entries_of_their_own(rng):
    a, b = rng.standard_normal((7, 9)), rng.standard_normal((9, 5))
    x = ozaki.mparray(a)
    with ozaki.recording() as run:
        ozaki.einsum("ij,jk->ki", a, b, **FP64)
        ozaki.tensordot(a, b, 1, **FP64)
        ozaki.residual(a, b, ozaki.matmul(a, b, **GIVEN))
        ozaki.matrix_power(x[:, :7], 3)
        x @ ozaki.mparray(b)
    counts = {}
    for entry in run.account.entries:
        counts[entry.operator] = counts.get(entry.operator, 0) + entry.count
    assert counts == {"einsum": 1, "tensordot": 1, "matmul": 2, "residual": 1, "matrix_power": 2}


def test_bounds_below_the_range_of_floats(rng):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    with ozaki.recording() as run:
        ozaki.matmul(a, b, accuracy=ozaki.Accuracy("componentwise", 0.5, exponent=-1500), dtype="mp")
    (entry,) = run.account.entries
    assert entry.exponent < -1000 and "e-4" in str(entry)
    assert 0 < run.account.bound < 1e-300


def test_recordings_inside_recordings(rng):
    a, b = rng.standard_normal((7, 9)), rng.standard_normal((9, 5))
    with ozaki.recording() as outer:
        ozaki.matmul(a, b, **GIVEN)
        with ozaki.recording() as inner:
            ozaki.matmul(a, b, **GIVEN)
            with pytest.raises(RuntimeError, match="entered already"), outer:
                pass
        with inner:
            ozaki.matmul(a, b, **GIVEN)
    assert (outer.account.products, inner.account.products) == (3, 2)


def test_a_product_that_fails_is_not_counted(rng):
    a, b = rng.standard_normal((7, 9)), rng.standard_normal((9, 5))
    with ozaki.recording() as run, pytest.raises(ValueError, match="does not fit"):
        ozaki.matmul(a, b[:4], **FP64)
    assert run.account.products == 0


# Contexts ------------------------------------------------------------------------------------------------------------


def test_threads_have_recordings_of_their_own(a):
    found = {}

    def count(name, times):
        with ozaki.recording() as run:
            for _ in range(times):
                ozaki.matmul(a, a, **FP64)
                barrier.wait()
        found[name] = run.account.products

    barrier = threading.Barrier(2)
    with ozaki.recording() as outer:
        threads = [threading.Thread(target=count, args=(name, 3)) for name in "ab"]
        inside = contextvars.copy_context()
        threads.append(threading.Thread(target=inside.run, args=(ozaki.matmul, a, a)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {"a": 3, "b": 3} and outer.account.products == 1


def test_one_recording_in_several_threads_counts_all(a):
    run, ready = ozaki.recording(), threading.Barrier(4)

    def count():
        ready.wait()
        with run:
            for _ in range(25):
                ozaki.matmul(a, a)
                str(run)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.account.products == 100


def test_tasks_have_recordings_of_their_own(a):
    async def task(times, enter):
        await asyncio.sleep(0)
        if not enter:
            ozaki.matmul(a, a)
            return 0
        with ozaki.recording() as run:
            for _ in range(times):
                ozaki.matmul(a, a)
                await asyncio.sleep(0)
        return run.account.products

    async def main():
        with ozaki.recording() as outer:
            inner = await asyncio.gather(
                task(2, True), task(3, True), task(1, False), asyncio.to_thread(ozaki.matmul, a, a)
            )
        return inner[:3], outer.account.products

    assert asyncio.run(main()) == ([2, 3, 0], 7)


def test_blocks_that_end_in_another_order(a):
    first, second = ozaki.recording(), ozaki.recording()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    ozaki.matmul(a, a)
    second.__exit__(None, None, None)
    ozaki.matmul(a, a)
    assert (first.account.products, second.account.products) == (0, 1)


def test_a_block_that_ends_in_another_context(a):
    """It ends for this one, too, which drops it; the recording may be entered again."""
    run = ozaki.recording()
    for _ in range(3):
        with contextlib.closing(within(run)) as generator:
            next(generator)
            ozaki.matmul(a, a)
            contextvars.copy_context().run(generator.close)
        ozaki.matmul(a, a)
        assert RECORDINGS.here() == ()
    assert run.account.products == 3
    seen = weakref.ref(run)
    del run, generator
    assert seen() is None


def within(block):
    with block:
        yield


def test_a_block_that_ended_holds_nowhere(a):
    with ozaki.recording() as run:
        inside = contextvars.copy_context()
    inside.run(ozaki.matmul, a, a)
    assert run.account.products == 0
    run.__exit__(None, None, None)  # does nothing


# Other array libraries -----------------------------------------------------------------------------------------------


def test_functions_of_torch(a):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import ozaki.torch

    x = torch.tensor(a, requires_grad=True)
    with ozaki.recording() as run:
        ozaki.torch.matmul(x, x, **FP64).sum().backward()
        ozaki.torch.addmm(x.detach(), x.detach(), x.detach(), **FP64)
        ozaki.matmul(x.detach(), x.detach(), **FP64)
    assert {entry.operator for entry in run.account.entries} == {"matmul", "addmm"}
    assert run.account.products == 5  # the gradient takes two
    assert all(entry.dtype == "float64" and entry.bound < 1e-14 for entry in run.account.entries)


def test_an_account_of_torch_has_no_bound_of_a_product_alone(a):
    """addmm by the native product rounds A B first: the report's bound is not that of the sum."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import ozaki.torch

    x = torch.tensor(a)
    with ozaki.torch.emulate(report=True, scheme="native") as emulation, ozaki.recording() as run:
        torch.addmm(x, x, x)
        torch.mm(x, x)
    for account in (emulation.account, run.account):
        assert [entry.bound is None for entry in account.entries] == [True, False]


def test_functions_of_jax(a):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import ozaki.jax

    x = jax.numpy.asarray(a, dtype="float32")
    with ozaki.recording() as run:
        ozaki.jax.matmul(x, x, accuracy="fp32", reproducible=True)
        jax.jit(lambda y: ozaki.jax.matmul(y, y, accuracy="fp32", reproducible=True))(x).block_until_ready()
        ozaki.linalg.inv(x)
    assert run.account.entries[0].dtype == "float32" and run.account.products >= 1
    assert run.results.products == 1


# The logger ----------------------------------------------------------------------------------------------------------


def test_the_logger_is_silent_until_somebody_listens():
    code = (
        "import logging, numpy as np, ozaki\n"
        "a = np.eye(3)\n"
        "ozaki.matmul(a, a, accuracy='fp64')\n"
        "logging.getLogger('ozaki').setLevel(logging.DEBUG)\n"
        "ozaki.matmul(a, a, accuracy='fp64')\n"
        "print(logging.getLogger('ozaki').handlers, logging.getLogger().handlers)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "" and done.stdout == "[<NullHandler (NOTSET)>] []\n"


def test_a_line_is_made_only_for_a_handler(a, caplog):
    """Arguments are formatted when a handler prints them, not where a filter drops the record."""
    logger, dropped = logging.getLogger("ozaki"), []

    def drop(record):
        dropped.append(record)
        return False

    with caplog.at_level(logging.INFO, "ozaki"):
        logger.addFilter(drop)
        try:
            ozaki.matmul(a, a, **FP64)
        finally:
            logger.removeFilter(drop)
    (record,) = dropped
    assert not caplog.records and not any(isinstance(each, str) and "residues" in each for each in record.args)
    assert "residues" in record.getMessage()


def test_every_choice_can_be_logged(rng, caplog):
    x, y = rng.standard_normal((2, 5, 5))
    f, g = x.astype("f"), y.astype("f")
    with caplog.at_level(logging.DEBUG, "ozaki"):
        for options in (
            {}, {"scheme": "native"}, {"scheme": "digits"}, {"scheme": "residues", "slices": 9}, {"accuracy": "exact"},
            {"accuracy": ozaki.Accuracy("relative", 1e-9)}, {"accuracy": ozaki.Accuracy("normwise", 1e-9)},
            {"accuracy": 300, "dtype": "mp"}, {"accuracy": "fp64", "engine": "int8-simulated"},
            {"workspace_limit": 10**7},
        ):  # fmt: skip
            for left, right in ((x, y), (x + 1j, y), (x + 1j, y + 1j), (x[:0], y), (x[0], y[0]), (x, x.T)):
                ozaki.matmul(left, right, **options)
                ozaki.gemm(1.0, left, right, 0, None, **options)
        for options in ({"scheme": "halfhalf"}, {"accuracy": "fp32"}, {"dtype": "float64"}):
            ozaki.matmul(f, g, **options)
        ozaki.plan((5, 5), (5, 5), dtype="float64", scheme="residues", slices=14)
    assert all(record.getMessage() for record in caplog.records)
    assert "plan: (5 x 5) (5 x 5), float64: 14 residues, 14 products; row-column error" in caplog.messages[-2]


# Progress ------------------------------------------------------------------------------------------------------------


def test_all_units_of_a_product_are_counted(rng, monkeypatch):
    monkeypatch.setattr("ozaki.records.progress._INTERVAL", 0.0)
    x, y = rng.standard_normal((40, 300)), rng.standard_normal((300, 30))
    f, stack = rng.standard_normal((150, 50)).astype("f"), rng.standard_normal((3, 5, 40))
    mp, limit = {"accuracy": 200, "dtype": "mp"}, {"workspace_limit": 10**6}
    for a, b, options in (
        (x, y, FP64), (x, x.T, FP64), (x + 1j, y, FP64), (x + 1j, y - 1j, FP64), (stack, x, FP64), (stack[0], x, mp),
        (x, y, mp), (x + 1j, x.T + 1j, mp), (x, y, {**FP64, **limit}), (x, x.T, {**FP64, **limit}),
        (x, y, {"scheme": "digits", "slices": 6, "engine": "int8-simulated"}), (f, f.T, {"scheme": "halfhalf"}),
    ):  # fmt: skip
        for calls in (1, 2):
            told = []
            show = partial(lambda told, *call: told.append(call), told)
            if calls == 1:
                ozaki.matmul(a, b, progress=show, **options)
            else:
                ozaki.gemm(1.5, a, b, 0, None, progress=show, **options)
            total, unit = told[-1][1:]
            done = [each[0] for each in told]
            # Rounding numbers of many bits counts as several steps, of which small results take all at once.
            whole = done == sorted(set(done)) if "dtype" in options else done == list(range(1, total + 1))
            assert whole and total > 2, (unit, options, done)
            assert {each[1:] for each in told} == {(total, unit)}


def test_a_relative_accuracy_is_complete_once(rng, monkeypatch):
    monkeypatch.setattr("ozaki.records.progress._INTERVAL", 0.0)
    told = []
    x = rng.standard_normal((9, 9))
    ozaki.matmul(x, x, accuracy=ozaki.Accuracy("relative", 1e-9), progress=lambda *call: told.append(call))
    assert [done == total for done, total, _ in told] == [False] * (len(told) - 1) + [True]


def test_at_most_ten_calls_a_second(rng, monkeypatch):
    now = 100.0
    monkeypatch.setattr("ozaki.records.progress.time.monotonic", lambda: now)
    told = []

    def show(done, total, unit):
        told.append(done)

    x = rng.standard_normal((20, 300))
    ozaki.matmul(x, x.T, progress=show, **FP64)
    assert len(told) == 1


def test_an_interrupted_product_leaves_the_environment_as_it_was(rng):
    def stop(done, total, unit):
        raise KeyboardInterrupt

    x = rng.standard_normal((20, 300))
    before = np.geterr()
    with pytest.raises(KeyboardInterrupt):
        ozaki.matmul(x, x.T, progress=stop, **FP64)
    assert np.geterr() == before
    with ozaki.recording() as run:
        ozaki.matmul(x, x.T, **FP64)
    assert [entry.operator for entry in run.account.entries] == ["matmul"]


def test_columns_stand_below_one_another(a):
    x = ozaki.mparray(a)
    with ozaki.recording() as run:
        ozaki.matmul(np.ones((20, 1000, 1, 6)), a[:, :1], **FP64)
        ozaki.matrix_power(x, 2, accuracy=2000)
    first, second = str(run).splitlines()[1:]
    assert first.index("float64") == second.index("mp2000")
    assert first.index("componentwise") == second.index("componentwise")
