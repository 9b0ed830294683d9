"""Where the random numbers of tests start."""

import os
import secrets
import zlib

RANDOM = os.environ.get("OZAKI_SEED") == "random"
"""Whether each run draws other numbers."""


def seed_of(test: str) -> int:
    """The seed of a test: one that belongs to its name, so that a change is judged by the same numbers everywhere.

    With OZAKI_SEED=random in the environment it is a new one in each run, and with OZAKI_SEED=N it is N, which repeats
    a run.
    """
    given = os.environ.get("OZAKI_SEED")
    if given == "random":
        return secrets.randbits(32)
    return int(given) if given else zlib.crc32(test.encode())
