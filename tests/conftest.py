"""What tests share: devices to multiply on, and random numbers that repeat."""

import os
import platform
import random
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest

HERE = Path(__file__).parent

# What multiplies on this machine is for tests that take `code` alone: others see the same reports everywhere.
os.environ.setdefault("OZAKI_CPU", "float64")
sys.path.insert(0, str(HERE / "emulated"))

import devices  # noqa: E402
import seeds  # noqa: E402
import tiers  # noqa: E402

import items as emulated_items  # noqa: E402
import ozaki  # noqa: E402
from ozaki.backends.numpy.compiled import Compiled, compiled  # noqa: E402

if sys.__stdin__ is None:
    # Standard input is closed. Pytest's stand-in for it asks the real one for its encoding, as IPython does on import.
    sys.__stdin__ = open(os.devnull, encoding="utf-8")  # noqa: SIM115


hypothesis.settings.register_profile("ozaki", derandomize=not seeds.RANDOM)
hypothesis.settings.load_profile("ozaki")


@pytest.fixture
def seed(request):
    """The seed of the test, which is printed; OZAKI_SEED in the environment says another one (tests/seeds.py)."""
    seed = seeds.seed_of(request.node.nodeid)
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
    """A `devices.Device`: the test runs once on NumPy, once on each emulated device and once on a real one."""
    device = devices.device(request.param)
    if request.param in devices.EMULATED:
        sys.modules["streams"].chance.seed(seed)  # which decides in what order streams run their work
    yield device
    device.synchronize()


CODES = {"x86_64": ["portable", "vnni"], "aarch64": ["portable", "neon"]}
"""The compiled libraries for a kind of processor that may run as they are; AVX-VNNI: tests/test_compiled.py."""


@pytest.fixture(params=CODES.get(platform.machine(), ["portable"]))
def code(request, monkeypatch):
    """The compiled library of that name, which products take."""
    monkeypatch.setenv("OZAKI_CPU", request.param)
    ozaki.clear_caches()
    found = compiled()
    if not isinstance(found, Compiled):
        ozaki.clear_caches()
        pytest.skip(found)
    yield found
    monkeypatch.undo()
    ozaki.clear_caches()


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by markers
def pytest_collection_modifyitems(config, items):
    """Divide the tests into tiers, and have those of an emulated device run by the child process of that device.

    Unless this process is that child.
    """
    tiers.divide(config, items)
    for item in items:
        name = emulated_items.device_of(item)
        if name in devices.EMULATED and not emulated_items.is_emulated_here(name):
            item.__class__ = emulated_items.EmulatedItem
