"""The engines of NumPy: one for each kind of scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ozaki.backends.numpy.compiled import Compiled, compiled
from ozaki.backends.numpy.engines.complex_residues import ComplexResidueEngine
from ozaki.backends.numpy.engines.digits import DigitEngine
from ozaki.backends.numpy.engines.engine import Engine as Engine
from ozaki.backends.numpy.engines.int8_complex_residues import Int8ComplexResidueEngine
from ozaki.backends.numpy.engines.int8_digits import Int8DigitEngine
from ozaki.backends.numpy.engines.int8_residues import Int8ResidueEngine
from ozaki.backends.numpy.engines.int8_wide_residues import Int8WideResidueEngine
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.caches import Table, cached
from ozaki.schemes import ComplexResidues, ComplexSlices, Digits, Residues, Scheme

_COMPILED: dict[type, type[Int8ResidueEngine] | type[Int8DigitEngine]] = {
    Digits: Int8DigitEngine,
    Residues: Int8WideResidueEngine,
    ComplexResidues: Int8WideResidueEngine,
    ComplexSlices: Int8ComplexResidueEngine,
}
"""The engines by compiled code."""


def compiled_for(scheme: Scheme, k: int, name: str) -> Compiled | None:
    """The library that multiplies by a scheme, where the engine of that name is by compiled code; else None."""
    if name not in ("auto", "int8") or type(scheme) not in _COMPILED:
        return None
    engine: Any = _COMPILED[type(scheme)]  # of this very scheme
    found = compiled() if engine.fits(scheme, k) else None
    return found if isinstance(found, Compiled) else None


def _made(by_blas: Callable[[Any, int, str], Engine | None]) -> Callable[[Any, int, str], Engine | None]:
    """What makes an engine by the processor's int8 units, where there is compiled code for them; else by `by_blas`."""

    def made(scheme: Any, k: int, name: str) -> Engine | None:
        found = compiled_for(scheme, k, name)
        if found is None:
            return by_blas(scheme, k, name)
        engine: Engine = _COMPILED[type(scheme)].compiled_as(scheme, k, found)
        return engine

    return made


MAKERS: Table[type, Callable[[Any, int, str], Engine | None]] = Table(
    {
        Digits: _made(DigitEngine.of),
        Residues: _made(ResidueEngine.of),
        ComplexResidues: _made(ResidueEngine.of),  # of the real product of parts
        ComplexSlices: _made(ComplexResidueEngine.of),
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
