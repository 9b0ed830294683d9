"""The plan of a product of operands in parts: the one that a single NumPy call would choose, whatever the parts are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Protocol

from ozaki.backends import Backend
from ozaki.backends.numpy import backend as numpy
from ozaki.call.combination import combination_of
from ozaki.call.format_checks import format_of_parts
from ozaki.planning.asking import question_of
from ozaki.planning.checks import check_options
from ozaki.planning.choose import choose, enough_slices
from ozaki.planning.facts import Facts, Need, Spans, settle
from ozaki.planning.promise import proven
from ozaki.planning.question import Question
from ozaki.records.combination import Combination
from ozaki.records.formats import is_complex
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.report import rounded_up
from ozaki.records.shapes import COMPLEX, REAL, shapes
from ozaki.schemes import ComplexResidues, Digits, Scheme, Words

_NO_NATIVE = "native product ruled out: its bits would depend on how operands are shared out"

_EVERY_BIT = "entries that fewer residues leave undecided are not computed apart here, so all take enough residues"


class FactFinder(Protocol):
    """What finds facts about operands, the same ones on all processes: `Measuring`, and that of shares on GPUs."""

    def measure(self, need: Need, relative: Callable[[Scheme, bool], float]) -> Any:
        """As `Measuring.measure`."""
        ...


def question_for(
    shape: tuple[int, int, int],
    dtypes: tuple[str, str],
    options: Options,
    combined: bool = False,
    backend: Backend = numpy,
) -> Question:
    """The question of a product of matrices of these formats, checked as `ozaki.matmul` checks its own.

    Parameters
    ----------
    shape : (m, k, n)
    dtypes : of a and of b
    options : of the caller
    combined : whether the product is part of an expression that is rounded once
    backend : what multiplies

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        For options that contradict one another, or that are not for shared out operands.
    """
    m, k, n = shape
    check_options(options, backend)
    check_shared_out(options)
    dtype = format_of_parts(options.dtype, dtypes)
    sizes = replace(shapes((m, k), (k, n)), parts=COMPLEX if is_complex(dtype) else REAL)
    asked = options._replace(reproducible=True, workspace_limit=None)
    return question_of(sizes, dtype, asked, backend.machine(), expression=combined, parts_obstacle=_NO_NATIVE)


def check_shared_out(options: Options) -> None:
    """Refuse options that are not for shared out operands.

    Raises
    ------
    ValueError, NotImplementedError
    """
    if options.verify:
        raise NotImplementedError("verify: True is not for shared out operands; verify entries of the result instead")
    if options.scheme == "native" or isinstance(options.scheme, Words):
        raise ValueError(
            f"scheme: {options.scheme!r} has no bits that are the same for any number of processes; expected 'auto', "
            "'residues' or 'digits'"
        )


def combined(alpha: Any, beta: Any, c: Any, question: Question) -> Combination | None:
    """The expression alpha A B + beta C, checked; None if it is the product itself.

    Raises
    ------
    ValueError, TypeError
    """
    longer = question.options.dtype is not None
    if c is not None and c.dtype.kind == "c" and not question.sizes.is_complex:
        raise TypeError("c: complex, but a and b are real; make both complex, as a + 0j")
    combination = combination_of(alpha, beta, c, question.sizes, question.dtype, False, longer)
    if combination is not None and not combination.rounds_once:
        raise ValueError("alpha: expected finite real factors alpha and beta")
    return combination


def planned(question: Question, operands: FactFinder, relative: Callable[[Scheme, bool], float]) -> Plan:
    """The plan that answers the question for these operands: the same one for any parts.

    Raises
    ------
    ValueError
        If no plan meets what is asked.
    """

    def measure(need: Need, _facts: Facts) -> Any:
        return operands.measure(need, relative)

    plan, facts = settle(partial(choose, question), measure, Facts())
    return checked(every_bit(plan, question, facts, measure))


def every_bit(plan: Plan, question: Question, facts: Facts, measure: Callable[[Need, Facts], Any]) -> Plan:
    """The plan with so many residues that no entry is undecided, where fewer leave some to be computed apart."""
    if not plan.undecided_apart:
        return plan
    need = Spans(plan.inner_scaling)
    spans: tuple[int, int] = facts[need] if need in facts else measure(need, facts)
    scheme = enough_slices(question, max(question.length, 1), spans)
    return replace(plan, scheme=scheme, undecided_apart=False, why=f"exact: every bit; {_EVERY_BIT}")


def given(plan: Plan, question: Question, operands: FactFinder, relative: Callable[[Scheme, bool], float]) -> Plan:
    """The plan of the caller, proven for these operands if it promises an accuracy, with what it proves.

    Raises
    ------
    ValueError
        If it is for another product, or misses its accuracy.
    """
    sizes = question.sizes
    if (plan.shape, plan.batch, plan.dtype, plan.parts) != (sizes.shape, (), question.dtype, sizes.parts):
        raise ValueError(
            f"plan: for {(*plan.batch, *plan.shape)} and {plan.dtype}; expected {sizes.shape} and {question.dtype}"
        )
    if plan.scheme is None or not plan.scheme.exact or plan.undecided_apart:
        raise ValueError("plan: expected one of residues or digits alone; plan with reproducible=True")
    if question.empty or plan.a_priori or not plan.strict:
        return checked(plan)

    def measure(need: Need, _facts: Facts) -> Any:
        return operands.measure(need, relative)

    answer, _ = settle(partial(proven, plan, None, wanted=inf), measure, Facts())
    if not answer.met:
        raise ValueError(
            f"plan: proves a {plan.target.measure} error of {rounded_up(answer.bound, plan.target.exponent)} for these "
            "operands, which misses its accuracy; plan from these"
        )
    return checked(replace(plan, bound=answer.bound, unrounded_bound=answer.unrounded))


def checked(plan: Plan) -> Plan:
    """The plan, unless parts of its products are not multiplied here.

    Raises
    ------
    NotImplementedError
    """
    if plan.parts == COMPLEX and isinstance(plan.scheme, Digits):
        raise NotImplementedError("scheme: digits of complex operands are not shared out; use 'residues'")
    if plan.parts == COMPLEX and plan.engine == "int8-simulated":
        raise NotImplementedError(f"engine: {plan.engine!r} splits no complex rows; use 'auto'")
    assert plan.scheme is not None
    assert plan.parts == REAL or isinstance(plan.scheme, ComplexResidues)
    return plan
