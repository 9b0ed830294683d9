"""The backend's objects of one product, and the facts that they find about its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ozaki.backends import Work, as_computed, results
from ozaki.call.pair import Pair
from ozaki.planning.facts import Facts, Need, RelativeError
from ozaki.records.plan import Plan
from ozaki.records.progress import SILENT, Progress
from ozaki.records.shapes import COMPLEX, REAL
from ozaki.records.verification import Verification
from ozaki.schemes import ComplexResidues


class Works:
    """The backend's objects (`Work`) of one product, each made when it is first needed.

    | object | rows | used for |
    |---|---|---|
    | `of_rows` | complex if both operands are, else real | facts; complex slices; the native product |
    | `of_parts` | real; of a complex operand its parts | all other slices, words, the addend alone |
    | `native()` | those of `of_rows`, one or both converted | the native product if the formats are not the result's |

    The first two are one object unless both operands are complex numbers of the hardware; also of these, where one was
    prepared as rows of parts. The third is `of_rows` unless the product is complex and an operand has another format
    than the result.

    Parameters
    ----------
    pair : the operands
    given : the plan that the caller gave, or None
    progress : is told how far the product is
    verify : whether the product of integers is checked

    Attributes
    ----------
    pair : as given
    as_real : whether the rows of `of_rows` are real ones
    verification : the account of these checks, or None
    """

    def __init__(
        self, pair: Pair, given: Plan | None = None, progress: Progress = SILENT, verify: bool = False
    ) -> None:
        self.pair, self._given, self._progress = pair, given, progress
        self.verification = Verification() if verify else None
        self.as_real = not pair.of_complex_rows or (
            given is not None and pair.prepared and as_computed(given, pair.backend).parts == REAL
        )
        self._described: set[bool] = set()  # rows, of parts or not, whose description the limit allows
        self._of_rows: Work | None = None
        self._of_parts: Work | None = None
        self._made: list[Work] = []

    @property
    def of_rows(self) -> Work:
        """The object that finds facts about the operands, and multiplies them by slices of their rows."""
        if self._of_rows is None:
            self._of_rows = self._work(self.as_real)
        return self._of_rows

    @property
    def of_parts(self) -> Work:
        """The object that computes a real product, of complex operands that of their parts."""
        if self.as_real:
            return self.of_rows
        if self._of_parts is None:
            self._of_parts = self._work(as_real=True)
        return self._of_parts

    def _work(self, as_real: bool) -> Work:
        pair = self.pair
        combination = None if pair.sums_exactly else pair.combination
        addend = None
        if combination is not None and combination.c is not None:
            addend = partial(pair.computed_addend, as_real)
        dtype = pair.part if as_real else pair.dtype
        rows = partial(pair.rows, as_real=as_real)
        adjoint = pair.adjoint and not as_real
        matrices, memory = pair.matrices(as_real), pair.memory
        how = self._progress, self.verification
        work = pair.backend.work(*matrices, rows, dtype, memory, combination, addend, adjoint, *how)
        self._made.append(work)
        return work

    def computed(self, plan: Plan) -> Plan:
        """The plan as the backend computes it (`as_computed`); by parts, where complex slices would not be checked."""
        backend = self.pair.backend
        if self.verification is not None and not backend.checks_complex_slices and not self.pair.prepared:
            return plan.of_real
        return as_computed(plan, backend)

    # What computes ----------------------------------------------------------------------------------------------------

    def of(self, computed: Plan) -> Work:
        """The object that multiplies by a plan, given as the backend computes it."""
        return self.going_on(self.of_rows if computed.parts == COMPLEX else self.of_parts)

    def native(self) -> Work:
        """The object that multiplies natively: `of_rows`, or a new one of converted operands."""
        if not self.converts:
            return self.going_on(self.of_rows)
        pair = self.pair
        a, b = map(self._converted, pair.matrices(as_real=False))
        work = pair.backend.work(a, b, partial(pair.rows, as_real=False), pair.dtype, pair.memory)
        self._made.append(work)
        return self.going_on(work)

    @property
    def converts(self) -> bool:
        """Whether a native product takes an operand that is converted to the complex format of the result first."""
        pair = self.pair
        return pair.sizes.is_complex and any(str(x.dtype) != pair.dtype for x in pair.matrices(as_real=False))

    def _converted(self, x: Any) -> Any:
        """A matrix of the dtype of the result; x itself, if it has that."""
        pair = self.pair
        if str(x.dtype) == pair.dtype:
            return x
        pair.memory.hold(results.nbytes(tuple(x.shape), pair.dtype))
        found = pair.backend.empty(tuple(x.shape), pair.dtype)
        found[...] = x
        return found

    def going_on(self, work: Work) -> Work:
        """The object that goes on, after the others have freed what they hold for their own work alone."""
        for other in self._made:
            if other is not work:
                other.release()
        return work

    def release(self) -> None:
        """Free what all objects hold for their own work, where an error ends the product: its traceback may be kept."""
        for work in self._made:
            work.release()

    @property
    def only_of_rows(self) -> bool:
        """Whether no other object than `of_rows` was needed so far."""
        return self._made == [self.of_rows]

    # Facts ------------------------------------------------------------------------------------------------------------

    def measure(self, need: Need, _facts: Facts | None = None) -> Any:
        """Find a fact about the operands within the limit of workspace; waits for it.

        Raises
        ------
        ValueError
            If the limit leaves too little for it.
        """
        self.check_describing(self.as_real)
        if isinstance(need, RelativeError) and not self.as_real:  # which is found from a product
            pair = self.pair
            engine = pair.choices.engine if self._given is None else self._given.engine
            if pair.backend.splits_complex(need.scheme, engine, need.inner_scaling):
                assert isinstance(need.scheme, ComplexResidues)
                return self.going_on(self.of_rows).measure(replace(need, scheme=need.scheme.slices))
            self.check_describing(as_real=True)
            return self.going_on(self.of_parts).measure(need)
        return self.going_on(self.of_rows).measure(need)

    def begin(self, needs: Sequence[Need], plan: Plan) -> None:
        """Start to find these facts, and to split the operands for a plan by exact slices, if a device does so."""
        computed = self.computed(plan)
        if computed.parts == COMPLEX or not self.pair.of_complex_rows:
            self.of_rows.begin(needs, computed)

    def check_describing(self, as_real: bool) -> None:
        """Refuse a limit that leaves too little for describing both operands, once before they are described.

        Raises
        ------
        ValueError
        """
        if as_real not in self._described:
            self.pair.check_describing(as_real)
            self._described.add(as_real)
