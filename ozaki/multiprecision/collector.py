"""Python's garbage collector while a million objects are made at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector for a `with` block, if it runs.

    It would search all objects again and again as they become more, which takes longer than to make them, though none
    of them is garbage.
    """
    runs = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if runs:
            gc.enable()
