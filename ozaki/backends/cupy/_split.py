"""Operands cut into integer slices on the device, in the order that an engine reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil
from typing import Any

import cupy as cp
import numpy as np

from ozaki._description import FIELDS, Described
from ozaki.backends.cupy._tops import Tops
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, struct
from ozaki.backends.cupy.launching._tape import Tape
from ozaki.schemes import Digits, Residues, Scheme, constants, magnitude_bits, scaling_of


@dataclass(frozen=True)
class Layout:
    """Where slice s of element (b, row, h) lies, in bytes from the start.

    Plain: b * batch + row * row_bytes + s * slice + (h // slab) * slab_stride + h % slab, the last one times the
    bytes of an element. In tiles (hardware/tiles.cuh) rows of a tile stand together, 128 elements at a time; the first
    byte of a tile is where the plain order has it.
    `unit` rows can be cut off without cutting what the engine reads at once. Rows of a tile of the right operand are
    permuted for a product of which a thread has so many `neighbours`. Residues are symmetric, or `unsigned` bytes.
    In tiles, rows from `filled` on may hold anything: they are multiplied with panels only, for nothing.
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
    described : Described
    planes : int8 array, in the order of `layout`; its bytes are those of residues that are not symmetric
    layout : Layout
    mu : int32 array, shape (batch, rows), the image exponents
    """

    described: Described
    planes: Any
    layout: Layout
    mu: Any

    @property
    def step(self) -> int:
        """Bytes of `planes` from one batch entry to the next; 0 for the only one."""
        return self.layout.batch if self.mu.shape[0] > 1 else 0

    @property
    def mu_step(self) -> int:
        """Entries of `mu` from one batch entry to the next; 0 for the only one."""
        return int(self.mu.shape[1]) if self.mu.shape[0] > 1 else 0

    @property
    def operand(self) -> tuple[None, int, int]:
        """The struct Operand of kernels: an address, bytes between slices and between batch entries."""
        return None, self.layout.slice, self.step

    def of_batch(self, b: int) -> int:
        """Address of the slices of batch entry b, or of the only one."""
        return int(self.planes.data.ptr) + b * self.step

    def exponents(self, b: int) -> Any:
        """mu of batch entry b, or of the only one, shape (1, rows)."""
        b = b if self.mu.shape[0] > 1 else 0
        return self.mu[b : b + 1]

    def some_rows(self, first: int, last: int) -> Slices:
        """A view of rows that begin at a multiple of the layout's unit; what follows them are rows or padding."""
        if (first, last) == (0, self.mu.shape[1]):
            return self
        described = Described(self.described.x[:, first:last], self.described.fields[:, :, first:last])
        Tape.misses()
        mu = cp.ascontiguousarray(self.mu[:, first:last])
        return Slices(described, self.planes[first * self.layout.row_bytes :], self.layout, mu)


def split(operand: Described, side: str, scheme: Scheme, layout: Layout) -> Slices:
    """The slices of a whole operand."""
    x = operand.x
    batch, rows, _ = x.shape
    planes, mu = cp.empty(layout.size, np.int8), cp.empty((batch, rows), np.int32)
    launch = _splitting(cp.cuda.runtime.getDevice(), View.of(x), side, scheme, layout, isinstance(operand, Tops))
    launch(x.data, operand.fields.data, mu.data, planes.data)
    return Slices(operand, planes, layout, mu)


@lru_cache(maxsize=1024)
def _splitting(device: int, view: View, side: str, scheme: Scheme, layout: Layout, largest: bool) -> Launch:
    batch, rows, k = view.shape
    scaling = scaling_of(scheme, k)
    macros = cutting_macros(view, side, scheme, layout) | {"LARGEST": int(largest)}
    assert scaling.statistic == "peak" or not largest
    statistic = magnitude_bits(k) if largest else FIELDS.index(scaling.statistic)
    grid = (batch * ceil(layout.rows / 32) * (layout.k // 128),)
    file, function, threads = "conversion/split.cu", "split", 128
    if isinstance(scheme, Digits) and scheme.word == "fp16":
        file, function, threads = "conversion/split_fp16.cu", "split_fp16", 256
    return Launch(
        file, function, macros, grid, (threads,), None, *view.steps, rows, k, layout.rows, layout.k, None,
        batch * rows, statistic, scaling.step, scaling.base, scaling.threshold, None, None,
        layout.batch, layout.row_bytes, layout.slice, layout.slab, layout.slab_stride,
        *cutting_constants(scheme, side, layout),
    )  # fmt: skip


def cutting_macros(view: View, side: str, scheme: Scheme, layout: Layout) -> Macros:
    """The macros of kernels/conversion/cut.cuh, and ALONG_K."""
    return {
        "INPUT": view.ctype,
        "SLICES": scheme.count,
        "WORDS": constants.image_words(scheme),
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0,
        "ALONG_K": view.along_k,
        "REVERSED": int(isinstance(scheme, Digits) and side == "right"),
        "TILE": layout.tile,
        "NEIGHBOURS": layout.neighbours,
    }


def cutting_constants(scheme: Scheme, side: str, layout: Layout) -> tuple[Any, ...]:
    """MORE_ARGUMENTS of kernels/conversion/cut.cuh."""
    return (_residue_constants(scheme, side, layout.unsigned),) if isinstance(scheme, Residues) else ()


@cache
def _residue_constants(scheme: Residues, side: str, unsigned: bool) -> Any:
    """The struct ResidueConstants of kernels/arithmetic/residues.cuh."""
    return struct(constants.residue_constants(scheme, side, unsigned))


@cache
def accumulator_moduli(scheme: Residues, unsigned: bool) -> Any:
    """The struct AccumulatorModuli of kernels/arithmetic/residues.cuh."""
    return struct(constants.accumulator_moduli(scheme, unsigned))
