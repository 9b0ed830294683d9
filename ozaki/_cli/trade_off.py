"""What each way of computing a product proves for given operands, and about how long it takes; as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf, log10
from typing import Any

from ozaki._cli import picture
from ozaki._cli.planning import Planned, seconds_of
from ozaki.backends import Backend
from ozaki.bounds.rounding import with_rounding
from ozaki.call.pair import Pair
from ozaki.driver.memory import Memory
from ozaki.driver.settling import question as question_of
from ozaki.driver.works import Works
from ozaki.planning.candidates import names_of, native_bound
from ozaki.planning.facts import Facts, NativeInRange, or_need, settle
from ozaki.planning.proof import Proof
from ozaki.planning.question import Question
from ozaki.planning.search import likely_schemes
from ozaki.records.accuracy import Accuracy, default_accuracy
from ozaki.records.formats import part_of
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.report import counted
from ozaki.schemes import Scheme, is_exact, slice_products
from ozaki.schemes.named import FAMILIES, least_of, scheme_of


@dataclass(frozen=True)
class Way:
    """A way of computing a product.

    Attributes
    ----------
    family : "residues", "digits", "words", "native product"
    name : "14 residues"
    label : what stands at its point: the count of slices
    work : its slice products; 1 for the native product
    seconds : the time that it is expected to take; None if unknown
    bound : what it proves for the operands, with the rounding to the result, as log10; -inf: it is exact
    chosen : whether the plan is this way
    """

    family: str
    name: str
    label: str
    work: int
    seconds: float | None
    bound: float
    chosen: bool


@dataclass(frozen=True)
class TradeOff:
    """All ways of a product.

    Attributes
    ----------
    title : shapes, dtype and device
    measure : of the bounds
    asked : the accuracy that was asked for, with the rounding to the result, as log10; None if none was
    ways : those that prove something
    chosen : the name of the way that the plan is, which may prove nothing
    times : how the times were found, in words; empty if they are not known
    """

    title: str
    measure: str
    asked: float | None
    ways: tuple[Way, ...]
    chosen: str
    times: str


def of_operands(a: Any, b: Any, options: dict[str, Any], planned: Planned, backend: Backend) -> TradeOff:
    """Prove the bounds of many ways to multiply these operands, the planned one among them.

    Beside the planned count of slices there are counts below and above it, and of the other scheme those about what
    ordinary operands need for the same accuracy. Bounds are componentwise where the accuracy is a relative one, which
    would take a product for each count.
    """
    asked_for, plan = Options.of("multiply", options), planned.plan
    pair = Pair(a, b, Memory(asked_for.workspace_limit), asked_for)
    works, facts = Works(pair), Facts()
    question = replace(question_of(pair, for_operands=True), dtype=plan.dtype)
    relative = plan.target.measure == "relative"
    target = replace(plan.target, measure="componentwise") if relative else plan.target
    if question.empty:
        raise ValueError(f"--plot: a product of shapes {tuple(a.shape)} and {tuple(b.shape)} has nothing to compare")
    schemes = [*_schemes(plan, question)]
    seconds = _seconds(schemes, question, planned, backend)
    ways: list[Way] = []
    for scheme in schemes:
        bound, facts = settle(partial(_proven, question, plan, target, scheme), works.measure, facts)
        chosen = scheme == plan.scheme
        if chosen and not relative:
            bound = min(bound, _log10(plan.bound, target.exponent))
        gains = not ways or ways[-1].family != scheme.name or bound < ways[-1].bound - _LEAST_GAIN
        if chosen or gains:  # with more slices than these nothing gets better but the rounding to the result stays
            name = counted(scheme.count, scheme.name)
            ways.append(
                Way(scheme.name, name, str(scheme.count), slice_products(scheme), seconds[scheme], bound, chosen)
            )
    if not question.multiprecision:
        native, facts = settle(partial(_native, question), works.measure, facts)
        bound = _log10(native, 0)
        time = seconds_of(replace(plan, scheme=None), question.sizes, backend)
        ways.append(Way("native product", "native product", "native", 1, time, bound, plan.native))
    for each in plan.candidates:  # words, which planning weighs for float32 on a GPU
        if "word" in each.name and each.bound is not None:
            bound = _log10(each.bound, each.exponent)
            ways.append(Way("words", each.name, each.name, each.products, each.seconds, bound, each.chosen))
    timed = "timed smaller products, in proportion" if backend.name == "numpy" else "the rates of this GPU"
    known = all(way.seconds is not None for way in ways)
    asked = None
    if asked_for.accuracy is not None and not relative and not plan.target.exact:
        asked = _log10(with_rounding(target.tolerance, plan.dtype, target.exponent), target.exponent)
    title = f"{str(plan).splitlines()[0].rpartition(': ')[0]}, on the {planned.device.upper()}"
    own = "native product" if plan.scheme is None else counted(plan.slices, plan.scheme.name)
    proven = tuple(way for way in ways if way.bound < inf)
    return TradeOff(title, target.measure, asked, proven, own, timed if known else "")


_LEAST_GAIN = 0.02
"""Decimal digits that another slice has to gain to be drawn."""


def _log10(bound: float, exponent: int) -> float:
    """The decimal logarithm of a bound in units of 2**exponent."""
    return bound if bound == inf else -inf if bound == 0 else log10(bound) + exponent * log10(2)


def _schemes(plan: Plan, question: Question) -> Iterator[Scheme]:
    """The schemes whose bounds are drawn, family by family: with counts around the planned and the usual ones."""
    own, k, wanted = plan.scheme, max(question.length, 1), plan.target
    names = names_of("auto", k, question.multiprecision, question.complex_rows)
    if wanted.exact or wanted.measure == "relative":
        wanted = default_accuracy(part_of("float64" if question.multiprecision else question.dtype), k)
    middles = {scheme.name: [scheme.count] for scheme in likely_schemes(question.before_rounding(wanted), k, names)}
    if is_exact(own):
        middles.setdefault(own.name, []).append(own.count)
    for name, counts in middles.items():
        around = {count + turn * max(1, count // 12) for count in counts for turn in range(-_FEWER, _MORE + 1)}
        for count in sorted(around):
            scheme = scheme_of(name, count) if least_of(name, k) <= count <= FAMILIES[name].most else None
            if scheme is not None and not question.machine.obstacle(scheme, plan.engine):
                yield scheme


_FEWER, _MORE = 5, 4
"""Counts below and above the planned or usual one that are drawn."""


@or_need
def _proven(question: Question, plan: Plan, target: Accuracy, scheme: Scheme, facts: Facts) -> float:
    """What a scheme proves for operands with these facts, as log10; by the wide level only where no other does."""
    for exponent in dict.fromkeys((target.exponent, 0)):  # in small units a far larger bound is inf
        proof = Proof(facts, max(question.length, 1), replace(target, exponent=exponent), scheme, question.sizes.parts)
        while proof.sharpen(1):
            pass
        bound = proof.bound(scheme)
        if bound == inf and proof.sharpen(inf):
            bound = proof.bound(scheme)
        if bound < inf:
            return _log10(with_rounding(bound, plan.dtype, exponent), exponent)
    return inf


@or_need
def _native(question: Question, facts: Facts) -> float:
    return native_bound(question) if facts[NativeInRange()] else inf


def _seconds(
    schemes: list[Scheme], question: Question, planned: Planned, backend: Backend
) -> dict[Scheme, float | None]:
    """The times of schemes, by the rates of the device.

    On NumPy, where there are none, one scheme of each family is timed on smaller operands; others take as much longer
    as they have more slice products.
    """
    if backend.name != "numpy":
        return {scheme: question.machine.seconds(question.sizes, question.dtype, scheme) for scheme in schemes}
    found: dict[Scheme, float | None] = {}
    for name in dict.fromkeys(scheme.name for scheme in schemes):
        family = [scheme for scheme in schemes if scheme.name == name]
        of_plan = planned.plan.scheme in family
        timed = planned.plan.scheme if of_plan else family[len(family) // 2]
        assert is_exact(timed)
        time = planned.seconds if of_plan else seconds_of(replace(planned.plan, scheme=timed), question.sizes, backend)
        for scheme in family:
            found[scheme] = None if time is None else time * scheme.products / timed.products
    return found


# The picture ---------------------------------------------------------------------------------------------------------

_COLOURS, _OTHERS = {"native product": "tab:gray", "digits": "tab:orange", "words": "tab:green"}, "tab:blue"


def draw(found: TradeOff, path: str) -> None:
    """Draw the bounds of all ways over their times, or over slice products where times are not known, into a file.

    Raises
    ------
    OSError
        The message names the file, which is not changed then.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    figure = picture.figure((8.5, 5.4))
    axes = figure.subplots()
    finite = [way.bound for way in found.ways if way.bound > -inf]
    least, most = min(finite, default=0.0), max(finite, default=0.0)
    lowest = least - 0.1 * (most - least) - 1
    for family in dict.fromkeys(way.family for way in found.ways):
        ways = [way for way in found.ways if way.family == family]
        places = [(_x(way, found), max(way.bound, lowest)) for way in ways]
        colour = _COLOURS.get(family, _OTHERS)
        marker = {"native product": "D", "digits": "s"}.get(family, "o")
        line = "-" if family != "words" else ""
        axes.plot(*zip(*places, strict=True), line, marker=marker, color=colour, markersize=5, label=family, zorder=2)
    for way in found.ways:
        if way.chosen:
            axes.plot(
                _x(way, found), max(way.bound, lowest), "o", color="black", markersize=13, markerfacecolor="none",
                linestyle="", label=f"chosen: {way.name}", zorder=3,
            )  # fmt: skip
    if not any(way.chosen for way in found.ways):
        axes.plot([], [], linestyle="", label=f"chosen: {found.chosen}, which proves nothing here")
    if found.asked is not None:
        axes.axhline(found.asked, color="black", linewidth=0.8, linestyle="--", label="the accuracy that was asked for")
    if any(way.bound == -inf for way in found.ways):
        axes.axhline(lowest, color="black", linewidth=0.8, linestyle=":", label="exact")
    what = f"modelled seconds (from {found.times})" if found.times else "slice products"
    axes.set(xscale="log", xlabel=what, ylabel=f"proven {found.measure} error (no unit)", title=found.title)
    axes.margins(x=0.12, y=0.1)
    low, high = axes.get_ylim()
    missing = max(_LEAST_RANGE - (high - low), 0)
    axes.set_ylim(low - missing / 2, high + missing / 2)
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 60 * low else (1,)))
    axes.grid(which="major", linewidth=0.3)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"$10^{{{floor(y)}}}$"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside lower center", fontsize=8, frameon=False, ncols=3)
    figure.draw_without_rendering()  # which says where points and texts lie
    points = {way: (_x(way, found), max(way.bound, lowest)) for way in found.ways}
    taken = [_around(axes, place, 5 if way.chosen else 3) for way, place in points.items()]
    for way in sorted(found.ways, key=lambda way: not way.chosen):
        _label(axes, way, points[way], taken)
    picture.save(figure, path)


_RIGHTMOST = 0.8
"""Part of the axis of times beyond which labels of words, which are long, stand to the left of their points."""

_LEAST_RANGE = 3.0
"""Powers of ten that the axis of errors shows at least."""


def _label(axes: Any, way: Way, place: tuple[float, float], taken: list[Any]) -> None:
    """Write the label of a way beside its point, unless it would lie on another one, or a point, as `taken` says."""
    above = way.family != "digits"  # the curves of digits and residues may lie close: labels on either side of them
    at = axes.transAxes.inverted().transform(axes.transData.transform(place))[0]
    right = above and (way.family != "words" or at < _RIGHTMOST)
    for turned in (False, True):
        text = axes.annotate(
            way.label,
            place,
            xytext=(7 if right != turned else -7, 4 if above != turned else -4),
            textcoords="offset points",
            horizontalalignment="left" if right != turned else "right",
            verticalalignment="bottom" if above != turned else "top",
            fontsize=8,
            color=_COLOURS.get(way.family, _OTHERS),
        )
        box = text.get_window_extent()
        inside = all(axes.bbox.contains(*corner) for corner in (box.min, box.max))
        if inside and not any(box.overlaps(other) for other in taken):
            taken.append(box)
            return
        text.remove()


def _around(axes: Any, place: tuple[float, float], radius: float) -> Any:
    """The box around a point in a picture; the radius in points of type."""
    from matplotlib.transforms import Bbox

    (x, y), pixels = axes.transData.transform(place), radius * axes.figure.dpi / 72
    return Bbox([[x - pixels, y - pixels], [x + pixels, y + pixels]])


def _x(way: Way, found: TradeOff) -> float:
    return way.seconds if found.times and way.seconds is not None else float(way.work)
