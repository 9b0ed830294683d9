"""What this folder calls of folders above it. They assign it when the package is imported, and nobody does later.

So files here import none of those, which import this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

multiply: Callable[[Any, Any], Any]
"""The product of the operands of an operator `@` (`functions/emulation.py`)."""

array_ufunc: Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]
"""A ufunc of NumPy with an `MPArray` among its inputs (`functions/numpy_functions.py`)."""

array_function: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Another function of NumPy with an `MPArray` among its arguments (`functions/numpy_functions.py`)."""

limb_kernels: Callable[[], ModuleType]
"""Imports the functions on planes of limbs that are kernels on a GPU (`backends/__init__.py`)."""
