"""Blocks of `emulate` on every device: each for its own task and thread, and what they return and count."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ozaki


def operands(device):
    """Rows and columns whose product is 1; "fp32" gives 0 for it."""
    return device.asarray(np.array([[1e17, 1.0, -1e17]])), device.asarray(np.ones((3, 1)))


def test_tasks_and_threads_have_blocks_of_their_own(device):
    a, b = operands(device)

    def product():
        return float(device.asnumpy(device.xp.matmul(a, b))[0, 0])

    async def task(accuracy):
        with ozaki.emulate(accuracy=accuracy, reproducible=True) as run:
            await asyncio.sleep(0.01)
            return product(), run.account.products

    async def both():
        return await asyncio.gather(task(120), task("fp32"))

    assert asyncio.run(both()) == [(1.0, 1), (0.0, 1)]
    if device.slow:  # an emulated device has one thread
        return
    run = ozaki.emulate(accuracy=120)
    with ozaki.emulate(accuracy="fp32"), ThreadPoolExecutor(2) as pool:
        assert pool.submit(run(product)).result() == 1.0 and product() == 0.0


def test_what_is_returned_is_what_is_counted(device, rng):
    xp, a, b = device.xp, *map(device.asarray, (rng.standard_normal((3, 40)), rng.standard_normal((40, 2))))
    wanted = ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    out = device.full((3, 2), np.nan)
    with ozaki.emulate(accuracy="fp64", reproducible=True, report=True) as run:
        assert xp.matmul(a, b, out=out) is out
        found = [out, xp.dot(a, b), xp.einsum("ij,jk->ik", a, b), xp.tensordot(a, b, 1)]
        found += [] if xp is np else [a @ b]
    assert all((device.asnumpy(c) == device.asnumpy(wanted)).all() for c in found)
    assert run.account.products == len(found) and 0 < run.account.bound < 1e-13 and not run.account.left
    with ozaki.emulate(accuracy="fp64", reproducible=True) as run:
        try:
            xp.matmul(a, b, out=device.full((3, 2), np.nan, "f4"))
        except (TypeError, ValueError):
            assert not run.account.left
        else:
            assert run.account.left == {("matmul", "out of dtype float32"): 1}
    assert run.account.products == 0


def test_decorated_functions(device):
    a, b = operands(device)

    @ozaki.emulate(accuracy=120, reproducible=True)
    def product():
        return device.xp.dot(a, b)

    assert float(device.asnumpy(product())[0, 0]) == 1.0
    with pytest.raises(TypeError, match=r"^function: int; expected a function"):
        ozaki.emulate(accuracy=120)(3)
