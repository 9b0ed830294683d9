"""Worst ratios of the operands, at one level of the lower bound after the other (docs/bounds.md, B7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.inputs import Inputs
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Stream
from ozaki.backends.cupy.steps.native import native_obstacle
from ozaki.backends.cupy.steps.operands import Described
from ozaki.backends.cupy.steps.panels import panels_of
from ozaki.backends.cupy.steps.proof import Lower, Wanted, least_product, lower_bound, worst_ratios
from ozaki.backends.panels import Panel, Panels
from ozaki.bounds import words as word_bounds
from ozaki.bounds.description import Description
from ozaki.bounds.exact import error_terms
from ozaki.bounds.levels import FEW_ROWS, Level, levels
from ozaki.call.operands import SIDES
from ozaki.planning.facts import Ratio, WorstRatio
from ozaki.schemes import Words


class _OpenLevel(NamedTuple):
    """The level at which ratios are found at present.

    Attributes
    ----------
    level : Level
    stream : the stream of its products of magnitudes
    panels : the panels in which it is found, or None if the limit of memory allows for all of it at once
    lower : the lower bound of all entries, or None where each panel gets its own
    """

    level: Level
    stream: Stream
    panels: Panels | None
    lower: Lower | None


class Ratios:
    """Adds the steps that find worst ratios; holds the lower bound of one level at a time.

    Attributes
    ----------
    stream : "main" or "proof": the stream of the products of levels that are opened from now on
    spans : evidence of a `Ratio` whose spans the device finds, or None if there is none yet
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._open: _OpenLevel | None = None
        self.stream: Stream = "main"
        self.spans: Evidence | None = None

    def open(self, level: Level) -> None:
        """Begin the lower bound of a level, unless it is the present one.

        Before that, waits for all facts that were begun, and frees the lower bound of the present level.
        """
        if self._open is not None and self._open.level == level:
            return
        self.close()
        inputs = self._inputs
        left, right = inputs.describe_both()
        panels = panels_of(inputs.device, level, left.x, right.x, self._inputs.limit)
        lower = None
        if panels.one:
            with inputs.builder.on(self.stream, fork=True):
                lower = self._lower_bound(level, left, right)
        self._open = _OpenLevel(level, self.stream, None if panels.one else panels, lower)

    def close(self) -> None:
        """Wait for all facts that were begun, and free the lower bound."""
        self._inputs.run()
        self._inputs.first_call.wait_for_arrivals()
        if self._open is not None and self._open.lower is not None:
            self._open.lower.release(self._inputs.builder)
            self._inputs.forget_magnitudes()
        self._open = None

    def begin(self, needs: Sequence[WorstRatio]) -> None:
        """Begin to find worst ratios, all of one level, and register their readers."""
        b = self._inputs.builder
        new = [need for need in dict.fromkeys(needs) if b.reader(need) is None]
        if not new:
            return
        self.open(new[0].level)
        assert self._open is not None
        if self._open.panels is not None:
            self._begin_in_panels(self._open.panels, new)
            return
        assert self._open.lower is not None
        left, right = self._inputs.describe_both()
        m = left.x.shape[1]
        wanted = [self._wanted(need, min(m, FEW_ROWS) if need.few_rows else m) for need in new]
        with b.on(self._open.stream):
            found = worst_ratios(b, self._inputs.device, self._open.lower, left, right, wanted)
        for need, each in zip(new, found, strict=True):
            if isinstance(need.scheme, Words) or need.exponent:
                b.read(need, (each, *self._inputs.descriptions()), _ratio_with_spans)
            else:
                self.spans = self.spans or each
                b.read(need, (each,), evidence.unchanged)

    def least_product(self, described: tuple[Described, Described]) -> tuple[Evidence, ...]:
        """Begin to find the least entry of the first level's lower bound: one value for each panel.

        `described`: the left and the right operand, with whole descriptions or with their largest elements alone.
        """
        b, device = self._inputs.builder, self._inputs.device
        left, right = (replace(of, magnitudes=None) for of in described)
        level = levels(left.k)[0]
        if self._open is not None and self._open.level == level and self._open.lower is not None:
            with b.on(self._open.stream):
                return (least_product(b, device, self._open.lower, left, right),)
        self.close()
        found = []
        for _, x, y in self._in_panels(panels_of(device, level, left.x, right.x, self._inputs.limit), left, right):
            lower = lower_bound(b, device, x, y, level)
            found.append(least_product(b, device, lower, x, y))
            lower.release(b)
        return tuple(found)

    def _lower_bound(self, level: Level, left: Described, right: Described) -> Lower:
        """The lower bound of a level; by a product on the host where cuBLAS may not multiply float64 exactly."""
        ruled_out = level == "wide" and native_obstacle("float64") is not None
        on_host = self._multiplied_on_host if ruled_out else None
        return lower_bound(self._inputs.builder, self._inputs.device, left, right, level, on_host)

    def _multiplied_on_host(self, left: Array, right: Array) -> npt.NDArray[np.float64]:
        """The product of magnitudes, shapes (batch, rows, k), by NumPy on the host; waits for the device."""
        b, first_call = self._inputs.builder, self._inputs.first_call
        arrivals = [b.to_host(f"{x} on host", x.at, x.shape, x.char) for x in (left, right)]
        self._inputs.run()
        x, y = (first_call.evidence(b.evidence(arrival, np.copy)) for arrival in arrivals)
        exact: npt.NDArray[np.float64] = np.matmul(x, y.swapaxes(1, 2))
        return exact

    def _wanted(self, need: WorstRatio, rows: int, panel: Panel | None = None) -> Wanted:
        """What the device is to compare with the lower bound, in the first rows of A, or of a panel if one is given.

        The error terms of words, and those in units of another power of two than 1, are computed on the host, from the
        descriptions, for which this waits.
        """
        k = self._inputs.describe("left").k
        dropped = k * need.scheme.drop if need.drops and not isinstance(need.scheme, Words) else 0.0
        if not isinstance(need.scheme, Words) and need.exponent == 0:
            return Wanted(need.scheme, rows, dropped)
        left, right = self._inputs.on_host()
        if panel is not None:
            left, right = (
                _some_rows(of, panel.of(side, self._inputs.rows[side].shape[0]))
                for side, of in zip(SIDES, (left, right), strict=True)
            )
        if isinstance(need.scheme, Words):
            return Wanted(word_bounds.error_terms(left, right, need.scheme), rows, 0.0)
        return Wanted(error_terms(left, right, need.scheme, dropped, need.exponent), rows, 0.0)

    def _begin_in_panels(self, panels: Panels, needs: Sequence[WorstRatio]) -> None:
        """Begin to find worst ratios in one panel after the other, and register their readers."""
        assert self._open is not None
        b, level = self._inputs.builder, self._open.level
        left, right = self._inputs.describe_both()
        m = left.x.shape[1]
        row_limits = [min(m, FEW_ROWS) if need.few_rows else m for need in needs]
        found: list[list[Evidence]] = [[] for _ in needs]
        for panel, x, y in self._in_panels(panels, left, right):
            first, last = panel.rows
            concerned = [i for i, to in enumerate(row_limits) if to > first]
            if not concerned:
                continue
            wanted = [self._wanted(needs[i], min(row_limits[i], last) - first, panel) for i in concerned]
            lower = self._lower_bound(level, x, y)
            for i, each in zip(concerned, worst_ratios(b, self._inputs.device, lower, x, y, wanted), strict=True):
                found[i].append(each)
            lower.release(b)
        for need, ratios in zip(needs, found, strict=True):
            b.read(need, (*ratios, *self._inputs.descriptions()), _ratio_of_panels)

    def _in_panels(
        self, panels: Panels, left: Described, right: Described
    ) -> Iterator[tuple[Panel, Described, Described]]:
        """Each panel, with its rows of both operands, whose descriptions are released when the next panel begins."""
        b = self._inputs.builder
        for panel in panels:
            x = left.some_rows(b, *panel.of("left", left.x.shape[0]))
            y = right.some_rows(b, *panel.of("right", right.x.shape[0]))
            yield panel, x, y
            x.release_rows(b, left)
            y.release_rows(b, right)


def _some_rows(of: Description, at: tuple[tuple[int, int], tuple[int, int]]) -> Description:
    """The description of rows first .. last of matrices first .. last, `at` holding both ranges."""
    (batch, end), (first, last) = at
    fields = of.top, of.peak, of.magnitudes, of.squares, of.bottom, of.nonfinite
    return Description(of.k, *(field[batch:end, first:last] for field in fields))


def _ratio_with_spans(ratio: Ratio, left: Description, right: Description) -> Ratio:
    return evidence.with_spans(ratio.worst, left, right)


def _ratio_of_panels(*found: Any) -> Ratio:
    return evidence.ratio_of_panels(found)
