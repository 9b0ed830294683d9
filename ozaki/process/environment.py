"""IEEE 754's default floating-point environment, which every proof here assumes, for the length of a call.

A thread has one environment for all of its code: how results are rounded, and whether subnormals count. Another library
may have changed it: one that was built with -ffast-math switches subnormals off when it is loaded, interval arithmetic
rounds upward and downward. So each public function tests whether the environment is the default one; if not, it sets
the default, and restores the environment that it found when it returns. (A repeated call on a GPU does so where it
makes a program or judges facts; else it computes nothing on the host.)
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _float64(bits: int) -> float:
    """A float64 from its bits: arithmetic could not make a subnormal one where subnormals are flushed."""
    (x,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(x)


# Operands in variables, so that the tests below are not folded into constants by a compiler.
_ONE, _HALF, _QUARTER_ULP = 1.0, 0.5, 2.0**-54
_LEAST, _LEAST_NORMAL, _LARGE = _float64(1), _float64(1 << 52), 2.0**1000


def subnormals_count() -> bool:
    """Whether this thread's arithmetic takes subnormal operands as they are, and returns subnormal results."""
    return _LEAST * _LARGE > 0 and _LEAST_NORMAL * _HALF > 0


def rounds_to_nearest() -> bool:
    """Whether this thread rounds to nearest: neither upward, nor downward, nor toward zero."""
    return _ONE + _QUARTER_ULP == _ONE == _ONE - _HALF * _QUARTER_ULP


def is_default() -> bool:
    """Whether this thread's environment is the default one: both of the above."""
    return (
        _LEAST * _LARGE > 0 and _LEAST_NORMAL * _HALF > 0 and _ONE + _QUARTER_ULP == _ONE == _ONE - _HALF * _QUARTER_ULP
    )


def default_environment(function: _Function) -> _Function:
    """Decorate a public function: it runs in the default environment, whatever the caller's is.

    Raises
    ------
    RuntimeError
        From the decorated function, where the environment is another one and cannot be set: on other systems than
        Linux.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_default():
            return function(*args, **kwargs)
        with _set_to_default():
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


class _OfThread(threading.local):
    """Data of one thread: whether the public call that runs in it has set its environment."""

    was_set = False


_of_thread = _OfThread()


def obstacle() -> str | None:
    """Why BLAS's threads may not compute in IEEE 754's default environment; None if there is no sign of that.

    The sign is that this thread's environment had to be set for the present call: a library's threads have that of the
    thread that started them, and no other thread can set it.
    """
    if not _of_thread.was_set:
        return None
    return (
        "a library in this process has changed the floating-point environment (rounding, or subnormals flushed to "
        "zero), and BLAS's threads may have it, too"
    )


@contextmanager
def _set_to_default() -> Iterator[None]:
    """Set this thread's environment to the default one for a `with` block, and restore it afterwards.

    Raises
    ------
    RuntimeError
        Where it cannot be set.
    """
    changed = "flushes subnormals to zero" if rounds_to_nearest() else "does not round to nearest"
    if not sys.platform.startswith("linux"):
        raise RuntimeError(
            f"floating-point environment: this thread {changed}, as a library in this process has set it, and no "
            f"bound would hold; set it back to IEEE 754's default, which ozaki cannot do on {sys.platform}"
        )
    libc = ctypes.PyDLL(None)
    found = ctypes.create_string_buffer(_LARGEST_ENVIRONMENT)
    libc.fegetenv(found)
    libc.fesetenv(ctypes.c_void_p(-1))  # FE_DFL_ENV of glibc and musl
    _of_thread.was_set = True
    try:
        if not (rounds_to_nearest() and subnormals_count()):
            raise RuntimeError(f"floating-point environment: this thread {changed}, and it cannot be set otherwise")
        yield
    finally:
        _of_thread.was_set = False
        libc.fesetenv(found)


_LARGEST_ENVIRONMENT = 256
"""Bytes: more than the C library's fenv_t has on any machine (32 on x86-64, 8 on AArch64)."""
