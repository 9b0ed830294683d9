"""Residues of any number of moduli: images of any width to slices, and slice products to results.

Of multiprecision numbers, and of floating-point ones where there are more moduli than fit the kernels of `cutting` and
`unrounded`, which keep a whole image and a whole integer in registers.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps import tables
from ozaki.backends.cupy.steps.numbers import NumbersArray, NumbersView
from ozaki.backends.cupy.steps.operands import Described, Layout, Scales, Slices
from ozaki.bounds.description import FIELDS
from ozaki.caches import cached
from ozaki.schemes import Residues, Scaling, Scheme, Words
from ozaki.schemes.constants import product_limbs

_SHARED = 48 * 1024
"""Most bytes of dynamic shared memory of a block that splits, where an image fits them."""

_MOST_EIGHTS = 8
"""Eights of limbs, at most, whose sums a block of kernels/conversion/recombine_numbers.cu holds at a time."""

_SHARED_OF_ENTRIES = 72 * 1024
"""Most bytes of dynamic shared memory of a block of kernels/conversion/recombine_numbers.cu, where its entries fit.

Three such blocks fit a multiprocessor of Hopper.
"""

_MANY, _FEW = 8, 2
"""Groups of eight columns of a block that splits (GROUPS of the kernel): usually, and where images are long."""


def is_wide(scheme: Scheme | Words, multiprecision: bool) -> bool:
    """Whether the kernels of this file split operands and round results, not those of `cutting` and `unrounded`.

    `multiprecision`: whether the operands, or the result, are.
    """
    return multiprecision or (isinstance(scheme, Residues) and scheme.several)


def split_wide(b: Builder, operand: Described, side: str, scheme: Residues, layout: Layout, most_shared: int) -> Slices:
    """Split a described operand into residues, or the digits of residues and their sums, stored in `layout`.

    `most_shared`: bytes of shared memory that a block of the device may take.

    Raises
    ------
    ValueError
        If an image takes more than that.
    """
    slices = Slices.room(b, operand, layout)
    numbers = operand.numbers
    view = operand.x.view if numbers is None else numbers.view
    scaled = operand.inner is not None
    kernel, limbs, words = _split_kernel(view, operand.scaling(scheme), scheme, layout, most_shared, scaled)
    folds = b.table("folds", tables.folds(scheme, side, limbs, words))
    moduli = b.table("moduli", tables.moduli(scheme, side, limbs, layout.unsigned))
    places = (operand.x,) if numbers is None else numbers.places
    tops = operand.fields if operand.tops is None else operand.tops
    factors = () if operand.inner is None else (operand.inner,)
    b.launch(kernel, *places, operand.fields, tops, Out(slices.mu), Out(slices.planes), folds, moduli, *factors)
    b.release(folds, moduli)
    return slices


@cached(1024)
def _split_kernel(
    x: View | NumbersView, scaling: Scaling, scheme: Residues, layout: Layout, most_shared: int, scaled: bool
) -> tuple[Kernel, int, int]:
    """The kernel, the limbs of its images, and the words that an image takes."""
    batch, rows, k = x.shape
    limbs = -(-(scheme.largest.bit_length() + 2) // 32)  # of a raised image, which may be rounded up to a power of two
    words = round_up(limbs + 1, 8)
    pitch = words + 4  # an odd multiple of 4
    groups, runs = _rows_at_once(pitch, layout.rows)
    check_shared(_bytes_of_images(pitch, groups, runs), most_shared)
    macros: Macros = {"GROUPS": groups, "ALONG_K": x.along_k, "UNSIGNED": int(layout.unsigned), "TILE": layout.tile}
    macros["SHORT"] = next((most for most in (4, tables.SHORT) if limbs <= most), 0)
    macros |= {"NEIGHBOURS": layout.neighbours, "MULTIPRECISION": int(isinstance(x, NumbersView))}
    if isinstance(x, NumbersView):
        source = x.struct
    else:
        macros["INPUT"] = x.dtype.ctype
        source = (None, *x.steps)
    factors: tuple[None, ...] = ()
    if scaled:
        macros["INNER"], factors = 1, (None,)
    grid = (batch * ceil(layout.rows / runs) * (layout.k // (8 * groups)),)
    kernel = Kernel.of(
        "conversion/split_numbers.cu", "split_numbers", macros, grid, (128,), source, rows, k, layout.rows, layout.k,
        None, None, batch * rows, FIELDS.index(scaling.statistic), scaling.step, scaling.base, scaling.threshold, None,
        (None, layout.matrix_bytes, layout.row_bytes, layout.slice_bytes), None, None, scheme.by_digits, limbs, words,
        pitch, runs.bit_length() - 1, *factors, shared_mem=_bytes_of_images(pitch, groups, runs),
    )  # fmt: skip
    return kernel, limbs, words


def _rows_at_once(pitch: int, rows: int) -> tuple[int, int]:
    """Groups of columns, and rows of a block, for images that lie `pitch` limbs apart."""
    groups, runs = _MANY, _MOST_RUNS
    if _bytes_of_images(pitch, groups, 1) > _SHARED:
        groups = _FEW
    while runs > 1 and (runs >= 2 * rows or _bytes_of_images(pitch, groups, runs) > _SHARED):
        runs //= 2
    return groups, runs


def _bytes_of_images(pitch: int, groups: int, runs: int) -> int:
    """Dynamic shared memory of kernels/conversion/split_numbers.cu."""
    return 8 * runs + 4 * runs * (8 * groups * pitch + 4)


_MOST_RUNS = 8
"""Rows of a block at most: so many neighbouring limbs are as many bytes as memory transfers at a time."""


def check_shared(nbytes: int, most: int) -> None:
    """Refuse integers that are too long for the shared memory of a block.

    Raises
    ------
    ValueError
    """
    if nbytes > most:
        raise ValueError(
            f"accuracy: its integers take {nbytes} bytes of shared memory, and a block of this device has {most}; ask "
            "for less, or move the operands with ozaki.asnumpy"
        )


def combine(b: Builder, scheme: Residues, digits: int, accumulators: Array, y: Array, first: int, add: bool) -> None:
    """Combine int32 products of digits to residues, for some moduli with so many digits.

    Parameters
    ----------
    accumulators : shape (products of these moduli, m, columns)
    y : bytes, shape (digits of these moduli, m, columns)
    first : how many moduli with so many digits come before
    add : whether the result is added to the residues that are there: those of an earlier part of k
    """
    entries, some = y.shape[1] * y.shape[2], y.shape[0] // digits
    table = b.table("combinations", tables.combinations(scheme, digits)[_COMBINATION * first :])
    b.launch(_combine_kernel(digits, entries, some, add), accumulators, Out(y), table)
    b.release(table)


_COMBINATION = 48
"""Bytes of the struct Combination of kernels/conversion/combine_digits.cu."""


@cached(1024)
def _combine_kernel(digits: int, entries: int, some: int, add: bool) -> Kernel:
    grid = ceil(entries / 1024), some
    file, function = "conversion/combine_digits.cu", "combine_digits"
    return Kernel.of(file, function, {"DIGITS": digits}, grid, (256,), None, None, entries, int(add), None)


def round_wide(
    b: Builder, scheme: Residues, y: Array, left: Scales, right: Scales, out: Array | NumbersArray, most_shared: int
) -> None:
    """Round exact integers into out, once; y: the bytes of their residues, shape (bytes, batch, m, n or more).

    `most_shared`, Raises: as of `split_wide`.
    """
    of_scheme = tables.weights(scheme)
    weights, minus_modulus = b.table("weights", of_scheme[0]), b.table("modulus", of_scheme[1])
    kernel = _recombine_kernel(scheme, y.view, out.view, left.struct, right.struct, most_shared)
    places = out.places if isinstance(out, NumbersArray) else (out.at,)
    b.launch(kernel, y, *left.places, *right.places, *map(Out, places), weights, minus_modulus)
    b.release(weights, minus_modulus)


@cached(1024)
def _recombine_kernel(
    scheme: Residues,
    y: View,
    out: View | NumbersView,
    left: tuple[int | None, ...],
    right: tuple[int | None, ...],
    most_shared: int,
) -> Kernel:
    batch, m, n = out.shape
    planes, limbs = y.shape[0], product_limbs(scheme)
    steps = -(-planes // tables.STEP)
    pitch = 8 * steps + 4  # an odd multiple of 4

    eights = round_up(limbs + 1, 8) // 8
    panel = ceil(eights / ceil(eights / _MOST_EIGHTS))

    def shared(groups: int) -> int:
        return 8 * panel * 8 * (8 * groups + 8) + 8 * groups * 4 * (pitch + limbs)

    groups = next((groups for groups in (16, 8) if shared(groups) <= _SHARED_OF_ENTRIES), 2)
    check_shared(shared(groups), most_shared)
    macros: Macros = {"GROUPS": groups, "MULTIPRECISION": int(isinstance(out, NumbersView))}
    result: tuple[Any, ...]
    if isinstance(out, NumbersView):
        result = (None, None, None, out.limb, out.limbs, out.bits, *out.steps)
    else:
        macros["OUTPUT"] = out.dtype.ctype
        result = (None, *out.steps)
    grid = (batch * m * ceil(n / (8 * groups)),)
    return Kernel.of(
        "conversion/recombine_numbers.cu", "recombine_numbers", macros, grid, (128,),
        (None, *y.steps[:3], planes), left, right, result, m, n, None, None, limbs, steps, pitch,
        panel, shared_mem=shared(groups),
    )  # fmt: skip
