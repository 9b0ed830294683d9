"""What the tests of the core share: random numbers whose seed a failure prints."""

import os
import secrets

import numpy as np
import pytest


@pytest.fixture
def rng():
    """Random numbers; OZAKI_SEED=... repeats a run."""
    seed = int(os.environ.get("OZAKI_SEED") or secrets.randbits(32))
    print(f"OZAKI_SEED={seed}")
    return np.random.default_rng(seed)
