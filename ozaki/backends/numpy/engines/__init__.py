"""The engines of NumPy: one for each kind of scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.backends.numpy.engines.engine import Engine as Engine
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.schemes import Digits, Residues, Scheme

MAKERS: dict[type, Callable[[Any, int, bool], Engine]] = {Digits: DigitEngine.of, Residues: ResidueEngine.of}
"""For each type of scheme, the function of (scheme, k, int8) that makes its engine.

With int8, the engine multiplies the slices of an int8 machine, instead of fewer and wider ones.
"""


def engine_of(scheme: Scheme, k: int, int8: bool) -> Engine:
    """The engine of a scheme for inner dimension k; with `int8`, by the slices of an int8 machine."""
    return MAKERS[type(scheme)](scheme, k, int8)
