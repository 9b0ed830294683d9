"""The engines of NumPy: a driver for each scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.backends.numpy.engines.engine import Engine as Engine
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.schemes import Digits, Residues, Scheme

DRIVERS: dict[type, Callable[[Any, int, bool], Engine]] = {Digits: DigitEngine.of, Residues: ResidueEngine.of}
"""By the type of a scheme: makes its engine for an inner dimension; True asks for the slices of an int8 machine."""


def engine_of(scheme: Scheme, k: int, int8: bool) -> Engine:
    """The engine of a scheme for inner dimension k."""
    return DRIVERS[type(scheme)](scheme, k, int8)
