"""Checks of a call's options, before any work: each function raises an error that names the argument."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from ozaki.bounds.rounding import suffices
from ozaki.planning.planner import Planner
from ozaki.planning.question import Machine
from ozaki.records.accuracy import Accuracy, Measure
from ozaki.records.formats import in_units, part_of
from ozaki.records.options import ENGINES, Options
from ozaki.records.plan import Plan
from ozaki.records.report import ReportKind
from ozaki.schemes import Scheme, Words
from ozaki.schemes.named import known
from ozaki.schemes.row_digits import RowDigits


def check_native(dtype: str, target: Accuracy | None, options: Options, bound: float) -> None:
    """Refuse options that the native product, asked for by name, cannot meet; `bound` is what it proves."""
    if options.verify:
        raise ValueError(
            "verify: True checks exact products of slices, but scheme='native' has none; leave one of the two out"
        )
    if options.reproducible:
        raise ValueError("scheme: 'native' is not reproducible; leave one of the two out")
    if options.engine != "auto":
        raise ValueError(f"engine: {options.engine!r} multiplies slices; leave it out with scheme='native'")
    if target is not None and target.measure == "relative":
        raise ValueError("accuracy: the native product proves no relative error; use scheme='auto'")
    if target is not None and target.exact:
        raise ValueError("accuracy: the native product is rounded on the way, so it is not exact; use scheme='auto'")
    if target is not None and not suffices(bound, target.tolerance, dtype):
        raise ValueError(
            f"accuracy: {target.tolerance:.3g} is asked for, but the native product proves at best {bound:.3g}; "
            "use scheme='auto'"
        )


def check_inner_scaling(target: Accuracy | None, obstacle: str | None) -> None:
    """Refuse to scale operands along k where that has no bound in the target's measure, or there is an obstacle."""
    if target is not None and target.measure != "componentwise":
        raise ValueError(
            f"inner_scaling: True has no bound in the {target.measure} measure, which compares with norms or entries "
            "of the operands as they are; ask for a componentwise accuracy, or leave it out"
        )
    if obstacle is not None:
        raise ValueError(f"inner_scaling: True, but {obstacle}")


_FLAG = bool, np.bool_


def _given(x: Any) -> str:
    """What a caller gave in place of a flag: a text or an integer itself, of all else the type."""
    return repr(x) if isinstance(x, str | int) else type(x).__name__


def check_flag(name: str, x: Any) -> None:
    """Refuse a flag that is neither True nor False."""
    if not isinstance(x, _FLAG):
        raise TypeError(f"{name}: {_given(x)}; expected True or False")


def check_transposition(name: str, x: Any) -> None:
    """Refuse a transposition that is neither a flag nor one of BLAS's letters."""
    if not isinstance(x, _FLAG) and not (isinstance(x, str) and x in ("N", "T", "C")):
        raise TypeError(f"{name}: {_given(x)}; expected True or False, or 'N', 'T' or 'C'")


def check_report(x: Any) -> None:
    """Refuse a `return_report` that names no report, or a tuple with something else."""
    kinds = get_args(ReportKind)
    for each in (x or ("",)) if isinstance(x, tuple) else (x,):
        if not (isinstance(each, str) and each in kinds) and (isinstance(x, tuple) or not isinstance(x, _FLAG)):
            expected = f"expected True or False, or {', '.join(map(repr, kinds))}, or a tuple of these"
            raise TypeError(f"return_report: {repr(x) if isinstance(x, tuple) else _given(x)}; {expected}")


def check_is_plan(plan: Any) -> None:
    """Refuse anything but a Plan."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: {type(plan).__name__}; expected a Plan, as ozaki.plan returns it")


def check_plan_alone(plan: Any, options: Options) -> None:
    """Refuse anything but a Plan, and options beside it, since a plan holds them already."""
    check_is_plan(plan)
    if options.made:
        raise ValueError(f"plan: holds {' and '.join(options.made)} already; give one or the other")
    check_flag("verify", options.verify)
    if options.verify and (plan.scheme is None or not plan.scheme.exact):
        what = "a native product" if plan.scheme is None else f"products of {plan.scheme.name}, which are rounded"
        raise ValueError(f"verify: True checks exact products of slices, but the plan has {what}; leave it out")


def check_words(words: Words, dtype: str, options: Options, machine: Machine | None) -> None:
    """Refuse options that words cannot meet, and, if the machine is given, words that do not run on it."""
    if part_of(dtype) != "float32":
        raise ValueError(
            f"scheme: {words.name} multiplies float32 matrices, but a and b give {dtype}; use scheme='residues', or "
            "round them with .astype('float32')"
        )
    if options.slices is not None:
        raise ValueError(
            f"slices: {options.slices!r}; {words.name} has {words.count}, and ozaki.Words(count=...) makes others"
        )
    target = options.target(1)
    if target is not None and target.exact:
        raise ValueError(f"accuracy: products of {words.name} are rounded, so they are not exact; use scheme='auto'")
    if options.engine != "auto":
        raise ValueError(f"engine: {options.engine!r} multiplies integer slices; leave it out (ozaki.Words has `core`)")
    if options.verify:
        raise ValueError(
            f"verify: True checks exact products of slices, but those of {words.name} are rounded; leave one of the "
            "two out"
        )
    if options.reproducible:
        raise ValueError(
            f"scheme: {words.name} is not reproducible: its sums are those of the tensor core; leave one of the two out"
        )
    if machine is not None:
        check_runs(words, options.engine, machine)


def check_proven(
    scheme: Scheme | Words, bound: float, target: Accuracy | None, measure: Measure, operands: str
) -> None:
    """Refuse a named scheme that does not prove the target, if there is one.

    `bound` is what the scheme proves in `measure`, before the rounding to the output; `operands` names the operands
    that it is proven for, in the message. Only a componentwise bound meets a componentwise target.
    """
    stronger = target is not None and target.measure in ("componentwise", "relative") and target.measure != measure
    if target is None or (bound <= target.tolerance and not stronger):
        return
    if isinstance(scheme, Words):
        what = f"accuracy: {scheme.name} proves"
        remedy = "use scheme='auto', or words with a shorter block"
    else:
        what = f"slices: {scheme.count} {scheme.name} prove"
        remedy = "give more slices, or leave the count to the library"
    raise ValueError(
        f"{what} {in_units(bound, target.exponent, '.3g')} ({measure}) for {operands}, but accuracy asks for "
        f"{target.measure} {target.in_words}; {remedy}" + (", or plan from operands" if stronger else "")
    )


def check_runs(scheme: Scheme | Words | None, engine: str, machine: Machine) -> None:
    """Refuse a scheme that does not run on the machine, or not by the engine asked for; None runs everywhere.

    Raises
    ------
    NotImplementedError
        If no engine of the machine multiplies the scheme.
    ValueError
        If another engine does.
    """
    if scheme is None:
        return
    if obstacle := machine.obstacle(scheme, "auto"):
        raise NotImplementedError(f"scheme: {obstacle}")
    if obstacle := machine.obstacle(scheme, engine):
        raise ValueError(f"scheme: {obstacle}")


def check_multiprecision(scheme: str | Words) -> None:
    """Refuse a scheme that has no slices of multiprecision numbers: any but residues.

    Raises
    ------
    ValueError
    """
    name = scheme.name if isinstance(scheme, Words) else scheme
    if name not in ("auto", "residues"):
        raise ValueError(f"scheme: {name!r} has no slices of multiprecision numbers; use 'residues' or 'auto'")


def check_holds_multiprecision(plan: Plan) -> None:
    """Refuse a plan that does not compute products with multiprecision operands or results."""
    if plan.scheme is None or plan.scheme.name != "residues":
        what = "native product" if plan.scheme is None else f"{plan.scheme.name}"
        raise ValueError(f"plan: {what}; products with multiprecision numbers need residues, so plan from the operands")


_FLAGS = [name for name, default in Options._field_defaults.items() if isinstance(default, bool)]


def check_options(options: Options, backend: Planner | None) -> None:
    """Refuse a flag, scheme, engine or limit that the backend does not know; without a backend, one that none knows."""
    scheme = options.scheme
    for name in _FLAGS:
        check_flag(name, getattr(options, name))
    if options.inner_scaling is not None and not isinstance(options.inner_scaling, _FLAG):
        raise TypeError(f"inner_scaling: {_given(options.inner_scaling)}; expected True, False or None")
    if not isinstance(scheme, Words) and not (isinstance(scheme, str) and (scheme == "auto" or scheme in known())):
        if isinstance(scheme, str) and scheme == RowDigits.name:
            raise ValueError(f"scheme: {scheme!r} cannot be named; omit it, and use accuracy='bf16' or 'fp16'")
        raise ValueError(f"scheme: {scheme!r} is not known; expected one of {', '.join(known())}, or ozaki.Words(...)")
    check_engine(options.engine, backend)
    check_limit(options.workspace_limit)


def check_engine(engine: Any, backend: Planner | None) -> None:
    """Refuse an engine that the backend does not know; without a backend, one that none knows."""
    engines = ("auto", *(backend.engines if backend else ENGINES))
    if not isinstance(engine, str) or engine not in engines:
        where = f" for {backend.name} arrays" if backend else ""
        raise ValueError(f"engine: {engine!r} is not available{where}; expected one of {', '.join(engines)}")


def check_limit(limit: Any) -> None:
    """Refuse a limit of workspace that is no number of bytes; whole floats are integers by now (`Options.of`)."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit <= 0):
        raise ValueError(f"workspace_limit: {limit!r}; expected a positive number of bytes, a whole one, or None")
