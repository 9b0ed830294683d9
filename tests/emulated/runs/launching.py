"""Streams beside the current one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np

from ozaki.backends.cupy.launching import _beside


def second_streams(_rng: np.random.Generator) -> None:
    """Threads that begin at once have one object for the same steps, in which each has streams of its own."""
    init = _beside.Beside.__init__

    def slow(self: Any) -> None:
        time.sleep(0.01)
        init(self)

    with mock.patch.object(_beside.Beside, "__init__", slow), ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: _beside.beside(7, "proof"), range(8)))
    assert all(each is _beside.beside(7, "proof") for each in found)
