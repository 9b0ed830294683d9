"""What the tests of the core share: random numbers whose seed a failure prints."""

import os
import random
import secrets

import numpy as np
import pytest


def printed_seed():
    """OZAKI_SEED=... repeats a run."""
    seed = int(os.environ.get("OZAKI_SEED") or secrets.randbits(32))
    print(f"OZAKI_SEED={seed}")
    return seed


@pytest.fixture
def rng():
    return np.random.default_rng(printed_seed())


@pytest.fixture
def prng():
    """Python's generator, whose integers have any size."""
    return random.Random(printed_seed())
