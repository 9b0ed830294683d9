"""The plan for the operands of a call: what runs, as far as a look at the data decides, and what was done meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Literal

import numpy as np

from ozaki import _bounds
from ozaki._accuracy import Accuracy, default_accuracy
from ozaki._checks import check_choices, check_native, check_proven
from ozaki._choices import Choices
from ozaki._description import LOOKED_AT
from ozaki._measured import Measured
from ozaki._operands import Shapes, Side
from ozaki._pair import SIDES, Pair
from ozaki._plan import Plan
from ozaki._plan_ahead import named_scheme, plan_for_any, why_named
from ozaki._prepared import Prepared
from ozaki._proof import least_product
from ozaki._search import Search, choose_a_priori, likely_schemes
from ozaki._ways import NATIVE_ASKED_FOR, OUT_OF_RANGE, Ways, names_of, native_bound, native_plan
from ozaki.schemes import Digits, Scheme, Words
from ozaki.schemes.named import integer_scheme


class Planning:
    """The choice of a plan for two operands, made once.

    Attributes
    ----------
    ahead : what they were split for while the device had yet to say whether that is right, and the slices
    search : that found the slices, if it can be made anew of other operands
    right_again : whether a call done again, with other operands, may run what was chosen; None where nobody can tell
    still : what else has to hold then
    native_by_data : a native product, if it runs, does so for what these operands are
    unforeseen : they were taken for ordinary ones
    workspace : most bytes held while the plan was made, beside the operands and their descriptions
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.ahead: tuple[Scheme | Words | None, dict[Side, Any]] | None = None
        self.search: Search | None = None
        self.right_again: Callable[[], bool] | None = None
        self.still: list[Callable[[], bool]] = []
        self.native_by_data = False
        self.unforeseen = False
        self.workspace = self._slices_ahead = 0
        self._least: Callable[[], float] | None = None

    def plan(self, choices: Choices, full: bool = False) -> Plan:
        """The plan for these operands; `full` proves a bound for them where a named scheme needs none."""
        pair = self._pair
        for name, x in (("a", pair.a), ("b", pair.b)):
            if isinstance(x, Prepared):
                if full:
                    raise ValueError(f"{name}: prepared for a plan already, which is {name}.plan; expected an array")
                raise ValueError(f"plan: missing; {name} is prepared for a plan, so give plan={name}.plan")
        check_choices(choices, pair.backend)
        k = pair.sizes.shape[1]
        target = choices.target(k)
        if (named := named_scheme(choices, pair.dtype, k, pair.backend)) is not None:
            return self._named(named, target, choices, full)
        assert isinstance(choices.scheme, str)
        bound = native_bound(pair.backend, k, pair.dtype)

        def native(why: str) -> Plan:
            proven = inf if full and not pair.empty and not pair.in_range else bound
            limit, a_priori = choices.workspace_limit, target is None and not full
            return native_plan(pair.sizes, pair.dtype, target, proven, why, limit, a_priori)

        if choices.scheme == "native":
            check_native(pair.dtype, target, choices, bound)
            if target is not None and not pair.in_range:
                raise ValueError(f"accuracy: {OUT_OF_RANGE} if the product is native; use scheme='auto'")
            obstacle = pair.backend.native_obstacle(pair.dtype)
            why = f"{NATIVE_ASKED_FOR}; {obstacle}" if obstacle else NATIVE_ASKED_FOR
            return native(why=why)
        ways = Ways.of(pair.backend, k, pair.dtype, choices, bound)
        if ways.ruled_out is None and not pair.native_fits(choices.workspace_limit):
            ways = replace(ways, ruled_out="native product ruled out: converting an operand takes more than the limit")
        slices = None
        if ways.words and not pair.empty:
            plan, slices = self._proven_first(ways, choices, full)
            if plan is not None:
                return plan
        fastest = self._fastest(ways, slices)
        plan, ways, way, why = self._of_words(ways, *fastest, choices)
        if plan is not None:
            return plan
        if way == "native":
            return native(why=why)
        names = names_of(integer_scheme(choices.scheme, k))
        if pair.empty:
            chosen = choose_a_priori(Accuracy("row-column", 0.5), max(k, 1), names).scheme
            return self._plan(chosen, ways.target, 0.0, choices, "an empty product")
        ahead = self._goes_ahead(choices, full)
        search = self._begun(ways.target, names, choices, ahead)
        choice = search.choose(wide=ways.ruled_out is not None)
        if choice is None and not self._native_may_run(ways):
            choice = search.choose()
        self._note_workspace(search.workspace)
        if ahead:
            self.search = search
            _note_lately(self._kind(ways.target, names), choice.scheme if choice else None)
        if choice is None or choice.scheme.products > search.likely.products:  # more than ordinary ones need
            needed = choice.scheme if choice else None
            ways = ways if choice else ways.without_slices()
            plan, ways, way, why = self._of_words(ways, *self._fastest(ways, needed), choices, needed)
            if plan is not None:
                self.search, self.unforeseen = None, True
                return plan
            if way == "native":
                self.native_by_data = True
                return native(why=why)
        assert choice is not None
        return self._plan(choice.scheme, ways.target, choice.bound, choices, why)

    def _of_words(
        self, ways: Ways, way: _Way, why: str, choices: Choices, slices: Scheme | None = None
    ) -> tuple[Plan | None, Ways, _Way, str]:
        """A plan of words, if they are fastest and prove what is asked; else the ways left, and the fastest of them."""
        while isinstance(way, Words) and not self._pair.empty:
            target = replace(ways.target, tolerance=min(ways.words_tolerance, 0.5))
            plan = self._plan(way, target, inf, choices, why)
            if (proven := self._proven_at_a_look(plan, way, ways.words_tolerance)) <= ways.words_tolerance:
                return replace(plan, bound=_bounds.with_rounding(proven, self._pair.dtype)), ways, way, why
            self.ahead, self.native_by_data, ways = None, True, ways.without(way)
            # What words lose takes many slices: other words are asked before a search for these.
            way, why = self._fastest(ways.without_slices() if ways.words else ways, slices)
        return None, ways, way, why

    def _fastest(self, ways: Ways, slices: Scheme | None = None) -> tuple[_Way, str]:
        """As `Ways.fastest`, but for a native product that proves nothing."""
        pair = self._pair
        way, why = ways.fastest(pair.backend, pair.sizes, pair.dtype, slices)
        if way == "native" and not self._native_may_run(ways):
            return ways.without_native().fastest(pair.backend, pair.sizes, pair.dtype, slices)
        return way, why

    def _native_may_run(self, ways: Ways) -> bool:
        """It does what is asked, at the cost of no proof."""
        return ways.ruled_out is None and (not ways.named or self._pair.in_range)

    def _proven_first(self, ways: Ways, choices: Choices, full: bool) -> tuple[Plan | None, Scheme | None]:
        """The plan of digits, if they are fastest for ordinary operands and a first look finds these to be such.

        Else the slices that these operands will need at least, where that is seen.
        """
        pair = self._pair
        names, k = names_of("auto"), pair.sizes.shape[1]
        digits = likely_schemes(ways.first, k, names)[0]
        way, why = self._fastest(ways, digits)
        if way != "slices" or not isinstance(digits, Digits) or ways.first.measure != "componentwise":
            return None, None
        more = replace(digits, count=digits.count + 1)
        least, some = pair.backend.look(pair.rows("left"), pair.rows("right")), min(LOOKED_AT, k)

        @np.errstate(all="ignore")
        def ordinary() -> bool:
            return _SURELY * _bounds.usual_of(*least(), some, digits, k) <= ways.first.tolerance

        self.native_by_data = True
        if not ordinary():
            self.still.append(lambda: not ordinary())
            return None, more
        ahead = self._goes_ahead(choices, full)
        search = self._begun(ways.first, names, choices, ahead)
        self._note_workspace(search.workspace)
        if not search.likely_proven():
            self.unforeseen = True
            return None, more
        choice = search.choose(wide=False)
        assert choice is not None  # that has been proven
        self.still.append(ordinary)
        if ahead:
            self.search = search
        return self._plan(choice.scheme, ways.first, choice.bound, choices, why), None

    def _note_workspace(self, of_proof: int) -> None:
        """A proof held so many bytes, beside slices that were made meanwhile."""
        self.workspace = max(self.workspace, of_proof + self._slices_ahead)

    def _goes_ahead(self, choices: Choices, full: bool) -> bool:
        """The operands are split while a device looks at them."""
        return self._pair.backend.waits and choices.workspace_limit is None and not full

    def _begun(self, target: Accuracy, names: tuple[str, ...], choices: Choices, ahead: bool) -> Search:
        """A search for the fewest slice products; `ahead` splits while the device has yet to say what it finds."""
        pair = self._pair
        search = Search(pair.backend, pair.sizes.shape[1], target, names, pair.left_of(choices.workspace_limit))
        if not ahead:
            search.begin(pair.described("left"), pair.described("right"))
            return search
        before, last = _lately.get(self._kind(target, names), (None, None))
        likely = last if last is not None and last == before else search.likely
        plan = self._plan(likely, target, inf, choices, "")
        meanwhile = None if self._split_in_one_read(plan) else partial(self._split_ahead, plan)
        search.begin(pair.described("left"), pair.described("right"), meanwhile)
        return search

    def _kind(self, target: Accuracy, names: tuple[str, ...]) -> _Kind:
        return self._pair.sizes, self._pair.dtype, target, names

    def _split_in_one_read(self, plan: Plan) -> bool:
        """Describe and split at once for the most likely plan, where that is faster."""
        pair = self._pair
        if not pair.undescribed:
            return False
        slices = pair.backend.split_in_one_read(plan, pair.rows("left"), pair.rows("right"))
        if slices is None:
            return False
        self.ahead = plan.scheme, dict(zip(SIDES, slices, strict=True))
        self._slices_ahead = sum(int(each.planes.nbytes) for each in slices)
        pair.take_descriptions({side: each.described for side, each in self.ahead[1].items()})
        return True

    def _split_ahead(self, plan: Plan) -> None:
        """Split for the most likely plan."""
        pair = self._pair
        slices = {side: pair.backend.split(pair.described(side), side, plan) for side in SIDES}
        self.ahead = plan.scheme, slices
        self._slices_ahead = sum(int(each.planes.nbytes) for each in slices.values())

    def _named(self, scheme: Scheme | Words, target: Accuracy | None, choices: Choices, full: bool) -> Plan:
        pair = self._pair
        if target is None and not full:
            return plan_for_any(pair.sizes, pair.dtype, scheme, None, choices, why_named(scheme))
        goal = target or default_accuracy(pair.dtype, pair.sizes.shape[1])
        bound = self.prove(scheme, goal, choices.workspace_limit)
        check_proven(scheme, bound, target, goal.measure, "these operands")
        return self._plan(scheme, goal, bound, choices, why_named(scheme))

    def _proven_at_a_look(self, plan: Plan, words: Words, tolerance: float) -> float:
        """What words prove without a product, or else by a small one."""
        bound = self._asked(self._by_look(plan, words) or self._by_rows(words), tolerance)
        return bound if bound <= tolerance else self._asked(self._by_least(words, plan.workspace_limit), tolerance)

    def _asked(self, proven: Callable[[], float], tolerance: float) -> float:
        """What is proven; a call done again asks whether that is still enough, or not."""
        proven = np.errstate(all="ignore")(proven)
        if (bound := proven()) <= tolerance:
            self.right_again = lambda: proven() <= tolerance
        else:
            self.still.append(lambda: proven() > tolerance)
        return bound

    def _by_look(self, plan: Plan, words: Words) -> Callable[[], float] | None:
        """Proven of what is found while words are cut, and a look at some inner indices if they lose anything.

        Nothing where they are not cut in one read.
        """
        pair, k = self._pair, self._pair.sizes.shape[1]
        if plan.workspace_limit is not None or not pair.undescribed:
            return None
        rows = pair.rows("left"), pair.rows("right")
        if (cut := pair.backend.cut_in_one_read(plan, *rows)) is None:
            return None
        left, right, lost = cut
        self.ahead = words, {"left": left, "right": right}
        least = pair.backend.look(*rows, (left.described, right.described)) if lost() else None

        def proven() -> float:
            if not lost():
                return _bounds.words_of_whole(words, k)
            return inf if least is None else _bounds.words_by_sample(*least(), min(LOOKED_AT, k), words, k)

        return proven

    def _by_rows(self, words: Words) -> Callable[[], float]:
        """Proven of the whole descriptions."""
        reads = [self._pair.backend.read(self._pair.described(side)) for side in SIDES]

        def proven() -> float:
            left, right = (read() for read in reads)
            return _bounds.words_by_rows(left, right, words)

        return proven

    def _by_least(self, words: Words, limit: int | None) -> Callable[[], float]:
        """Proven of the least product of magnitudes, which other words may ask for again."""
        pair, k = self._pair, self._pair.sizes.shape[1]
        if self._least is None:
            left, right = (self.ahead[1][side].described if self.ahead else pair.described(side) for side in SIDES)
            self._least, held = least_product(pair.backend, left, right, pair.left_of(limit))
            self._note_workspace(held)
        least = self._least
        return lambda: _bounds.words_of_least(least(), words, k)

    def prove(self, scheme: Scheme | Words, target: Accuracy, limit: int | None, known: float = inf) -> float:
        """The bound of a scheme for these operands, before the rounding, as sharp as the target needs.

        With the rounding it is no larger than `known` either, if that can be proven. No more bytes are held than the
        limit of the workspace leaves.
        """
        pair = self._pair
        if pair.empty:
            return 0.0

        def enough(bound: float) -> bool:
            return bound <= target.tolerance and _bounds.with_rounding(bound, pair.dtype) <= known

        left, right = (pair.described(side) for side in SIDES)
        measured = Measured(pair.backend, left, right, target.measure, limit=pair.left_of(limit))
        while not enough(bound := measured.bound(scheme)) and measured.sharpen(inf):
            pass
        self._note_workspace(measured.workspace)
        if isinstance(scheme, Words) and not enough(bound):
            bound = min(bound, self._by_least(scheme, limit)())
        return bound

    def _plan(self, scheme: Scheme | Words, target: Accuracy, bound: float, choices: Choices, why: str) -> Plan:
        pair = self._pair
        proven = _bounds.with_rounding(bound, pair.dtype)
        sizes, engine, limit = pair.sizes, choices.engine, choices.workspace_limit
        return Plan(sizes.shape, sizes.batch, pair.dtype, scheme, target, proven, False, engine, limit, why)


_Way = Words | Literal["native", "slices"]
_Kind = tuple[Shapes, str, Accuracy, tuple[str, ...]]
_Twice = tuple[Scheme | None, Scheme | None]

_lately: dict[_Kind, _Twice] = {}
"""What the last two plans for products of a kind took; if the same, their operands are split for it meanwhile."""


def _note_lately(kind: _Kind, scheme: Scheme | None) -> None:
    _, last = _lately.get(kind, (None, None))
    if len(_lately) >= _MOST_KINDS:
        _lately.clear()
    _lately[kind] = last, scheme


_MOST_KINDS = 1024

_SURELY = 1.5
"""Times what they let expect: to find out that a proof fails takes longer than it may save."""
