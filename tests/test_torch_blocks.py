"""`ozaki.torch.emulate` in tasks, threads and functions: each block for its own code, and nothing left behind."""

import asyncio
import contextlib
import contextvars
import threading

import pytest

import ozaki

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as stack  # noqa: E402
from torch.utils._python_dispatch import is_in_torch_dispatch_mode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import ozaki.torch  # noqa: E402
from ozaki.torch import emulate  # noqa: E402
from ozaki.torch.dispatch import _STARTED, ENTERED  # noqa: E402

_X = (2**51 // 3) / 2**53
A = torch.tensor([[3.0, 2.0**-60, -1.0]], dtype=torch.float64)
B = torch.tensor([[_X], [1.0], [3 * _X]], dtype=torch.float64)
EXACT, NATIVE = 2.0**-60, 0.0  # the product, and what PyTorch makes of it
WRONG = {"scheme": "residues", "slices": 4}
"""Too few slices: the product is neither."""


def value():
    return (A @ B).item()


def gradient():
    """Half of an entry of the gradient of the product's square: the product times 1."""
    a = A.clone().requires_grad_()
    ((a @ B).square()).sum().backward()
    return (a.grad[0, 1] / 2).item()


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    assert value() == NATIVE and rough() not in (NATIVE, EXACT)
    yield
    assert not stack() and not is_in_torch_dispatch_mode() and value() == NATIVE


def rough():
    return ozaki.matmul(A, B, **WRONG).item()


def test_tasks():
    """Three blocks and a task without any, which overlap in time and do not end in the order in which they began."""
    found, accounts = {}, {}

    async def block(name, start, stay, **options):
        await turn(start)
        with emulate(**options) as run:
            await turn(stay)
            found[name] = value(), gradient()
        accounts[name] = run.account.products

    async def turn(count):
        for _ in range(count):
            await asyncio.sleep(0)

    async def outside():
        for _ in range(12):
            await turn(1)
            assert value() == NATIVE

    async def all_of_them():
        await asyncio.gather(
            block("first", 0, 6, accuracy=120), block("second", 2, 1, **WRONG), block("third", 1, 9, accuracy=130),
            outside(),
        )  # fmt: skip

    asyncio.run(all_of_them())
    assert found["first"] == found["third"] == (EXACT, EXACT) and found["second"][0] == rough()
    assert accounts == {"first": 3, "second": 3, "third": 3}


def test_a_task_is_in_the_blocks_of_the_code_that_made_it():
    async def child():
        with emulate(**WRONG):
            await asyncio.sleep(0)
            return value()

    async def parent():
        with emulate(accuracy=120) as run:
            tasks = [asyncio.create_task(child()), asyncio.create_task(asyncio.to_thread(value))]
            plain = asyncio.create_task(asyncio.sleep(0, value()))
            await asyncio.sleep(0)
            assert value() == EXACT  # the child is inside its own block now
            inner, elsewhere, _ = await asyncio.gather(*tasks, plain)
        assert (inner, elsewhere) == (rough(), NATIVE)  # a block holds for the thread that enters it
        return run.account.products

    assert asyncio.run(parent()) == 2


def test_threads():
    """Two blocks that overlap in time; afterwards `torch.compile` compiles."""
    found, inside, ended = {}, threading.Event(), threading.Event()

    def first():
        with emulate(accuracy=120) as run:
            inside.wait(10)
            found["first"] = value(), gradient(), run.account.products
        ended.set()

    def second():
        with emulate(**WRONG) as run:
            inside.set()
            ended.wait(10)
            assert is_in_torch_dispatch_mode()
            found["second"] = value(), run.account.products

    threads = [threading.Thread(target=f) for f in (first, second)]
    for thread in threads:
        thread.start()
        if thread is threads[0]:
            while not is_in_torch_dispatch_mode():
                pass
    assert value() == NATIVE
    for thread in threads:
        thread.join()
    assert found == {"first": (EXACT, EXACT, 3), "second": (rough(), 1)}


def test_gradients_in_threads_of_autograd():
    """Nested so deep that PyTorch goes on in other threads, where no context says which block the code is in."""
    threads = set()

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            threads.add(threading.get_ident())
            return grad * value()

    def nested(x, depth):
        return Noted.apply(x) if depth == 0 else checkpoint(nested, x, depth - 1, use_reentrant=True)

    async def other():
        with emulate(**WRONG) as run:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return run.account.products

    async def backward(run):
        x = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
        with run:
            await asyncio.sleep(0)
            nested(x, 62).backward()
        return x.grad.item()

    async def both(run):
        return await asyncio.gather(backward(run), other())

    assert asyncio.run(both(emulate(accuracy=120))) == [EXACT, 0]
    assert asyncio.run(both(contextlib.nullcontext())) == [NATIVE, 0]
    assert threading.get_ident() not in threads


def test_functions():
    run = emulate(accuracy=120)

    @run
    def power(count):
        """Of a product."""
        return value() if count == 1 else value() * power(count - 1)

    @emulate(accuracy=120)
    async def awaited():
        await asyncio.sleep(0)
        return value()

    async def beside():
        task = asyncio.create_task(awaited())
        await asyncio.sleep(0)
        return value(), await task

    assert power(3) == EXACT**3 and run.account.products == 3
    assert (power.__name__, power.__doc__) == ("power", "Of a product.")
    assert asyncio.run(beside()) == (NATIVE, EXACT)
    for generator in (_generator, _asynchronous):
        with pytest.raises(TypeError, match=r"_\w+: a generator; expected a function"):
            run(generator)

    @run
    def failing():
        raise KeyError

    with pytest.raises(KeyError):
        failing()


def _generator():
    yield value()


async def _asynchronous():
    yield value()


def test_the_same_emulation_several_times():
    run = emulate(accuracy=120)
    with run:
        with run, pytest.raises(KeyError), run:
            raise KeyError
        assert value() == EXACT

    async def task():
        with run:
            await asyncio.sleep(0)
            return value()

    async def tasks():
        return await asyncio.gather(*(task() for _ in range(3)))

    assert asyncio.run(tasks()) == [EXACT] * 3 and run.account.products == 4


def test_blocks_that_do_not_end_in_order():
    first, second = emulate(accuracy=120), emulate(**WRONG)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert value() == rough()
    second.__exit__(None, None, None)
    assert value() == NATIVE and (first.account.products, second.account.products) == (0, 1)

    def inside():
        with emulate(accuracy=120):
            yield

    one, other = inside(), inside()
    next(one), next(other), next(one, None)
    assert value() == EXACT
    other.close()


def test_a_block_ends_in_its_thread():
    run, errors = emulate(accuracy=120), []

    def end():
        try:
            run.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(str(error))

    with run:
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert value() == EXACT
    assert errors == ["ozaki.torch.emulate: a block ends in a thread that did not enter it"]


def test_a_block_of_a_thread_that_has_ended():
    """It is forgotten, and `torch.compile` compiles again, once another block has ended."""
    run = emulate(accuracy=120)
    thread = threading.Thread(target=run.__enter__)
    thread.start()
    thread.join()
    assert is_in_torch_dispatch_mode()
    with emulate(accuracy=120):
        assert value() == EXACT
        assert len(_STARTED) == 1
    assert not _STARTED and not is_in_torch_dispatch_mode()


def test_a_block_that_ends_in_another_context_is_dropped():
    run = emulate(accuracy=120)
    run.__enter__()
    contextvars.copy_context().run(run.__exit__, None, None, None)
    assert value() == NATIVE
    with emulate(accuracy=120):
        assert len(ENTERED._of_context.get()) == 1 and value() == EXACT
