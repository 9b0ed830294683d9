"""Checks of products by random projections: which products kernels project, and what the projections of one say."""

from __future__ import annotations

from collections.abc import Callable

from ozaki.backends.cupy.inputs import Seed
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.running import ProgramRuns
from ozaki.backends.cupy.steps.projection import VERIFIED
from ozaki.records.verification import Projected
from ozaki.schemes import ComplexSlices, Residues, Scheme, Words
from ozaki.schemes.constants import MOST_AT_ONCE


def check_projected(scheme: Scheme | Words, multiprecision: bool) -> None:
    """Refuse a product that kernels do not project; `multiprecision`: an operand or the result has such numbers.

    Raises
    ------
    ValueError
    """
    what = ""
    if multiprecision:
        what = "multiprecision numbers"
    elif isinstance(scheme, ComplexSlices):
        what = "slices of complex rows"
    elif not isinstance(scheme, Residues):
        what = scheme.name
    elif scheme.several:
        what = f"{scheme.count} residues"
    if what:
        raise ValueError(
            f"verify: on a GPU True checks products of floats by at most {MOST_AT_ONCE} residues, not {what}; "
            "leave it out, or multiply NumPy arrays"
        )


def projected(runs: ProgramRuns, multiply: Callable[[], Program]) -> Projected:
    """Give the programs a new random number, run that of the product, and return what its projections say."""
    seed = runs.inputs().seed
    assert seed is not None
    runs.execution.bind([seed.buffer], [Seed()])
    program = multiply()
    found: Projected = runs.execution.fact(program.readers[VERIFIED])
    return found
