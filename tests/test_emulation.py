"""Blocks of `emulate` in tasks and threads, as decorators, and with errors, and what their accounts say."""

import asyncio
import contextlib
import contextvars
import gc
import inspect
import pickle
import sys
import threading
import tracemalloc
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from math import inf

import numpy as np
import pytest

import ozaki
from ozaki import emulate
from ozaki.account import Account
from ozaki.functions import emulation
from ozaki.functions.emulation import _BLOCKS

NAMES = ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")
ORIGINALS = [getattr(np, name) for name in NAMES]

PRODUCTS = np.array([[1e17, 1.0, -1e17]]), np.ones((3, 1))
"""Operands whose product is 1; in float64 and by "fp32" it is 0."""


def tail():
    return np.dot(*PRODUCTS).item()


@pytest.fixture(autouse=True)
def restored():
    yield
    assert [getattr(np, name) for name in NAMES] == ORIGINALS


# Whose block holds where ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["first", "last"])
def test_tasks_that_overlap_have_blocks_of_their_own(ends):
    found = {}

    async def task(name, turns, own, **options):
        with emulate(**options) as run:
            await turns[0].wait()
            found[name] = tail(), run.account.products
            own.set()
            await turns[1].wait()
            found[name + " later"] = tail(), run.account.products

    async def other(first):
        await first.wait()
        found["other"] = tail()

    async def main():
        start, second, third, end = (asyncio.Event() for _ in range(4))
        start.set()
        after = (end, start) if ends == "first" else (start, end)
        await asyncio.gather(
            task("precise", (start, after[0]), second, accuracy=120),
            task("rough", (second, after[1]), third, accuracy="fp32"),
            other(third),
            release(third, end),
        )

    async def release(third, end):
        await third.wait()
        await asyncio.sleep(0.01)
        end.set()

    asyncio.run(main())
    assert found == {
        "precise": (1.0, 1), "precise later": (1.0, 2), "rough": (0.0, 1), "rough later": (0.0, 2), "other": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("ends", ["first", "last"])
def test_threads_that_overlap_have_blocks_of_their_own(ends):
    found, barrier = {}, threading.Barrier(2, timeout=20)

    def thread(name, ends_first, **options):
        with contextlib.ExitStack() as stack:
            run = stack.enter_context(emulate(**options))
            barrier.wait()
            found[name] = tail(), run.account.products, run.account.outside
            barrier.wait()
            if ends_first:
                stack.close()
                found[name + " later"] = tail()
            barrier.wait()
            if not ends_first:
                found[name + " later"] = tail()

    with ThreadPoolExecutor(2) as pool:
        tasks = [
            pool.submit(thread, "precise", ends == "first", accuracy=120),
            pool.submit(thread, "rough", ends == "last", accuracy="fp32"),
        ]
        for each in tasks:
            each.result()
    assert found["precise"] == (1.0, 1, 0) and found["rough"] == (0.0, 1, 0)
    assert found["precise later"] == (0.0 if ends == "first" else 1.0)


def test_one_emulation_in_many_threads():
    run = emulate(accuracy=120)

    def work(_):
        with run:
            return tail()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(100))) == {1.0}
    assert run.account.products == 100


def test_threads_that_start_inside_are_outside_and_counted():
    with emulate(accuracy=120) as run, ThreadPoolExecutor(1) as pool:
        assert pool.submit(tail).result() == 0.0
        np.dot(np.ones(2, int), np.ones(2, int))
        assert (run.account.products, run.account.outside) == (0, 1)
        assert "\n1 call of other threads or tasks ran natively" in str(run)
        assert pool.submit(contextvars.copy_context().run, tail).result() == 1.0
        assert pool.submit(run(tail)).result() == 1.0
        assert asyncio.run(asyncio.to_thread(tail)) == 1.0
        assert (run.account.products, run.account.outside) == (3, 1)
    assert "other threads" not in str(emulate())


def test_errors_of_other_threads_are_numpys(rng):
    a, out = rng.standard_normal((2, 3)), np.empty((2, 2))
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ValueError, match="matmul") as wanted:
            np.matmul(a, a, out=out)
        with emulate(accuracy=120) as run, pytest.raises(ValueError, match="matmul") as found:
            pool.submit(np.matmul, a, a, out=out).result()
    assert str(wanted.value) == str(found.value) and run.account.outside == 0


def test_tasks_created_inside_are_in_the_block_until_it_ends():
    async def main():
        go = asyncio.Event()

        async def child():
            first = tail()
            await go.wait()
            return first, tail()

        with emulate(accuracy=120) as run:
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
        go.set()
        return await task, run.account.products

    assert asyncio.run(main()) == ((1.0, 0.0), 1)


def test_a_generator_that_is_closed_in_another_thread_ends_its_block():
    def generator():
        with run:
            yield tail()
            yield tail()

    run = emulate(accuracy=120)
    waiting = generator()
    assert next(waiting) == 1.0 and tail() == 1.0  # as with numpy.errstate, it holds for the caller
    with run:
        thread = threading.Thread(target=waiting.close)
        thread.start()
        thread.join()
        assert tail() == 1.0
    assert tail() == 0.0


def test_blocks_that_end_in_another_context_are_dropped():
    def inside():
        with emulate("fp64"):
            yield

    for _ in range(5):
        generator = inside()
        next(generator)
        contextvars.copy_context().run(generator.close)
        with emulate("fp64"):
            assert len(_BLOCKS._of_context.get()) == 1
    next(generator := inside())
    contextvars.copy_context().run(generator.close)
    np.dot(*PRODUCTS)
    assert _BLOCKS.here() == () and not emulation._open


def test_an_interrupt_leaves_no_function_replaced():
    """At any line of what replaces and restores functions; another block then finds and leaves them as they were."""

    def lines_until(at):
        lines = 0

        def trace(frame, event, _):
            nonlocal lines
            if not frame.f_code.co_filename.endswith("functions/replacing.py"):
                return None
            lines += event == "line"
            if event == "line" and lines == at:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with contextlib.suppress(KeyboardInterrupt), emulate("fp64"):
                pass
        finally:
            sys.settrace(before)
        return lines

    most = lines_until(0)
    assert most > 50
    for at in range(1, most + 1):
        lines_until(at)
        assert not emulation._open and [getattr(np, name) for name in NAMES] == ORIGINALS, at


def test_errors_end_blocks():
    run = emulate(accuracy=120)
    with pytest.raises(ValueError, match=r"^b: shape"), run, run:
        np.dot(np.ones((2, 3)), np.ones((2, 3)))
    assert run.account.products == 0
    assert np.dot is ORIGINALS[1] and tail() == 0.0


def test_functions_that_a_program_replaces_itself(monkeypatch):
    def own(*operands):
        return "own"

    with emulate(accuracy=120):
        monkeypatch.setattr(np, "dot", own)
        assert np.dot(1, 2) == "own"
    assert np.dot is own
    monkeypatch.undo()  # puts back what stood for the function in the block
    assert tail() == 0.0 and pickle.loads(pickle.dumps(np.dot)) is np.dot
    with emulate(accuracy=120) as run:
        assert tail() == 1.0 and run.account.products == 1
    assert np.dot is ORIGINALS[1]


# Decorators ----------------------------------------------------------------------------------------------------------


def test_functions():
    run = emulate(accuracy=120)

    @run
    def function(depth):
        """Text."""
        return [tail(), *(function(depth - 1) if depth else [])]

    class Class:
        @run
        def method(self):
            return tail()

        @staticmethod
        @run
        def static():
            return tail()

    assert function(2) == [1.0, 1.0, 1.0] and Class().method() == 1.0 == Class.static() and tail() == 0.0
    assert (function.__name__, function.__doc__, run.account.products) == ("function", "Text.", 5)


def test_asynchronous_functions():
    @emulate(accuracy=120)
    async def precise():
        await asyncio.sleep(0.01)
        return tail(), await asyncio.create_task(plain())

    async def plain():
        await asyncio.sleep(0)
        return tail()

    async def main():
        return await asyncio.gather(precise(), plain(), precise())

    assert inspect.iscoroutinefunction(precise)
    assert asyncio.run(main()) == [(1.0, 1.0), 0.0, (1.0, 1.0)]


def test_generators():
    closed = []

    @emulate(accuracy=120)
    def generator():
        sent = yield tail()
        try:
            yield sent, tail()
        except KeyError:
            yield "caught", tail()
        try:
            yield
        finally:
            closed.append(tail())
        return "end", tail()

    def around():
        found.append((yield from generator()))

    steps, found = generator(), []
    assert inspect.isgeneratorfunction(generator)
    assert next(steps) == 1.0 and tail() == 0.0
    assert steps.send("sent") == ("sent", 1.0) and steps.throw(KeyError()) == ("caught", 1.0) and tail() == 0.0
    next(steps)
    steps.close()
    assert closed == [1.0]
    list(around())
    assert found == [("end", 1.0)]
    left = generator()
    next(left)
    thread = threading.Thread(target=left.close)
    thread.start()
    thread.join()


def test_asynchronous_generators():
    closed = []

    @emulate(accuracy=120)
    async def generator():
        await asyncio.sleep(0)
        sent = yield tail()
        try:
            yield sent, tail()
        except KeyError:
            yield "caught", tail()
        try:
            yield
        finally:
            await asyncio.sleep(0)
            closed.append(tail())

    async def main():
        steps = generator()
        assert await anext(steps) == 1.0 and tail() == 0.0
        assert await steps.asend("sent") == ("sent", 1.0)
        assert await steps.athrow(KeyError()) == ("caught", 1.0) and tail() == 0.0
        await anext(steps)
        await steps.aclose()
        assert closed == [1.0] and len([each async for each in generator()]) == 3

    assert inspect.isasyncgenfunction(generator)
    asyncio.run(main())


def test_decorated_generators_hold_nothing_while_they_wait():
    @emulate("fp64")
    def products():
        while True:
            with contextlib.suppress(ThrownError):
                yield np.ones(3)

    class ThrownError(Exception):
        pass

    gc.disable()
    try:
        generator = products()
        found = weakref.ref(next(generator))
        assert found() is None
        seen = weakref.ref(error := ThrownError())
        generator.throw(error)
        del error
        assert seen() is None
        operands = np.ones((3, 3)), np.ones((3, 3)), np.ones((3, 2))
        seen = [weakref.ref(x) for x in operands]
        with emulate("fp64"):
            np.linalg.multi_dot(operands)
        del operands
        assert [each() for each in seen] == [None] * 3
    finally:
        gc.enable()


def test_functions_whose_results_run_later():
    run = emulate(accuracy=120)

    class Callable:
        async def __call__(self):
            return tail()

    assert list(run(lambda: (tail() for _ in range(2)))()) == [1.0, 1.0]
    assert asyncio.run(run(Callable())()) == 1.0


@pytest.mark.parametrize(
    ("what", "message"),
    [(int, "the class int; decorate its methods"), (staticmethod(tail), "a staticmethod; decorate the function first"),
     (classmethod(tail), "a classmethod; decorate"), (property(tail), "a property; decorate"),
     (3, "int; expected a function")],
    ids=["class", "staticmethod", "classmethod", "property", "number"],
)  # fmt: skip
def test_what_is_no_function(what, message):
    with pytest.raises(TypeError, match=f"^function: {message}"):
        emulate(accuracy=120)(what)


# Accounts ------------------------------------------------------------------------------------------------------------


def test_accounts_are_read_while_threads_count():
    account, ended = Account(), threading.Event()
    operands = [(np.ones((1, n)), np.ones((n, 1))) for n in range(1, 3000)]

    def work():
        for a, b in operands:
            account.enter("dot", a, b, np.ones((1, 1)), None)
            account.leave("dot", str(a.shape))
        ended.set()

    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(work) for _ in range(2)]
        counts = []
        while not ended.is_set():
            text = str(account)
            assert text and account.left is not None and account.bound is None and account.entries is not None
            counts.append(account.products)
        for task in tasks:
            task.result()
    assert all(x <= y for x, y in pairwise(counts))
    assert account.products == 2 * len(operands) == sum(account.left.values())


OUTS = {
    "another dtype": ((1, 1), "c8", "out of dtype complex64"),
    "a wider dtype": ((1, 1), "f8", "out of dtype float64"),
    "another shape": ((3, 1, 1), "f4", r"out of shape \(3, 1, 1\)"),
    "the result's": ((1, 1), "f4", ""),
}


@pytest.mark.parametrize("name", OUTS)
@pytest.mark.parametrize("function", ["matmul", "dot", "einsum", "multi_dot"])
def test_what_is_entered_is_what_is_returned(rng, name, function):
    shape, dtype, reason = OUTS[name]
    a, b = rng.random((1, 20000), "f4"), rng.random((20000, 1), "f4")

    def call(out=None):
        if function == "einsum":
            return np.einsum("ij,jk->ik", a, b, out=out)
        return np.linalg.multi_dot([a, b], out=out) if function == "multi_dot" else getattr(np, function)(a, b, out=out)

    try:
        wanted = call(np.empty(shape, dtype))
    except (ValueError, TypeError) as error:
        wanted = type(error)
    out = np.full(shape, np.nan, dtype)
    with emulate(accuracy="fp64", report=True) as run:
        if isinstance(wanted, type):
            with pytest.raises(wanted):
                call(out)
            assert not run.account.products and not run.account.left
            return
        assert call(out) is out
    if reason:
        assert (out == wanted).all() and run.account.products == 0 and run.account.bound is None
        assert np.array([*run.account.left])[0, 1].replace("(", r"\(").replace(")", r"\)") == reason
        return
    exact = float(np.dot(a[0].astype("f8"), b[:, 0].astype("f8")))
    assert abs(out.item() / exact - 1) <= run.account.bound + 1e-12 and run.account.products == 1


def test_a_read_only_out_is_refused_before_the_product(rng):
    a, out = rng.standard_normal((3, 3)), np.empty((3, 3))
    out.flags.writeable = False
    with emulate(accuracy="fp64") as run:
        for function in (np.matmul, np.dot):
            with pytest.raises(ValueError, match=r"read-only|not acceptable"):
                function(a, a, out=out)
    assert not run.account.products and not run.account.left


def test_what_cannot_be_seen_is_said(rng):
    a = rng.standard_normal((3, 3))
    with emulate(accuracy="fp64") as run:
        a @ a
        np.einsum("i,j->ij", a[0], a[1])
    assert str(run).startswith("0 products ran through ozaki\n") and run.account.left == {
        ("einsum", "products without sums"): 1
    }
    assert str(run).splitlines()[-1].startswith("not seen: @ and .dot of NumPy arrays, ")


def test_what_stands_beside_a_multiprecision_array():
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    x = ozaki.mparray([[1, 2]], bits=100)
    with emulate(accuracy=120) as run:
        for other in ([[1], [2]], [1, 2], mpmath.matrix([[1], [2]]), np.array([1, 2])):
            assert np.all(x @ other == 5)
        assert np.all([[1], [2]] @ x == [[1, 2], [2, 4]])
    assert run.account.products == 5 and [entry.shape for entry in run.account.entries][-1] == (2, 1, 2)


def test_bounds_below_the_range_of_a_float():
    x = ozaki.mparray([["1/3"]], bits=2000)
    with emulate(accuracy=2000, report=True) as run:
        np.dot(x, x)
    (entry,) = run.account.entries
    assert entry.exponent < -1000 and entry.bound > 0 and 0 < run.account.bound < 1e-320 and "e-60" in str(entry)


# Floating-point errors -----------------------------------------------------------------------------------------------

ERRORS = {
    "inf - inf": ([[1.0, 1.0]], [[-inf], [inf]], "invalid"),
    "inf * 0": ([[inf, 1.0]], [[0.0], [1.0]], "invalid"),
    "overflow": ([[1e300, 1.0]], [[1e300], [1.0]], "over"),
    "underflow": ([[1e-300, 0.0]], [[1e-300], [0.0]], "under"),
    "a subnormal product that is exact": ([[2.0**-1060, 0.0]], [[0.5], [0.0]], None),
    "nan": ([[np.nan, inf]], [[1.0], [1.0]], None),
    "inf": ([[inf, 1.0]], [[2.0], [1.0]], None),
    "nothing": ([[1.0, -1.0]], [[1.0], [1.0]], None),
}

FUNCTIONS = {
    "matmul": lambda a, b: np.matmul(a, b),
    "matmul of stacks": lambda a, b: np.matmul(np.stack([a, a]), b),
    "matmul of vectors": lambda a, b: np.matmul(a[0], b[:, 0]),
    "matmul of a vector": lambda a, b: np.matmul(a[0], b),
    "dot": lambda a, b: np.dot(a, b),
    "inner": lambda a, b: np.inner(a, b.T),
    "tensordot": lambda a, b: np.tensordot(a, b, 1),
    "multi_dot": lambda a, b: np.linalg.multi_dot([a, b]),
    "vdot": lambda a, b: np.vdot(a, b.T),
    "einsum": lambda a, b: np.einsum("ij,jk->ik", a, b),
    "dot into": lambda a, b, out=None: np.dot(a, b, out),
    "out": lambda a, b: np.dot(a, b, out=np.empty((1, 1), np.result_type(a, b))),
}


def outcome(function, a, b, **how):
    try:
        with np.errstate(**how), warnings.catch_warnings():
            warnings.simplefilter("error")
            function(a, b)
    except (FloatingPointError, RuntimeWarning) as error:
        return type(error), str(error)
    return None


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_those_of_numpy(name, case):
    a, b, kind = ERRORS[case]
    a, b, function = np.array(a), np.array(b), FUNCTIONS[name]
    for how in ({"all": "raise"}, {"all": "warn"}, {"all": "ignore"}, {"all": "raise", kind or "over": "ignore"}, {}):
        wanted = outcome(function, a, b, **how) if kind else None  # BLAS signals errors that there are none
        with emulate(accuracy="fp64") as run:
            assert outcome(function, a, b, **how) == wanted, how
        assert run.account.products == 1


def test_errors_of_complex_products():
    for a, kind in (([[1e300 + 0j]], "over"), ([[1e-300 + 1j]], "under"), ([[complex(inf, 0)]], "invalid")):
        b = np.array([[1e300 + 0j]]) if kind != "under" else np.array([[1e-300 + 1j]]) * 1e-20
        with emulate(accuracy="fp64"):
            with pytest.raises(FloatingPointError, match="encountered in matmul"), np.errstate(**{kind: "raise"}):
                np.matmul(np.array(a), b)
            with np.errstate(all="raise"):
                assert np.matmul(np.array([[1 + 1j]]), np.array([[1 - 1j]])).item() == 2


def test_nothing_overflows_on_the_way_and_zeros_are_exact():
    a, b = np.array([[1e200, 1e200, 0.0], [0.0, 0.0, 0.0]]), np.array([[1e200], [-1e200], [1e-320]])
    with emulate(accuracy="fp64"), np.errstate(all="raise"):
        assert np.dot(a, b).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("kind", ["over", "invalid"])
def test_native_products_overflow_on_the_way(kind):
    a, b = np.array([[1e300, 1e300]]), np.array([[1e300], [-1e300]])
    with emulate(scheme="native"):
        found = outcome(np.matmul, a, b, **{kind: "raise"}, **{"over" if kind == "invalid" else "invalid": "ignore"})
    with np.errstate(all="ignore"):
        native = np.matmul(a, b)[0, 0]  # Inf or NaN, as BLAS adds
    assert found == ((FloatingPointError, f"{'overflow' if kind == 'over' else 'invalid value'} encountered in matmul")
                     if kind == "over" or np.isnan(native) else None)  # fmt: skip


@pytest.mark.parametrize("kind", ["out", "inf", "under"])
def test_a_limit_of_workspace_holds_beside_the_product(rng, kind):
    """Neither a result apart from `out` nor masks of the entries are held, which take more than the limit."""
    limit, function = 2_500_000, FUNCTIONS["dot"]
    a, b, out = rng.standard_normal((1000, 20)), rng.standard_normal((20, 1000)), np.empty((1000, 1000))
    if kind == "inf":
        a[3, 3] = np.inf
    if kind == "out":
        function = partial(FUNCTIONS["dot into"], out=out)
    with emulate(accuracy="fp64", workspace_limit=limit) as run, np.errstate(under="warn"):
        function(a, b)
        tracemalloc.start()
        found = function(a, b)
        held = tracemalloc.get_traced_memory()[1] - (found is not out) * found.nbytes
        tracemalloc.stop()
    assert held < limit and run.account.products == 2
    assert np.isfinite(found).all() == (kind != "inf")


def test_errors_are_found_wherever_they_are(rng):
    """Of matrices that are looked at some rows at a time, and of stacks that broadcast."""
    a, b = rng.standard_normal((2, 1, 300, 3)), rng.standard_normal((3, 3, 200))
    for place in (0, 150, 299):
        for kind, at_a, at_b in (("over", 1e200, 1e200), ("under", 1e-300, 1e-300), ("invalid", np.inf, 0.0)):
            x, y = a.copy(), b.copy()
            x[1, 0, place], y[2, :, 7] = at_a, at_b
            for ignored in (False, True):
                how = {"all": "ignore"} | ({} if ignored else {kind: "raise"})
                with emulate(accuracy="fp64"):
                    found = outcome(FUNCTIONS["matmul"], x, y, **how)
                assert (found is None) == ignored, (place, kind)


def test_out_that_an_operand_lies_in(rng):
    whole = rng.standard_normal((4, 4))
    for into in (lambda x: x[:3], lambda x: x[1:], lambda x: x[:3, 1:]):
        x, y = whole.copy(), rng.standard_normal((4, 4))
        a, out = x[:3], into(x)
        y = y[:, : out.shape[1]]
        wanted = a.copy() @ y
        with emulate(accuracy="fp64") as run, np.errstate(all="raise"):
            assert np.matmul(a, y, out=out) is out
        assert np.allclose(out, wanted) and run.account.products == 1


def test_handlers_of_errors():
    a, b, calls = np.array([[inf, 1.0]]), np.zeros((2, 1)), []

    class Log:
        def write(self, text):
            calls.append(text)

    for how, handler in (("call", lambda *args: calls.append(args)), ("log", Log())):
        with np.errstate(call=handler, all=how):
            np.dot(a, b)
            with emulate(accuracy="fp64"):
                np.dot(a, b)
        assert len(calls) == 2 and calls[0] == calls[1]
        calls.clear()


def test_printed_errors(capfd):
    with np.errstate(all="print"), emulate(accuracy="fp64"):
        np.dot(np.array([[inf, 1.0]]), np.zeros((2, 1)))
    assert capfd.readouterr().err == "Warning: invalid value encountered in dot\n"


def test_warnings_point_at_the_caller():
    a = np.array([[1.0, 1.0]])
    with emulate(accuracy="fp64"), pytest.warns(RuntimeWarning, match="^invalid value encountered in dot$") as seen:
        np.dot(a, np.array([[inf], [-inf]]))
    assert [each.filename for each in seen] == [__file__]
