"""What tests share: devices to multiply on, and random numbers whose seed a failure prints."""

import os
import random
import secrets
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "emulated"))

import devices  # noqa: E402
import items as emulated_items  # noqa: E402


@pytest.fixture
def seed():
    """OZAKI_SEED=... repeats a run."""
    seed = int(os.environ.get("OZAKI_SEED") or secrets.randbits(32))
    print(f"OZAKI_SEED={seed}")
    return seed


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.fixture
def prng(seed):
    """Python's generator, whose integers have any size."""
    return random.Random(seed)


@pytest.fixture(params=devices.parameters())
def device(request, seed):
    """NumPy, each emulated device and a real one: a `devices.Device`. The test runs once on each."""
    device = devices.device(request.param)
    if request.param in devices.EMULATED:
        sys.modules["streams"].chance.seed(seed)  # the order in which its streams go on
    yield device
    device.synchronize()


def pytest_collection_modifyitems(items):
    """Have tests of an emulated device run by the child process of that device, unless this is it."""
    for item in items:
        name = emulated_items.device_of(item)
        if name in devices.EMULATED and not emulated_items.is_emulated_here(name):
            item.__class__ = emulated_items.EmulatedItem
