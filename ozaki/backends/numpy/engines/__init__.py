"""The engines of NumPy: one for each kind of scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ozaki.backends.numpy.compiled import Compiled, compiled
from ozaki.backends.numpy.engines.complex_residues import ComplexResidueEngine
from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.backends.numpy.engines.engine import Engine as Engine
from ozaki.backends.numpy.engines.int8_complex_residues import Int8ComplexResidueEngine
from ozaki.backends.numpy.engines.int8_residues import Int8ResidueEngine
from ozaki.backends.numpy.engines.int8_wide_residues import Int8WideResidueEngine
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.caches import Table, cached
from ozaki.schemes import ComplexResidues, ComplexSlices, Digits, Residues, Scheme

_COMPILED: dict[type, type[Int8ResidueEngine]] = {
    Residues: Int8WideResidueEngine,
    ComplexResidues: Int8WideResidueEngine,
    ComplexSlices: Int8ComplexResidueEngine,
}
"""The engines by compiled code."""


def compiled_for(scheme: Scheme, k: int, name: str) -> Compiled | None:
    """The library that multiplies by a scheme, where the engine of that name is by compiled code; else None."""
    if name not in ("auto", "int8") or type(scheme) not in _COMPILED:
        return None
    assert isinstance(scheme, Residues)
    found = compiled() if _COMPILED[type(scheme)].fits(scheme, k) else None
    return found if isinstance(found, Compiled) else None


def _of_residues(scheme: Residues, k: int, name: str) -> Engine:
    """The engine of residues: by the processor's int8 units, where there is compiled code for them."""
    found = compiled_for(scheme, k, name)
    if found is not None:
        return _COMPILED[type(scheme)].compiled_as(scheme, k, found)
    by_blas = ComplexResidueEngine if isinstance(scheme, ComplexSlices) else ResidueEngine
    return by_blas.of(scheme, k, name)


MAKERS: Table[type, Callable[[Any, int, str], Engine | None]] = Table(
    {
        Digits: DigitEngine.of,
        Residues: _of_residues,
        ComplexResidues: _of_residues,  # of the real product of parts
        ComplexSlices: _of_residues,
    }
)
"""For each type of scheme, the function of (scheme, k, name) that makes its engine, for rows of k real numbers.

"float64" names the engine by float64 BLAS. "int8" and "auto" name that of the processor's int8 units where there is
compiled code for the scheme, else the former. "int8-simulated" names one that multiplies the slices of an int8 machine
by float64 BLAS; the function returns None if such a machine multiplies no slices of this scheme.
"""


@cached(256)
def obstacle(scheme: Scheme, name: str) -> str | None:
    """Why no engine, or none of that name, multiplies this scheme; None if one does."""
    if type(scheme) not in MAKERS:
        return f"NumPy has no engine for {scheme.name}; use scheme='auto'"
    if MAKERS[type(scheme)](scheme, 1, name) is None:
        return f"{scheme.name} are not the int8 slices that engine={name!r} multiplies; use engine='auto'"
    return None


def engine_of(scheme: Scheme, k: int, name: str) -> Engine:
    """The engine of that name, or the best one for "auto", of a scheme without `obstacle`, for inner dimension k."""
    engine = MAKERS[type(scheme)](scheme, k, name)
    assert engine is not None
    return engine
