"""The un-rounded product: exact integers in planes, to which parts of k are added until they are rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from math import ceil
from typing import Any

from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.combined import Expression, addend_of, arguments_of, expression_of, macros_of
from ozaki.backends.cupy.steps.cutting import accumulator_moduli
from ozaki.schemes import Digits, Residues, constants
from ozaki.schemes.constants import KernelScheme


@dataclass(frozen=True)
class Unrounded:
    """Exact integers, which can only get another part of k added, or be rounded, once.

    Attributes
    ----------
    scheme : the scheme whose products they are
    planes : shape (slices, batch, m, n or more): bytes y_t of residues, or diagonals of digits, int32 or int64
    mu, nu : int32, shapes (batch, m) and (batch, n), or (1, m) and (1, n) where one matrix serves the whole batch; the
        integers are 2**(mu_i + nu_j) times the product
    """

    scheme: KernelScheme
    planes: Array
    mu: Array
    nu: Array

    def add_residues(self, b: Builder, accumulators: Array, moduli: tuple[int, int], first: bool) -> None:
        """Add the products of a part of k modulo m_t, for moduli first, ..., last - 1.

        Parameters
        ----------
        accumulators : the products, int32, shape (last - first or more, m, columns), of one matrix
        moduli : (first, last)
        first : whether this is the first part of k, which sets the planes instead
        """
        assert isinstance(self.scheme, Residues)
        start, last = moduli
        kernel = _reduce_kernel(
            self.scheme, accumulators.shape[1] * accumulators.shape[2], start, last - start, not first
        )
        b.launch(kernel, accumulators, Out(self.planes.at))

    def add_diagonals(self, b: Builder, products: Array, first: bool, diagonal: int | None = None) -> None:
        """Add the products of a part of k, exact int32 or float32.

        Parameters
        ----------
        products : shape (slices, m, columns), or (m, columns) for a single diagonal, of one matrix
        first : whether this is the first part of k, which sets the planes instead
        diagonal : number of the single diagonal, or None for all diagonals
        """
        sums = self.planes if diagonal is None else self.planes.at_index(0, diagonal)
        kernel = _collect_kernel(products.char, sums.char, products.size, not first)
        b.launch(kernel, products, Out(sums.at))

    def round_into(self, b: Builder, out: Array) -> None:
        """Round the integers, or the expression that `out` has, into out, shape (batch, m, n), once."""
        batch, _, n = out.shape
        if batch > _MOST_BLOCKS or n > _MOST_BLOCKS * _COLUMNS:
            most = _MOST_BLOCKS * _COLUMNS
            for i, col in product(range(0, batch, _MOST_BLOCKS), range(0, n, most)):
                last, end = min(i + _MOST_BLOCKS, batch), min(col + most, n)
                mu, nu = (x.part(0, i, last) if x.shape[0] > 1 else x for x in (self.mu, self.nu))
                planes = self.planes.part(1, i, last).part(3, col, min(col + most, self.planes.shape[3]))
                some = replace(self, planes=planes, mu=mu, nu=nu.part(1, col, end))
                some.round_into(b, out.part(0, i, last).part(2, col, end))
            return
        steps = ((x.view.steps[0] if x.shape[0] > 1 else 0) for x in (self.mu, self.nu))
        kernel = _recombine_kernel(self.scheme, self.planes.view, out.view, *steps, expression_of(out))
        b.launch(kernel, self.planes, self.mu, self.nu, Out(out.at), *addend_of(out))


def round_quadrants(b: Builder, scheme: Residues, planes: Array, cols: int, mu: Array, nu: Array, out: Array) -> None:
    """Round one matrix from the bytes y_t of the seven products of Strassen-Winograd.

    planes : shape (moduli, 7, rows, cols or more), the products with `rows` rows and `cols` columns each
    """
    kernel = _recombine_quadrants_kernel(scheme, planes.view, out.view, cols, expression_of(out))
    b.launch(kernel, planes, mu, nu, Out(out.at), *addend_of(out))


@lru_cache(maxsize=1024)
def _recombine_kernel(
    scheme: KernelScheme, planes: View, out: View, mu_step: int, nu_step: int, expression: Expression | None
) -> Kernel:
    batch, m, n = out.shape
    few = isinstance(scheme, Residues) and constants.product_limbs(scheme) <= _FEW_LIMBS
    together = 2 if few and expression is None else 1
    macros = _macros(scheme, out) | macros_of(expression) | {
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0, "SUM64": int(planes.itemsize == 8),
        "TOGETHER": together,
    }  # fmt: skip
    grid = ceil(m / (8 * together)), ceil(n / _COLUMNS), batch
    return Kernel.of(
        "conversion/recombine.cu", "recombine", macros, grid, (32, 8), None, *planes.steps[:3],
        None, mu_step, None, nu_step, None, *out.steps, m, n,
        *([_crt_constants(scheme)] if isinstance(scheme, Residues) else []), *arguments_of(expression),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _recombine_quadrants_kernel(
    scheme: Residues, planes: View, out: View, cols: int, expression: Expression | None
) -> Kernel:
    (_, m, n), rows = out.shape, planes.shape[2]
    grid = (ceil(rows / 4) * ceil(min(cols, n) / 128),)
    return Kernel.of(
        "conversion/recombine_quadrants.cu", "recombine_quadrants", _macros(scheme, out) | macros_of(expression), grid,
        (32, 4), None, *planes.steps[1:3],
        None, None, None, *out.steps[1:], m, n, _crt_constants(scheme), rows, cols,
        accumulator_moduli(scheme, unsigned=True), *arguments_of(expression),
    )  # fmt: skip


def _macros(scheme: KernelScheme, out: View) -> Macros:
    return {"OUTPUT": out.ctype, "SLICES": scheme.count, "LIMBS": constants.product_limbs(scheme)}


_FEW_LIMBS = 4
"""The most limbs of an integer for which a thread has registers to load two rows together (tests/test_compile.py)."""

_COLUMNS = 128
"""Columns that a block of kernels/conversion/recombine.cu owns."""

_MOST_BLOCKS = 65535
"""The most blocks of a grid on its second and third axes."""


@cache
def _crt_constants(scheme: Residues) -> Any:
    """The struct CrtConstants of kernels/arithmetic/crt.cuh."""
    return struct(constants.crt_constants(scheme))


@lru_cache(maxsize=1024)
def _reduce_kernel(scheme: Residues, entries: int, first: int, count: int, add: bool) -> Kernel:
    moduli = accumulator_moduli(scheme, unsigned=False)
    grid = (ceil(entries / 4096), count)
    return Kernel.of("conversion/reduce.cu", "reduce", {}, grid, (256,), None, None, entries, first, int(add), moduli)


@lru_cache(maxsize=1024)
def _collect_kernel(products: str, sums: str, count: int, add: bool) -> Kernel:
    macros: Macros = {"PRODUCT": _C_NAMES[products], "SUM": _C_NAMES[sums]}
    grid = (ceil(count / 1024),)
    return Kernel.of("conversion/collect.cu", "collect", macros, grid, (256,), None, None, count, int(add))


_C_NAMES = {"f": "float", "i": "int32_t", "q": "int64_t"}
