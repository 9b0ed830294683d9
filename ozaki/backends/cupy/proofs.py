"""Proofs in programs of facts: lower bounds of (abs(A) abs(B))_ij and the worst ratios to them (docs/bounds.md, B7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.descriptions import Descriptions
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.made import OpenLevel
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Stream
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.proof import Wanted, least_product, lower_bound, panels_of, worst_ratios
from ozaki.backends.panels import Panel, Panels
from ozaki.bounds.description import Description
from ozaki.bounds.levels import FEW_ROWS, Level, levels
from ozaki.bounds.of_scheme import error_terms
from ozaki.planning.facts import Need, WorstRatio
from ozaki.records.shapes import SIDES
from ozaki.schemes import Words


def needs_descriptions(need: Need) -> bool:
    """Whether the host computes the error terms of a ratio from descriptions, which it needs first."""
    return isinstance(need, WorstRatio) and (isinstance(need.scheme, Words) or need.exponent != 0)


class Proofs:
    """Adds the steps of proofs to a program of facts, one level at a time.

    Attributes
    ----------
    stream : of the lower bounds to come
    """

    def __init__(
        self,
        device: Device,
        operands: Descriptions,
        limit: int | None,
        descriptions: tuple[Description, Description] | None,
    ) -> None:
        """Begin with the lower bound that earlier programs have made, if any.

        Parameters
        ----------
        operands : what describes them in the program
        limit : most bytes of workspace, beside what is made already; None for any
        descriptions : of both operands on the host; needed for ratios of which `needs_descriptions` says so
        """
        self._b, self._device, self._operands = operands.b, device, operands
        self._limit, self._descriptions = limit, descriptions
        level = operands.made.open
        self.stream: Stream = "main" if level is None else level.stream

    def open(self, level: Level) -> OpenLevel:
        """The lower bound of a level; unless it is the present one, frees that one and begins this."""
        present = self._operands.made.open
        if present is not None and present.level == level:
            return present
        self._close()
        left, right = self._operands.both()
        with self._b.on(self.stream, fork=True):
            lower = lower_bound(self._b, self._device, left, right, level)
        opened = OpenLevel(level, self.stream, lower)
        self._operands.made = replace(self._operands.made, open=opened)
        return opened

    def _close(self) -> None:
        """Free the lower bound; what a stream other than the main one touches shares its memory with nothing else."""
        self._operands.made = self._operands.made.without_level(self._b)

    def begin_ratios(self, needs: Sequence[WorstRatio]) -> None:
        """Begin to find worst ratios, all of one level, and register their readers."""
        b = self._b
        new = [need for need in dict.fromkeys(needs) if b.reader(need) is None]
        if not new:
            return
        level = new[0].level
        left, right = self._operands.both()
        panels = self._panels(level, left, right)
        if not panels.one:
            self._close()
            self._begin_in_panels(panels, level, new)
            return
        opened = self.open(level)
        wanted = [self.wanted(need) for need in new]
        with b.on(opened.stream):
            found = worst_ratios(b, self._device, opened.lower, left, right, wanted)
        for need, each in zip(new, found, strict=True):
            if needs_descriptions(need):
                b.read(need, (each, *self._operands.both_on_host()), evidence.ratio_with_spans)
            else:
                made = self._operands.made
                spans = made.spans or b.evidence(each.arrival, partial(evidence.spans_of, ratio=each.of))
                self._operands.made = replace(made, spans=spans)
                b.read(need, (each,), evidence.unchanged)

    def least_product(self) -> tuple[Evidence, ...]:
        """Begin to find the least entry of the first level's lower bound: one value for each panel."""
        b, device, made = self._b, self._device, self._operands.made
        early = made.early
        described = self._operands.both() if early is None else (early.left.described, early.right.described)
        left, right = (replace(of, magnitudes=None) for of in described)
        level = levels(left.k)[0]
        if made.open is not None and made.open.level == level:
            with b.on(made.open.stream):
                return (least_product(b, device, made.open.lower, left, right),)
        self._close()
        found = []
        for _, x, y in self._in_panels(self._panels(level, left, right), left, right):
            lower = lower_bound(b, device, x, y, level)
            found.append(least_product(b, device, lower, x, y))
            lower.release(b)
        return tuple(found)

    def wanted(self, need: WorstRatio) -> Wanted:
        """What the device is to compare with the lower bound."""
        m = self._operands.rows("left").shape[1]
        return self._wanted(need, min(m, FEW_ROWS) if need.few_rows else m)

    def _wanted(self, need: WorstRatio, rows: int, panel: Panel | None = None) -> Wanted:
        """What the device is to compare with the lower bound, in the first rows of A, or of a panel if one is given.

        The error terms of words, and those in units of another power of two than 1, are computed on the host.
        """
        rows_of_left = self._operands.rows("left")
        k = rows_of_left.dtype.parts * rows_of_left.shape[2]
        dropped = k * need.scheme.drop if need.drops and not isinstance(need.scheme, Words) else 0.0
        if not needs_descriptions(need):
            assert not isinstance(need.scheme, Words)
            return Wanted(need.scheme, rows, dropped)
        assert self._descriptions is not None
        left, right = self._descriptions
        if panel is not None:
            left, right = (
                of.part(*(slice(*each) for each in panel.of(side, self._operands.rows(side).shape[0])))
                for side, of in zip(SIDES, (left, right), strict=True)
            )
        return Wanted(error_terms(left, right, need.scheme, dropped, need.exponent), rows, 0.0)

    def _begin_in_panels(self, panels: Panels, level: Level, needs: Sequence[WorstRatio]) -> None:
        """Begin to find worst ratios in one panel after the other, and register their readers."""
        b = self._b
        left, right = self._operands.both()
        m = left.x.shape[1]
        row_limits = [min(m, FEW_ROWS) if need.few_rows else m for need in needs]
        found: list[list[Evidence]] = [[] for _ in needs]
        for panel, x, y in self._in_panels(panels, left, right):
            first, last = panel.rows
            concerned = [i for i, to in enumerate(row_limits) if to > first]
            if not concerned:
                continue
            wanted = [self._wanted(needs[i], min(row_limits[i], last) - first, panel) for i in concerned]
            lower = lower_bound(b, self._device, x, y, level)
            for i, each in zip(concerned, worst_ratios(b, self._device, lower, x, y, wanted), strict=True):
                found[i].append(each)
            lower.release(b)
        for need, ratios in zip(needs, found, strict=True):
            b.read(need, (*ratios, *self._operands.both_on_host()), evidence.ratio_of_panels)

    def _panels(self, level: Level, left: Described, right: Described) -> Panels:
        """The panels of a proof within the limit, when the leading bits of multiprecision operands are there."""
        limit = self._operands.made.beside_leading(self._limit, self._operands.inputs)
        return panels_of(self._device, level, left.x, right.x, limit)

    def _in_panels(
        self, panels: Panels, left: Described, right: Described
    ) -> Iterator[tuple[Panel, Described, Described]]:
        """Each panel, with its rows of both operands, whose descriptions are released when the next panel begins."""
        b = self._b
        for panel in panels:
            x = left.some_rows(b, *panel.of("left", left.x.shape[0]))
            y = right.some_rows(b, *panel.of("right", right.x.shape[0]))
            yield panel, x, y
            x.release_rows(b, left)
            y.release_rows(b, right)
