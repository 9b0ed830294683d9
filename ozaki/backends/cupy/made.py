"""What the programs of one product make for later ones: descriptions, early slices, lower bounds of proofs, factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ozaki.backends.cupy.inputs import Inputs
from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.program.steps import Stream
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.inner import Factors
from ozaki.backends.cupy.steps.magnitudes import Magnitudes
from ozaki.backends.cupy.steps.numbers import leading_bytes
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.backends.cupy.steps.proof import Lower
from ozaki.bounds.levels import Level
from ozaki.records.shapes import Side
from ozaki.schemes import Scheme, Words


class EarlySlices(NamedTuple):
    """Slices or words of both operands, made before the plan is known."""

    scheme: Scheme | Words
    engine: Engine
    left: Slices
    right: Slices


class OpenLevel(NamedTuple):
    """The lower bound of a level of proof, of all entries, that later programs may compare with."""

    level: Level
    stream: Stream
    lower: Lower


@dataclass(frozen=True)
class Made:
    """What the programs of a call so far keep in device memory for later ones.

    Attributes
    ----------
    described : whole descriptions of operands
    on_host : the descriptions that arrive, or have arrived, on the host
    early : slices made before the plan is known, or None
    open : the lower bound of the last level of proof, or None
    spans : evidence of the fact `Spans`; None if there is none yet
    extents : evidence of a pair of `bounds.native.Extent`, for the fact `NativeInRange`; None if there is none yet
    scaled : the same of the rows scaled along k, whose slices are never made early; None if nothing was asked of them
    factors : of the inner indices of such rows; None of rows as they are, and until they are found
    """

    described: Mapping[Side, Described] = field(default_factory=dict)
    on_host: Mapping[Side, Evidence] = field(default_factory=dict)
    early: EarlySlices | None = None
    open: OpenLevel | None = None
    spans: Evidence | None = None
    extents: Evidence | None = None
    scaled: Made | None = None
    factors: Factors | None = None

    @classmethod
    def of(cls, inputs: Inputs) -> Made:
        """What is there before the first program: the descriptions of prepared operands."""
        return cls({side: slices.described for side, slices in inputs.prepared.items()})

    @property
    def arrays(self) -> list[Array | Place]:
        """All arrays that are kept, with repetitions."""
        described = [*self.described.values()]
        kept: list[Array | Place] = []
        magnitudes: list[Magnitudes] = []
        if self.early is not None:
            for slices in (self.early.left, self.early.right):
                described.append(slices.described)
                kept += slices.planes, slices.mu
        for of in described:
            kept += of.x, of.fields
            if of.tops is not None:
                kept.append(of.tops)
            if of.magnitudes is not None:
                magnitudes.append(of.magnitudes)
        if self.open is not None:
            magnitudes.append(self.open.lower.magnitudes)
            if self.open.lower.products is not None:
                kept.append(self.open.lower.products)
        for each in magnitudes:
            kept += each.left, each.right, *each.results
        kept += self.factors or ()
        return kept + (self.scaled.arrays if self.scaled is not None else [])

    def beside_leading(self, limit: int | None, inputs: Inputs) -> int | None:
        """What a limit leaves beside the leading bits of multiprecision operands that are still to be described."""
        if limit is None:
            return None
        missing = (of.signs.size for side, of in inputs.numbers.items() if side not in self.described)
        return max(limit - sum(map(leading_bytes, missing)), 0)

    def without_slices(self, b: Builder) -> Made:
        """Free early slices, and the largest elements that were found with them; whole descriptions stay."""
        if self.early is not None:
            for slices in (self.early.left, self.early.right):
                b.release(slices.planes, slices.mu)
                if slices.described.only_largest:
                    b.release(slices.described.fields)
        return replace(self, early=None)

    def without_products(self) -> Made:
        """What stays when a product has used early slices and lower bounds, or their memory is freed."""
        scaled = None if self.scaled is None else self.scaled.without_products()
        return replace(self, early=None, open=None, scaled=scaled)

    def without_magnitudes(self) -> Made:
        """Descriptions alone."""
        scaled = None if self.scaled is None else self.scaled.without_magnitudes()
        described = {side: replace(of, magnitudes=None) for side, of in self.described.items()}
        return replace(self, described=described, early=None, open=None, scaled=scaled)

    def without_level(self, b: Builder) -> Made:
        """Free the lower bound; no comparison with it may be under way on another stream."""
        scaled = None if self.scaled is None else self.scaled.without_level(b)
        if self.open is None:
            return replace(self, scaled=scaled)
        self.open.lower.release(b)
        described = {side: replace(of, magnitudes=None) for side, of in self.described.items()}
        return replace(self, open=None, described=described, scaled=scaled)
