"""The question that a product asks of planning: its options are checked here, once, and `choose` checks none."""

from __future__ import annotations

from ozaki.call.checks import check_native
from ozaki.call.complex_parts import COMPLEX
from ozaki.call.operands import Shapes
from ozaki.planning.candidates import native_bound
from ozaki.planning.given import named_scheme
from ozaki.planning.question import Machine, Question
from ozaki.records.options import Options


def question_of(
    sizes: Shapes,
    dtype: str,
    options: Options,
    machine: Machine,
    native_obstacle: str | None = None,
    native_fits: bool = True,
    for_operands: bool = False,
    multiprecision: bool = False,
) -> Question:
    """The question of one product; its parameters are attributes of `Question`.

    Each option by itself has been checked (`check_options`); here the product, the machine and the other options are.

    Raises
    ------
    ValueError, NotImplementedError
        If options contradict one another, or whatever the elements are no plan can meet them.
    """
    complex_rows = sizes.parts == COMPLEX and not multiprecision
    named = named_scheme(options, dtype, sizes.length, machine, complex_rows, multiprecision)
    question = Question(
        sizes, dtype, options, machine, native_obstacle, native_fits, for_operands, multiprecision, named
    )
    exact = question.target is not None and question.target.exact  # by residues, whatever scheme is named
    if options.scheme == "native" and not exact:
        check_native(dtype, question.target, options, native_bound(question))
    return question
