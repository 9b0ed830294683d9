"""How many threads this library's own code for the processor takes: as the caller says, else the environment."""

from __future__ import annotations

import os
from operator import index

from ozaki.caches import cached
from ozaki.process import cpus

_chosen: int | None = None
"""What `set_num_threads` was called with last: one number for all threads of Python."""


def set_num_threads(n: int | None) -> None:
    """Set how many threads products on a CPU take, in all of this process.

    Parameters
    ----------
    n
        At least 1. More than the CPUs that the process may use, by its affinity and by the quota of its container,
        count as so many. None takes back what was set: then the variables `OZAKI_NUM_THREADS` and `OMP_NUM_THREADS` of
        the environment hold, the first one that is there, and without both it is one thread for each such CPU.

    Raises
    ------
    TypeError, ValueError
        If n is no whole number, or below 1.

    Notes
    -----
    No bits depend on it. BLAS keeps a number of threads of its own, which it may not exceed within products by slices;
    native products take all of them.

    Examples
    --------
    >>> import ozaki
    >>> ozaki.set_num_threads(1)
    >>> ozaki.get_num_threads()
    1
    >>> ozaki.set_num_threads(None)
    """
    global _chosen
    if n is not None:
        try:
            n = index(n)
        except TypeError:
            raise TypeError(f"n: {n!r}; expected a whole number of threads, at least 1, or None") from None
        if n < 1:
            raise ValueError(f"n: {n}; expected a whole number of threads, at least 1, or None")
    _chosen = n


def get_num_threads() -> int:
    """Return how many threads products on a CPU take: what `set_num_threads` says, and at most the CPUs there are.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If `OZAKI_NUM_THREADS` or `OMP_NUM_THREADS` of the environment decides, and is no number of threads.

    Examples
    --------
    >>> import ozaki
    >>> ozaki.get_num_threads() >= 1
    True
    """
    return threads()


def threads() -> int:
    """Threads of this library's own code: at least 1, at most the CPUs that the process may use."""
    asked = _asked()
    return _at_most_usable(_number("OMP_NUM_THREADS") if asked is None else asked)


def threads_of_blas() -> int:
    """The most threads that BLAS may take within a product: so many were asked for of this library, or CPUs there are.

    `OMP_NUM_THREADS` is not asked: libraries of BLAS read that themselves, beside variables of their own.
    """
    return _at_most_usable(_asked())


def _asked() -> int | None:
    """The number of threads that was asked for of this library by name; None if nobody did."""
    return _number("OZAKI_NUM_THREADS") if _chosen is None else _chosen


def _at_most_usable(n: int | None) -> int:
    # The affinity may change at any time, and takes less than a microsecond to ask; the quota is read once.
    usable = cpus.usable()
    return usable if n is None else min(n, usable)


@cached(2)
def _number(variable: str) -> int | None:
    """The number in a variable of the environment, as it was when this was first asked; None if it is not set.

    `OMP_NUM_THREADS` may be a list, whose first number is of threads that are not within others.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    first = text.split(",")[0].strip() if variable == "OMP_NUM_THREADS" else text
    if not (first.isascii() and first.isdigit() and int(first) >= 1):
        raise ValueError(f"{variable}: {text!r} in the environment; expected a whole number of threads, at least 1")
    return int(first)
