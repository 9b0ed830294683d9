"""Plans of `ozaki plan`: of files, whose elements decide, or of shapes, as far as shapes decide."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from math import inf, prod
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

import ozaki
from ozaki.backends import Backend, as_computed
from ozaki.call.pair import NO_MULTIPRECISION
from ozaki.planning.asking import question_of
from ozaki.planning.checks import check_options, check_runs
from ozaki.planning.facts import Facts
from ozaki.planning.ordinary import foresee
from ozaki.planning.planner import Planner
from ozaki.planning.weigh import explained
from ozaki.records.formats import (
    SIGNIFICAND_BITS,
    in_units,
    is_complex,
    is_multiprecision,
    part_of,
    precision_of,
    result_format,
)
from ozaki.records.options import Options
from ozaki.records.report import priced
from ozaki.records.shapes import Shapes, shapes
from ozaki.schemes import Residues, Scheme, Words, is_exact
from ozaki.schemes.named import known

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Planned:
    """A plan, the device it would run on, and how long that would take.

    Attributes
    ----------
    plan : the plan; where shapes do not decide it, the one for ordinary operands
    undecided : a sentence about what the shapes do not decide; empty if they decide all, or for files
    device : "cpu" or "gpu"
    engine : name of the engine that multiplies
    steps : the steps of the product, a line each, of a complex one as the backend computes it (`as_computed`)
    seconds : the estimated time of the product; None if there is no estimate
    timed : whether the estimate rests on times that were measured on such a device
    for_accuracy : whether an accuracy was named; without one the plan's target is nobody's
    """

    plan: ozaki.Plan
    undecided: str
    device: str
    engine: str
    steps: str
    seconds: float | None
    timed: bool
    for_accuracy: bool

    def explained(self) -> str:
        """The candidates that were weighed, a line each, with their times and what they prove."""
        return "\n".join(map(str, self.plan.candidates))

    def __str__(self) -> str:
        guess = "" if self.timed else " (a guess: nobody has timed this GPU)"
        time = "" if self.seconds is None else f", about {self.seconds:.2g} s{guess}"
        lines = [*_plan_lines(self.plan, self.undecided), f"on the {self.device.upper()}: {self.engine}{time}"]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The plan, device, engine, steps and seconds as plain data, for JSON."""
        plan = self.plan
        names = ("shape", "batch", "dtype", "slices", "products", "bound", "unrounded_bound", "a_priori", "why")
        return {
            **{name: getattr(plan, name) for name in names},
            "scheme": "native" if plan.scheme is None else plan.scheme.name,
            "target": asdict(plan.target) if self.for_accuracy else None,
            "candidates": [asdict(candidate) for candidate in plan.candidates],
            "undecided": self.undecided,
            "device": self.device,
            "engine": self.engine,
            "steps": self.steps.splitlines(),
            "seconds": self.seconds,
            "timed": self.timed,
        }


def _plan_lines(plan: ozaki.Plan, undecided: str) -> list[str]:
    """Return the lines that describe a plan; without its bound where that is not proven."""
    if not undecided or plan.bound < inf:
        return [*str(plan).splitlines(), *([undecided] if undecided else [])]
    assert plan.scheme is not None
    first = str(plan).splitlines()[0].rpartition(": ")[0]
    what = priced(plan.slices, plan.scheme.name, plan.products)
    return [f"{first}: {what}", undecided, *([plan.why] if plan.why else [])]


def of_operands(a: Any, b: Any, options: dict[str, Any], device: str, backend: Backend) -> Planned:
    """Plan the product of these operands."""
    plan = ozaki.plan(a, b, **options)
    sizes = shapes(tuple(a.shape), tuple(b.shape))
    return _planned(plan, "", device, sizes, backend, options.get("accuracy") is not None)


def of_shapes(
    a: tuple[int, ...], b: tuple[int, ...], options: dict[str, Any], device: str, planner: Planner
) -> Planned:
    """Plan a product of operands of these shapes, as far as shapes decide; the options name a dtype.

    The planner is a backend, or the record of a GPU that need not be there.

    Raises
    ------
    ValueError, TypeError
        As `ozaki.plan`.
    """
    sizes = shapes(a, b)
    plan, undecided = _plan_of_shapes(a, b, sizes, Options.of("plan", options), planner)
    return _planned(plan, undecided, device, sizes, planner, options.get("accuracy") is not None)


def _planned(
    plan: ozaki.Plan, undecided: str, device: str, sizes: Shapes, planner: Planner, for_accuracy: bool
) -> Planned:
    machine = planner.machine()
    if is_exact(plan.scheme) or machine.core() is None:  # words of such a plan are not yet those of the device's core
        check_runs(plan.scheme, plan.engine, machine)
    ran = plan if plan.native else as_computed(plan, planner)
    engine, steps = planner.engine_name(ran), planner.steps(ran)
    seconds = seconds_of(plan, replace(sizes, parts=plan.parts), planner)
    # On a CPU rates are not known, and only the plan's own product is timed.
    timed = (replace(x, seconds=seconds) if x.chosen and x.seconds is None else x for x in plan.candidates)
    plan = replace(plan, candidates=tuple(timed))
    return Planned(plan, undecided, device, engine, steps, seconds, machine.timed, for_accuracy)


def _plan_of_shapes(
    a: tuple[int, ...], b: tuple[int, ...], sizes: Shapes, options: Options, planner: Planner
) -> tuple[ozaki.Plan, str]:
    """Return the plan, and a sentence about what the shapes do not decide (`Planned.undecided`)."""
    target = options.target(max(sizes.shape[1], 1))
    asked = None if target is None else f"{target.measure} {in_units(target.tolerance, target.exponent, '.2g')}"
    exact = options.dtype == "int64" or (target is not None and (target.exact or target.measure == "relative"))
    if exact:  # the elements decide, which the error says
        return ozaki.plan(a, b, **options._asdict()), ""
    named = not options.leave_slices or options.scheme == "native"
    if named or options.scheme not in known() or 0 in (*sizes.stack, sizes.shape[1]):
        if target is None or target.measure != "componentwise":
            return ozaki.plan(a, b, **options._asdict()), ""
        plan = ozaki.plan(a, b, **options._replace(accuracy=None)._asdict())
        return plan, f"the elements decide whether that proves what is asked for ({asked}): plan from files"
    check_options(options, planner)
    assert options.dtype is not None
    dtype = result_format(options.dtype, tuple(SIGNIFICAND_BITS), target)
    if is_complex(dtype):
        sizes = replace(sizes, parts=(2, 2))
    multiprecision = is_multiprecision(dtype)
    obstacle = NO_MULTIPRECISION if multiprecision else planner.native_obstacle(part_of(dtype))
    question = question_of(sizes, dtype, options, planner.machine(), obstacle, multiprecision=multiprecision)
    plan, _ = foresee(question, Facts())
    if plan.scheme is not None:
        plan = replace(plan, bound=inf, unrounded_bound=inf)  # an estimate, which is proven for no operands
    plan = explained(question, Facts(), plan)
    if plan.scheme is None:
        return plan, "" if target is None else "unless products or sums over- or underflow, which the elements decide"
    if target is not None and target.measure != "componentwise" and not isinstance(plan.scheme, Words):
        return ozaki.plan(a, b, **options._asdict()), "files may take less: the elements decide"
    return (
        plan,
        "an estimate, for normally distributed elements; your data may take more slices: plan from files to know",
    )


def _name_of(scheme: Scheme) -> str:
    """Return the name that `matmul` takes for a scheme; for FP16 digits, without the bits, which follow from k."""
    return "fp16-digits" if scheme.name.startswith("fp16-digits") else scheme.name


def seconds_of(plan: ozaki.Plan, sizes: Shapes, planner: Planner) -> float | None:
    """Estimate the seconds of a product, by the rates of the device or, on NumPy, by timing a smaller product."""
    if 0 in (*sizes.stack, sizes.shape[1]):
        return 0.0
    if planner.name != "numpy":  # where nothing is known of multiprecision results
        return planner.machine().seconds(sizes, plan.dtype, plan.scheme)
    if is_multiprecision(plan.dtype) or (isinstance(plan.scheme, Residues) and plan.scheme.several):
        return _seconds_of_multiprecision(plan, sizes)
    known = planner.machine().seconds(sizes, plan.dtype, plan.scheme)
    return known if known is not None else _seconds_by_sample(plan, sizes)


_MOST, _MOST_OF_WORDS, _LONGEST = 768, 64, 4096
"""Sizes of the product that is timed (`_sample`).

_MOST and _MOST_OF_WORDS (fewer, for NumPy models words slowly) are the most rows, columns and inner indices; if two of
these are short, the third may be up to _LONGEST.
"""


def _seconds_by_sample(plan: ozaki.Plan, sizes: Shapes) -> float:
    """Estimate the seconds of a product from the median of three runs of a smaller one, in proportion to operations."""
    _, m, n = sizes.stack
    sample = _sample((m, sizes.shape[1], n), _MOST_OF_WORDS if isinstance(plan.scheme, Words) else _MOST)
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(shape).astype(plan.dtype if parts == 2 else part_of(plan.dtype))
        for shape, parts in zip((sample[:2], sample[1:]), plan.parts, strict=True)
    )
    scheme = (
        "native" if plan.scheme is None else plan.scheme if isinstance(plan.scheme, Words) else _name_of(plan.scheme)
    )
    slices = plan.slices if isinstance(scheme, str) and scheme != "native" else None
    times = []
    for _ in range(3):
        start = time.perf_counter()
        ozaki.matmul(a, b, scheme=scheme, slices=slices)
        times.append(time.perf_counter() - start)
    # The fastest run would be an underestimate: the product itself will be the first of its process.
    return median(times) * prod((*sizes.stack, sizes.shape[1])) / prod(sample)


_MOST_PRODUCTS = 3000
"""Slice products of the largest multiprecision product that is timed."""


def _seconds_of_multiprecision(plan: ozaki.Plan, sizes: Shapes) -> float | None:
    """Estimate the seconds of a product of many slices by one run of a smaller one, in proportion to operations.

    The more slices, the smaller it is, so that it takes about a second. None for more than `_MOST_PRODUCTS`.
    """
    if plan.products > _MOST_PRODUCTS:
        return None
    _, m, n = sizes.stack
    most = min(400, 100_000 // plan.products)
    rows, inner, columns = sample = min(m, most), min(sizes.shape[1], most), min(n, most)
    bits = precision_of(plan.dtype)
    rng = np.random.default_rng(0)
    a, b = (
        ozaki.mparray(rng.standard_normal(shape) + (1j if parts == 2 else 0), bits=bits)
        for shape, parts in zip(((rows, inner), (inner, columns)), plan.parts, strict=True)
    )
    smaller = replace(plan, shape=sample, batch=(), a_priori=True)
    start = time.perf_counter()
    ozaki.matmul(a, b, plan=smaller)
    return (time.perf_counter() - start) * prod((*sizes.stack, sizes.shape[1])) / prod(sample)


def _sample(shape: tuple[int, int, int], most: int) -> tuple[int, ...]:
    """Return sizes of a smaller product, of at most most**3 operations, for a product of `shape`, (m, k, n).

    If some sizes are below `most`, the longest may be above it: then the constant costs of a product take a part of
    its time that is as small as it is in the whole product.
    """
    sample = [min(size, most) for size in shape]
    longest = max(range(3), key=lambda i: shape[i])
    others = prod(sample) // sample[longest]
    sample[longest] = min(shape[longest], most**3 // others, _LONGEST)
    return tuple(sample)
