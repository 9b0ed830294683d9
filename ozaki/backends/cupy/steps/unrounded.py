"""The un-rounded product: exact integers in planes, to which parts of k are added until they are rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any, Literal, NamedTuple, Protocol

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.copying import mirror
from ozaki.backends.cupy.steps.cutting import accumulator_moduli
from ozaki.backends.cupy.steps.epilogue import (
    Combine,
    Expression,
    Round,
    arguments_of,
    expression_of,
    macros_of,
    places_of,
)
from ozaki.backends.cupy.steps.faults import flip
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.backends.cupy.steps.operands import Scales
from ozaki.backends.cupy.steps.wide import combine, is_wide, round_wide
from ozaki.caches import cached
from ozaki.schemes import ComplexSlices, Digits, Residues, constants
from ozaki.schemes.constants import KernelScheme
from ozaki.schemes.moduli import root_of_minus_one


class Moduli(NamedTuple):
    """Some moduli, one after the other, with equally many digits, whose slice products are gathered.

    Attributes
    ----------
    digits : of a residue
    first : how many moduli with so many digits come before these
    number : how many these are
    product, byte : how many slice products, and how many bytes of residues, come before those of these moduli
    """

    digits: int
    first: int
    number: int
    product: int
    byte: int

    @property
    def products(self) -> int:
        """Slice products of these moduli."""
        return self.number * self.digits * (self.digits + 1) // 2

    @property
    def bytes(self) -> int:
        """Bytes of residues modulo these moduli."""
        return self.number * self.digits

    @property
    def next(self) -> tuple[int, int]:
        """`product` and `byte` of the moduli that follow."""
        return self.product + self.products, self.byte + self.bytes


Symmetry = Literal["symmetric", "hermitian"]
"""Of a result: equal to its transpose, or to its conjugate transpose."""


class Unrounded(Protocol):
    """The exact product of some rows and columns, before it is rounded: what engines that `keeps` says so of return."""

    def finish(self, b: Builder, device: Device, epilogue: Round | Combine) -> None:
        """Round it, or the expression, into the array of an epilogue, once."""
        ...

    def release(self, b: Builder) -> None:
        """Free its memory."""
        ...


@dataclass(frozen=True)
class Planes:
    """Exact integers in planes, to which engines add the parts of k that they multiply one after another.

    Attributes
    ----------
    scheme : the scheme whose products they are
    planes : shape (planes, batch, m, n or more): bytes y_t of residues, or diagonals of digits, int32 or int64
    left, right : the powers of two that the rows of both operands were scaled by
    symmetry : of a product of which the planes have no entries above the diagonal, or None
    """

    scheme: KernelScheme
    planes: Array
    left: Scales
    right: Scales
    symmetry: Symmetry | None = None

    @classmethod
    def of_matrices(cls, scheme: KernelScheme, memory: Array, left: Scales, right: Scales) -> Planes:
        """Those of matrices that lie one after the other: `memory` has shape (batch, planes, m, n or more)."""
        shape, steps = ((x[1], x[0], *x[2:]) for x in (memory.shape, memory.steps))
        return cls(scheme, Array(memory.buffer, memory.offset, memory.dtype, shape, steps), left, right)

    def matrix(self, i: int) -> Planes:
        """Those of matrix i of the batch, or of the only matrix that there is room for."""
        at = i if self.planes.shape[1] > 1 else 0
        return replace(
            self,
            planes=self.planes.part(1, at, at + 1),
            left=self.left.matrices(i, i + 1),
            right=self.right.matrices(i, i + 1),
        )

    def release(self, b: Builder) -> None:
        """Free its memory."""
        b.release(self.planes)

    def add_residues(self, b: Builder, accumulators: Array, moduli: Moduli, first: bool) -> None:
        """Add the products of a part of k modulo m_t, for some moduli.

        Parameters
        ----------
        accumulators : the products, int32, shape (moduli.products or more, m, columns), of one matrix
        first : whether this is the first part of k, which sets the planes instead
        """
        assert isinstance(self.scheme, Residues)
        y = self.planes.part(0, moduli.byte, moduli.byte + moduli.bytes).at_index(1, 0)
        if moduli.digits > 1:
            combine(b, self.scheme, moduli.digits, accumulators, y, moduli.first, not first)
            return
        of_bytes = self.scheme.moduli[: self.scheme.by_digits[0]]
        entries = accumulators.shape[1] * accumulators.shape[2]
        kernel = _reduce_kernel(of_bytes, entries, moduli.first, moduli.number, not first)
        b.launch(kernel, accumulators, Out(self.planes))

    def add_diagonals(self, b: Builder, products: Array, first: bool, diagonal: int | None = None) -> None:
        """Add the products of a part of k, exact int32 or float32.

        Parameters
        ----------
        products : shape (slices, m, columns), or (m, columns) for a single diagonal, of one matrix
        first : whether this is the first part of k, which sets the planes instead
        diagonal : number of the single diagonal, or None for all diagonals
        """
        sums = self.planes if diagonal is None else self.planes.at_index(0, diagonal)
        kernel = _collect_kernel(products.dtype.ctype, sums.dtype.ctype, products.size, not first)
        b.launch(kernel, products, Out(sums))

    def finish(self, b: Builder, device: Device, epilogue: Round | Combine) -> None:
        """Round it, or the expression, into the array of an epilogue, once."""
        if epilogue.projection is not None:
            flip(b, self.planes)
        self._round(b, device, epilogue)
        if self.symmetry is not None:
            assert isinstance(epilogue.out, Array)
            mirror(b, epilogue.out, conjugate=self.symmetry == "hermitian")

    def _round(self, b: Builder, device: Device, epilogue: Round | Combine) -> None:
        """Round; of a triangle only entries below the diagonal, and in blocks that the diagonal crosses."""
        out, lower = epilogue.out, self.symmetry is not None
        scaled = self.left.tops is not None or self.right.tops is not None
        if isinstance(out, NumbersArray) or is_wide(self.scheme, scaled):
            assert isinstance(self.scheme, Residues) and not (isinstance(epilogue, Round) and epilogue.undecided)
            round_wide(b, self.scheme, self.planes, self.left, self.right, out, device.block_memory)
            return
        batch, _, n = out.shape
        if batch > _MOST_BLOCKS or n > _MOST_BLOCKS * _COLUMNS:
            most = _MOST_BLOCKS * _COLUMNS
            for i, col in product(range(0, batch, _MOST_BLOCKS), range(0, n, most)):
                last, end = min(i + _MOST_BLOCKS, batch), min(col + most, n)
                left, right = (x.matrices(i, last) for x in (self.left, self.right))
                planes = self.planes.part(1, i, last).part(3, col, min(col + most, self.planes.shape[3]))
                symmetry = self.symmetry if col == 0 and end == n else None
                some = Planes(self.scheme, planes, left, right.part(1, col, end), symmetry)
                some._round(b, device, epilogue.part(0, i, last).part(2, col, end))
            return
        of_out = expression_of(epilogue)
        assert isinstance(self.scheme, Residues) or of_out is None or of_out[3] is None
        recombine = _recombine_complex_kernel if isinstance(self.scheme, ComplexSlices) else _recombine_kernel
        steps = self.left.step, self.right.step
        kernel = recombine(self.scheme, self.planes.view, out.view, *steps, of_out, lower)
        b.launch(kernel, self.planes, self.left.mu, self.right.mu, Out(out), *places_of(epilogue))


@dataclass(frozen=True)
class Quadrants:
    """One matrix in the bytes y_t of the seven products of Strassen-Winograd.

    Attributes
    ----------
    scheme : Residues
    planes : shape (moduli, 7, rows, cols or more), the products with `rows` rows and `cols` columns each
    cols : as above
    mu, nu : the exponents of both operands
    """

    scheme: Residues
    planes: Array
    cols: int
    mu: Array
    nu: Array

    def finish(self, b: Builder, device: Device, epilogue: Round | Combine) -> None:
        """Round it, or the expression, into the array of an epilogue, once."""
        out = epilogue.out
        assert isinstance(out, Array)
        if epilogue.projection is not None:
            flip(b, self.planes)
        expression = expression_of(epilogue)
        kernel = _recombine_quadrants_kernel(self.scheme, self.planes.view, out.view, self.cols, expression)
        b.launch(kernel, self.planes, self.mu, self.nu, Out(out), *places_of(epilogue))

    def release(self, b: Builder) -> None:
        """Free its memory."""
        b.release(self.planes)


@cached(1024)
def _recombine_kernel(
    scheme: KernelScheme, planes: View, out: View, mu_step: int, nu_step: int, expression: Expression | None,
    lower: bool,
) -> Kernel:  # fmt: skip
    batch, m, n = out.shape
    few = isinstance(scheme, Residues) and constants.product_limbs(scheme) <= _FEW_LIMBS
    together = 2 if few and expression is None else 1
    macros = _macros(scheme, out) | macros_of(expression) | {
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0, "SUM64": int(planes.dtype.itemsize == 8),
        "TOGETHER": together, "LOWER": int(lower),
    }  # fmt: skip
    grid = ceil(m / (8 * together)), ceil(n / _COLUMNS), batch
    return Kernel.of(
        "conversion/recombine.cu", "recombine", macros, grid, (32, 8), None, *planes.steps[:3],
        None, mu_step, None, nu_step, None, *out.steps, m, n,
        *([_crt_constants(scheme)] if isinstance(scheme, Residues) else []), *arguments_of(expression),
    )  # fmt: skip


@cached(1024)
def _recombine_complex_kernel(
    scheme: ComplexSlices, planes: View, out: View, mu_step: int, nu_step: int, expression: Expression | None,
    lower: bool,
) -> Kernel:  # fmt: skip
    batch, m, n = out.shape
    macros: Macros = {
        "OUTPUT": out.dtype.ctype_of_part,
        "MODULI": scheme.of.count,
        "LIMBS": constants.product_limbs(scheme),
    }
    rooted = sum(map(bool, map(root_of_minus_one, scheme.of.moduli)))  # which come first
    macros |= {"ROOTED": rooted, "LOWER": int(lower)} | macros_of(expression)
    of_moduli = struct((*constants.crt_constants(scheme.of), *constants.complex_moduli_constants(scheme)))
    return Kernel.of(
        "conversion/recombine_complex.cu", "recombine_complex", macros, (ceil(m / 8), ceil(n / _COLUMNS), batch),
        (32, 8), None, *planes.steps[:3], None, mu_step, None, nu_step, None, *out.steps_of_parts, m, n, of_moduli,
        *arguments_of(expression),
    )  # fmt: skip


@cached(1024)
def _recombine_quadrants_kernel(
    scheme: Residues, planes: View, out: View, cols: int, expression: Expression | None
) -> Kernel:
    (_, m, n), rows = out.shape, planes.shape[2]
    grid = (ceil(rows / 4) * ceil(min(cols, n) / 128),)
    return Kernel.of(
        "conversion/recombine_quadrants.cu", "recombine_quadrants", _macros(scheme, out) | macros_of(expression), grid,
        (32, 4), None, *planes.steps[1:3],
        None, None, None, *out.steps[1:], m, n, _crt_constants(scheme), rows, cols,
        accumulator_moduli(scheme.moduli, unsigned=True), *arguments_of(expression),
    )  # fmt: skip


def _macros(scheme: KernelScheme, out: View) -> Macros:
    return {"OUTPUT": out.dtype.ctype, "SLICES": scheme.count, "LIMBS": constants.product_limbs(scheme)}


_FEW_LIMBS = 4
"""The most limbs of an integer for which a thread has registers to load two rows together (tests/test_compile.py)."""

_COLUMNS = 128
"""Columns that a block of kernels/conversion/recombine.cu owns."""

_MOST_BLOCKS = 65535
"""The most blocks of a grid on its second and third axes."""


@cached(256)
def _crt_constants(scheme: Residues) -> Any:
    """The struct CrtConstants of kernels/arithmetic/crt.cuh."""
    return struct(constants.crt_constants(scheme))


@cached(1024)
def _reduce_kernel(of_bytes: tuple[int, ...], entries: int, first: int, count: int, add: bool) -> Kernel:
    moduli = accumulator_moduli(of_bytes, unsigned=False)
    grid = (ceil(entries / 4096), count)
    return Kernel.of("conversion/reduce.cu", "reduce", {}, grid, (256,), None, None, entries, first, int(add), moduli)


@cached(1024)
def _collect_kernel(products: str, sums: str, count: int, add: bool) -> Kernel:
    macros: Macros = {"PRODUCT": products, "SUM": sums}
    grid = (ceil(count / 1024),)
    return Kernel.of("conversion/collect.cu", "collect", macros, grid, (256,), None, None, count, int(add))
