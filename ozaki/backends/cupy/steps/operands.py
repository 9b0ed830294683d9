"""Operands on their way: described, and cut into slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.copying import contiguous_rows


@dataclass(frozen=True)
class Described:
    """An operand and its description.

    Attributes
    ----------
    x : shape (batch, rows, k); the rows of A, or the columns of B
    fields : int64, shape (6, batch, rows), in the order of `ozaki.bounds.description.FIELDS`
    largest : of the fields only the first is there, as bits of the largest element, and the last: what max scaling and
        words need
    magnitudes : those that were taken at the same time for a proof, if any were
    """

    x: Array
    fields: Array
    largest: bool = False
    magnitudes: Any = None

    @property
    def k(self) -> int:
        """Length of a row."""
        return self.x.shape[2]

    def some_rows(self, b: Builder, batch: tuple[int, int], rows: tuple[int, int]) -> Described:
        """Rows first .. last of matrices first .. last; their description is a copy. `release_rows` frees it."""
        x = self.x.some(0, *batch).some(1, *rows)
        if x.shape == self.x.shape:
            return self
        fields = contiguous_rows(b, self.fields.some(1, *batch).some(2, *rows))
        return replace(self, x=x, fields=fields, magnitudes=None)

    def release_rows(self, b: Builder, whole: Described) -> None:
        """Free what `some_rows` made of the whole operand."""
        if self.fields.buffer is not whole.fields.buffer:
            b.release(self.fields)


@dataclass(frozen=True)
class Layout:
    """Where slice s of element (b, row, h) lies, in bytes from the start.

    Plain: b * batch + row * row_bytes + s * slice + (h // slab) * slab_stride + h % slab, the last one times the
    bytes of an element. In tiles (kernels/hardware/tiles.cuh) rows of a tile stand together, 128 elements at a time;
    the first byte of a tile is where the plain order has it.

    Attributes
    ----------
    rows, k : that are stored, with padding
    size : bytes of all slices
    unit : so many rows can be cut off without cutting what the engine reads at once
    tile : rows of a tile; 0 without tiles
    neighbours : rows of a tile of the right operand are permuted for a product of which a thread has so many
    unsigned : residues are in [0, m), else symmetric
    filled : in tiles, rows from here on may hold anything: they are multiplied with panels only, for nothing
    """

    rows: int
    k: int
    batch: int
    row_bytes: int
    slice: int
    slab: int
    slab_stride: int
    size: int
    unit: int = 16
    tile: int = 0
    neighbours: int = 0
    unsigned: bool = False
    filled: int = 0


@dataclass(frozen=True)
class Slices:
    """One operand, split.

    Attributes
    ----------
    described : what it is split from
    planes : int8, in the order of `layout`; its bytes are those of residues that are not symmetric, or of words
    layout : Layout
    mu : int32, shape (batch, rows), the image exponents
    """

    described: Described
    planes: Array
    layout: Layout
    mu: Array

    @classmethod
    def room(cls, b: Builder, described: Described, layout: Layout) -> Slices:
        """Where the slices of an operand will be."""
        batch, rows, _ = described.x.shape
        name = described.x.buffer.name
        planes = b.array(f"{name}.planes", (layout.size,), "b")
        return cls(described, planes, layout, b.array(f"{name}.exponents", (batch, rows), "i", counted=False))

    @property
    def step(self) -> int:
        """Bytes of `planes` from one matrix of the batch to the next; 0 for the only one."""
        return self.layout.batch if self.mu.shape[0] > 1 else 0

    @property
    def mu_step(self) -> int:
        """Entries of `mu` from one matrix of the batch to the next; 0 for the only one."""
        return self.mu.shape[1] if self.mu.shape[0] > 1 else 0

    @property
    def operand(self) -> tuple[None, int, int]:
        """The struct Operand of kernels: an address, bytes between slices and between matrices of the batch."""
        return None, self.layout.slice, self.step

    def of_batch(self, i: int) -> Place:
        """The slices of matrix i of the batch, or of the only one."""
        return self.planes.at.plus(i * self.step)

    def exponents(self, i: int) -> Array:
        """The exponents of matrix i of the batch, or of the only one, shape (1, rows)."""
        i = i if self.mu.shape[0] > 1 else 0
        return self.mu.some(0, i, i + 1)

    def some_rows(self, b: Builder, first: int, last: int) -> Slices:
        """Rows that begin at a multiple of the layout's unit; what follows them are rows or padding.

        The exponents are a copy, which `release_rows` frees.
        """
        if (first, last) == (0, self.mu.shape[1]):
            return self
        mu = contiguous_rows(b, self.mu.some(1, first, last))
        described = replace(self.described, x=self.described.x.some(1, first, last))
        skipped = first * self.layout.row_bytes
        return Slices(described, self.planes.some(0, skipped, self.planes.shape[0]), self.layout, mu)

    def release_rows(self, b: Builder, whole: Slices) -> None:
        """Free what `some_rows` made of the whole slices."""
        if self.mu.buffer is not whole.mu.buffer:
            b.release(self.mu)
