"""Warnings at the caller's line: Python shows one a line, so one that pointed into the library would be shown once."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings

import numpy as np

_ENTERED_THROUGH = ("cupy", "jax", "torch")
"""Libraries that call this one on behalf of their callers: functions with gradients, compiled functions."""


_LIBRARY = os.path.dirname(os.path.dirname(__file__))
"""The folder of this library."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the innermost line that is neither of this library nor of one that it is called through.

    However deep in the library it is issued: each line of a program that calls a public function has its own.
    """
    folders = [_LIBRARY, *(os.path.dirname(path) for path in (np.__file__, *_files_of_others()))]
    inside = (*(folder + os.sep for folder in folders), contextlib.__file__, functools.__file__)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _files_of_others() -> list[str]:
    """The files of the libraries `_ENTERED_THROUGH` that are loaded."""
    loaded = (sys.modules.get(name) for name in _ENTERED_THROUGH)
    return [file for module in loaded if (file := getattr(module, "__file__", None)) is not None]
