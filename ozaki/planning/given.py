"""Plans that need no facts about operands: of a scheme whose count is given, and of the native product."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ozaki.bounds.of_scheme import a_priori
from ozaki.bounds.rounding import with_rounding
from ozaki.call.checks import check_multiprecision, check_options, check_proven, check_runs, check_words
from ozaki.call.operands import Shapes
from ozaki.planning.question import Machine
from ozaki.records.accuracy import Accuracy, default_accuracy
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words, scaling_of
from ozaki.schemes.named import FAMILIES, forced, integer_scheme, least_of, scheme_of, words_of

NATIVE_ASKED_FOR = "native product: asked for by scheme='native'"


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


def why_named(scheme: Scheme | Words) -> str:
    """The reason that a plan states for the count of a scheme that the caller names."""
    return "count given by slices" if scheme.exact else ""


@lru_cache(maxsize=1024)
def plan_for_any(
    sizes: Shapes, dtype: str, scheme: Scheme | Words, target: Accuracy | None, options: Options, why: str
) -> Plan:
    """The plan of a scheme for any operands of these shapes, its bound in the row-column measure.

    Plans are cached, because making one takes as long as a small product.

    Raises
    ------
    ValueError
        If the scheme does not prove the target for all operands.
    """
    goal = target or usual_target(dtype, max(sizes.shape[1], 1))
    bound = a_priori(scheme, max(sizes.length, 1), goal.exponent) * sizes.spread
    check_proven(scheme, bound, target, "row-column", "any operands")
    proven = with_rounding(bound, dtype, goal.exponent)
    return Plan(
        sizes.shape, sizes.batch, dtype, scheme, goal, proven, bound, True, options.engine, options.workspace_limit,
        why, parts=sizes.parts,
    )  # fmt: skip


def usual_target(dtype: str, k: int) -> Accuracy:
    """The target where no accuracy is named, in the row-column measure, which bounds for any operands are in."""
    return replace(default_accuracy(dtype, k), measure="row-column")


def native_plan(
    sizes: Shapes,
    dtype: str,
    target: Accuracy | None,
    bound: float,
    why: str,
    limit: int | None,
    a_priori: bool = True,
) -> Plan:
    """The plan of the native product: its bound is componentwise, and so holds in every measure."""
    target = target or default_accuracy(dtype, sizes.shape[1])
    return Plan(
        sizes.shape, sizes.batch, dtype, None, target, bound, bound, a_priori, workspace_limit=limit, why=why,
        parts=sizes.parts,
    )  # fmt: skip
