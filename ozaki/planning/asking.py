"""The question that a product asks of planning: its options are checked here, once, and `choose` checks none."""

from __future__ import annotations

from ozaki.planning.candidates import native_bound
from ozaki.planning.checks import (
    check_inner_scaling,
    check_multiprecision,
    check_native,
    check_options,
    check_runs,
    check_words,
)
from ozaki.planning.question import Machine, Question
from ozaki.records.options import Options
from ozaki.records.shapes import COMPLEX, Shapes
from ozaki.schemes import Scheme, Words, scaling_of
from ozaki.schemes.named import FAMILIES, forced, integer_scheme, least_of, scheme_of, words_of


def question_of(
    sizes: Shapes,
    dtype: str,
    options: Options,
    machine: Machine,
    native_obstacle: str | None = None,
    native_fits: bool = True,
    for_operands: bool = False,
    multiprecision: bool = False,
    expression: bool = False,
    parts_obstacle: str | None = None,
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
        sizes, dtype, options, machine, native_obstacle, native_fits, for_operands, multiprecision, expression,
        parts_obstacle, named,
    )  # fmt: skip
    if options.scheme == "native":
        check_native(dtype, question.target, options, native_bound(question))
    if options.inner_scaling:
        check_inner_scaling(question.target, question.inner_scaling_obstacle)
    return question


def named_scheme(
    options: Options, dtype: str, k: int, machine: Machine | None, complex_rows: bool, multiprecision: bool = False
) -> Scheme | Words | None:
    """The scheme that the options name with the count of its slices; None if they leave something open.

    Raises
    ------
    ValueError, NotImplementedError
        If it contradicts another option, has no room for k, or does not run on the machine; if only its count is left
        open, and it runs with no count; or if it has no slices of numbers that are `multiprecision`.
    """
    if options.scheme == "auto" and options.slices is None:
        return None
    if multiprecision:
        check_multiprecision(options.scheme)
    if (words := words_of(options.scheme, None if machine is None else machine.core())) is not None:
        check_words(words, dtype, options, machine)
        return words
    assert isinstance(options.scheme, str)
    name, k = integer_scheme(options.scheme, k, complex_rows), max(k, 1)
    if options.slices is None:
        if machine is not None and name in FAMILIES:
            check_runs(scheme_of(name, least_of(name, k)), options.engine, machine)
        return None
    scheme = forced(name, options.slices)
    scaling_of(scheme, k)
    if machine is not None:
        check_runs(scheme, options.engine, machine)
    return scheme


def check_alone(options: Options) -> None:
    """Refuse options that are wrong for every product, before there is one.

    What operands, their dtype or a machine decide is left to the product.

    Raises
    ------
    ValueError, TypeError
    """
    check_options(options, None)
    options.target(1)
    named_scheme(options, "float32", 1, None, complex_rows=options.scheme == "complex-residues")
