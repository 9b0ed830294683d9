"""The engines of NumPy: one for each kind of scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ozaki.backends.numpy.engines.complex_residues import ComplexResidueEngine
from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.backends.numpy.engines.engine import Engine as Engine
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.caches import Table
from ozaki.schemes import ComplexResidues, ComplexSlices, Digits, Residues, Scheme

MAKERS: Table[type, Callable[[Any, int, bool], Engine | None]] = Table(
    {
        Digits: DigitEngine.of,
        Residues: ResidueEngine.of,
        ComplexResidues: ResidueEngine.of,  # of the real product of parts
        ComplexSlices: ComplexResidueEngine.of,
    }
)
"""For each type of scheme, the function of (scheme, k, int8) that makes its engine, for rows of k real numbers.

With int8, the engine multiplies the slices of an int8 machine, instead of fewer and wider ones; the function returns
None if such a machine multiplies no slices of this scheme.
"""


def obstacle(scheme: Scheme, int8: bool) -> str | None:
    """Why no engine multiplies this scheme, or none by the slices of an int8 machine; None if one does."""
    if type(scheme) not in MAKERS:
        return f"NumPy has no engine for {scheme.name}; use scheme='auto'"
    if int8 and MAKERS[type(scheme)](scheme, 1, int8) is None:
        return f"{scheme.name} are not the int8 slices that engine='int8' multiplies; use engine='auto'"
    return None


def engine_of(scheme: Scheme, k: int, int8: bool) -> Engine:
    """The engine of a scheme, which has no `obstacle`, for inner dimension k; with `int8`, by those slices."""
    engine = MAKERS[type(scheme)](scheme, k, int8)
    assert engine is not None
    return engine
