"""Operands that are described, and operands that are split into slices or words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.copying import contiguous_rows
from ozaki.schemes import Scaling, Scheme, scaling_of


@dataclass(frozen=True)
class Described:
    """An operand and its description.

    Attributes
    ----------
    x : shape (batch, rows, k); the rows of A, or the columns of B
    fields : int64, shape (6, batch, rows), in the order of `ozaki.bounds.description.FIELDS`
    only_largest : whether only the first and the last field are there, the first one as the bits of the row's largest
        magnitude in place of `top`: enough for max scaling and for words
    magnitudes : the `Magnitudes` of both operands that were taken at the same time for a proof, or None
    numbers : the `NumbersArray` of the rows themselves, if they are multiprecision numbers; else None
    tops : int64, shape (batch, rows): x is the leading bits of 2**-tops numbers; None without `numbers`
    inner : float64, shape (batch, k): factors of inner indices, which scale the rows that are described along k; None
        if they are as given
    summary : of columns of 16-bit floats, what decides how many digits a row of A has; else None
    length : real numbers of a whole row, where x has a part of its inner indices; None where x has all of them
    """

    x: Array
    fields: Array
    only_largest: bool = False
    magnitudes: Any = None
    numbers: Any = None
    tops: Array | None = None
    inner: Array | None = None
    length: int | None = None
    summary: Array | None = None

    @property
    def k(self) -> int:
        """Real numbers of a whole row: a complex element has two."""
        return self.x.dtype.parts * self.x.shape[2] if self.length is None else self.length

    def scaling(self, scheme: Scheme) -> Scaling:
        """The rule that scales the rows for a scheme; all steps that split them or bound their errors ask for it here.

        It depends on the length of whole rows, and `scaling.width` is that of their description, so steps that read a
        part of k must not make either from what they read.

        Raises
        ------
        ValueError
            If the scheme has too few slices for rows so long.
        """
        return scaling_of(scheme, self.k)

    def some_rows(self, b: Builder, batch: tuple[int, int], rows: tuple[int, int]) -> Described:
        """Some rows of some matrices, both given as (first, one after the last).

        Unless these are all, their description is a copy, which `release_rows` frees.
        """
        x = self.x.part(0, *batch).part(1, *rows)
        if x.shape == self.x.shape:
            return self
        fields = contiguous_rows(b, self.fields.part(1, *batch).part(2, *rows))
        numbers = None if self.numbers is None else self.numbers.part(0, *batch).part(1, *rows)
        tops = None if self.tops is None else contiguous_rows(b, self.tops.part(0, *batch).part(1, *rows))
        inner = None if self.inner is None else self.inner.part(0, *batch)
        return replace(self, x=x, fields=fields, magnitudes=None, numbers=numbers, tops=tops, inner=inner)

    def release_rows(self, b: Builder, whole: Described) -> None:
        """Free the description that `whole.some_rows` copied for these rows, if it did."""
        if self.fields.buffer is not whole.fields.buffer:
            b.release(self.fields, *([] if self.tops is None else [self.tops]))


@dataclass(frozen=True)
class Layout:
    """Where slices lie in memory.

    Without tiles, slice s of element (i, row, h) is at byte i * matrix_bytes + row * row_bytes + s * slice_bytes +
    (h // slab) * slab_stride + (h % slab) * (bytes of an element). In tiles (kernels/hardware/tiles.cuh) the rows of a
    tile stand together, 128 elements at a time; a tile's first byte is where its first element would be without tiles.
    Words without tiles lie in fragments (kernels/words/fragments.cuh).

    Attributes
    ----------
    rows, k : stored rows and inner indices, with padding
    matrix_bytes, row_bytes, slice_bytes : bytes from one matrix, row and slice to the next
    slab : inner indices of a row and slice that lie side by side
    slab_stride : bytes from one slab of a row and slice to the next
    size : bytes of all slices
    unit : panels begin at multiples of so many rows, so that they never divide what an engine reads as a whole
    tile : rows of a tile; 0 without tiles
    neighbours : neighbouring columns of the product that a thread holds, for which the rows of a right operand's tile
        are permuted; 0 where they are not
    unsigned : whether residues are in [0, m), else they are symmetric
    shared : in tiles, slices that share the 128 bytes of a row, as one: 2 or 4 where k is at most 64 or 32, else 1
    written_rows : in tiles, rows that kernels have to write; rows beyond, up to `rows`, are uninitialised: panels may
        load them, and their products are discarded
    """

    rows: int
    k: int
    matrix_bytes: int
    row_bytes: int
    slice_bytes: int
    slab: int
    slab_stride: int
    size: int
    unit: int = 16
    tile: int = 0
    neighbours: int = 0
    unsigned: bool = False
    written_rows: int = 0
    shared: int = 1


@dataclass(frozen=True)
class Scales:
    """The powers of two that the rows of an operand are scaled by: images are those of 2**(mu - tops) x.

    Attributes
    ----------
    mu : int32, shape (batch, rows), or (1, rows) where one matrix serves the whole batch
    tops : int64, of the same shape, of multiprecision rows; None where all are 0
    """

    mu: Array
    tops: Array | None = None

    @property
    def step(self) -> int:
        """Entries from one matrix of the batch to the next; 0 if there is only one."""
        return self.mu.steps[0] if self.mu.shape[0] > 1 else 0

    @property
    def places(self) -> tuple[Place, ...]:
        """The addresses of `mu` and, if there are any, of `tops`."""
        return (self.mu.at,) if self.tops is None else (self.mu.at, self.tops.at)

    @property
    def struct(self) -> tuple[int | None, ...]:
        """The struct Scales of kernels/conversion/recombine_numbers.cu, without addresses."""
        return None, 0 if self.tops is None else None, self.step

    def matrices(self, first: int, last: int) -> Scales:
        """Those of matrices first, ..., last - 1 of the batch, or of the only matrix."""
        return self if self.mu.shape[0] == 1 else self.part(0, first, last)

    def part(self, axis: int, first: int, last: int) -> Scales:
        """Those of matrices (axis 0) or rows (axis 1) first, ..., last - 1."""
        tops = None if self.tops is None else self.tops.part(axis, first, last)
        return Scales(self.mu.part(axis, first, last), tops)


@dataclass(frozen=True)
class Slices:
    """The slices or words of an operand.

    Attributes
    ----------
    described : the operand
    planes : int8, the bytes of all slices, in the order of `layout`; also of unsigned residues and of words
    layout : Layout
    mu : int32, shape (batch, rows), the image exponents; of words, the exponents that rows are scaled by
    """

    described: Described
    planes: Array
    layout: Layout
    mu: Array

    @classmethod
    def room(cls, b: Builder, described: Described, layout: Layout) -> Slices:
        """New arrays for the slices of an operand and their exponents."""
        batch, rows, _ = described.x.shape
        name = described.x.buffer.name
        planes = b.array(f"{name}.planes", (layout.size,), "b")
        return cls(described, planes, layout, b.array(f"{name}.exponents", (batch, rows), "i", counted=False))

    @property
    def step(self) -> int:
        """Bytes of `planes` from one matrix of the batch to the next; 0 if there is only one."""
        return self.layout.matrix_bytes if self.mu.shape[0] > 1 else 0

    @property
    def mu_step(self) -> int:
        """Entries of `mu` from one matrix of the batch to the next; 0 if there is only one."""
        return self.scales.step

    @property
    def operand(self) -> tuple[None, int, int]:
        """The struct Operand of kernels: an address, and the bytes from one slice and one matrix to the next."""
        return None, self.layout.slice_bytes, self.step

    def place_of_matrix(self, i: int) -> Place:
        """The address of the slices of matrix i of the batch, or of the only matrix."""
        return self.planes.at.plus(i * self.step)

    @property
    def scales(self) -> Scales:
        """The powers of two that the rows were scaled by."""
        return Scales(self.mu, self.described.tops)

    def some_rows(self, b: Builder, first: int, last: int) -> Slices:
        """The slices of rows first, ..., last - 1 of each matrix, with `first` a multiple of `layout.unit`.

        Kernels may read beyond these rows, as far as the whole operand has rows or padding. Unless these are all rows,
        the exponents are a copy, which `release_rows` frees.
        """
        if (first, last) == (0, self.mu.shape[1]):
            return self
        mu = contiguous_rows(b, self.mu.part(1, first, last))
        tops = self.described.tops
        tops = None if tops is None else contiguous_rows(b, tops.part(1, first, last))
        described = replace(self.described, x=self.described.x.part(1, first, last), tops=tops)
        skipped = first * self.layout.row_bytes
        return Slices(described, self.planes.part(0, skipped, self.planes.shape[0]), self.layout, mu)

    def release_rows(self, b: Builder, whole: Slices) -> None:
        """Free the exponents that `whole.some_rows` copied for these rows, if it did."""
        if self.mu.buffer is not whole.mu.buffer:
            tops = self.described.tops
            b.release(self.mu, *([] if tops is None else [tops]))
