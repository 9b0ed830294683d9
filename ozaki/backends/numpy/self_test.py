"""Whether a compiled library computes what it should, on this processor, before anything is computed by it."""

from __future__ import annotations

from ctypes import CDLL

INTERFACE = 1
"""The version of the functions of `kernels/cpu/library.cpp`; it goes up with each change of one."""


def self_test(library: CDLL) -> str | None:
    """Why a library is not to be used, in words that follow its name; None if it passes.

    Its processor has the instructions that it takes.
    """
    if (version := library.ozaki_cpu_interface()) != INTERFACE:
        return f"is of other sources (interface {version}, expected {INTERFACE})"
    return None
