"""The un-rounded product: exact integers in planes, to which parts of k are added, and which are rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from math import ceil
from typing import Any

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.cutting import accumulator_moduli
from ozaki.schemes import Digits, Residues, Scheme, constants


@dataclass(frozen=True)
class Unrounded:
    """Exact integers, whose only ways on are another part of k and the one rounding.

    Attributes
    ----------
    scheme : Digits or Residues
    planes : bytes y_t of residues, or diagonals of digits, int32 or int64, shape (slices, batch, m, columns or more)
    mu, nu : int32, shapes (batch, m) and (batch, n), or with a single entry for all; the integers are
        2**(mu_i + nu_j) times the product
    """

    scheme: Scheme
    planes: Array
    mu: Array
    nu: Array

    def add_residues(self, b: Builder, accumulators: Array, moduli: tuple[int, int], first: bool) -> None:
        """Add the products of a part of k modulo m_t, for moduli first .. last; the first part sets them.

        accumulators : int32, shape (moduli, m, columns), of one matrix
        """
        assert isinstance(self.scheme, Residues)
        start, last = moduli
        kernel = _reducing(self.scheme, accumulators.shape[1] * accumulators.shape[2], start, last - start, not first)
        b.launch(kernel, accumulators, Out(self.planes.at))

    def add_diagonals(self, b: Builder, products: Array, first: bool, diagonal: int | None = None) -> None:
        """Add products of a part of k, exact int32 or float32: of all diagonals, or of one; the first part sets them.

        products : shape (slices, m, columns), or (m, columns), of one matrix
        """
        sums = self.planes if diagonal is None else self.planes.entry(0, diagonal)
        kernel = _collecting(products.char, sums.char, products.size, not first)
        b.launch(kernel, products, Out(sums.at))

    def round_into(self, b: Builder, device: Device, out: Array) -> None:
        """Round into out, shape (batch, m, n), once."""
        batch, _, n = out.shape
        if batch > _MOST_BLOCKS or n > _MOST_BLOCKS * _COLUMNS:
            most = _MOST_BLOCKS * _COLUMNS
            for i, col in product(range(0, batch, _MOST_BLOCKS), range(0, n, most)):
                last, end = min(i + _MOST_BLOCKS, batch), min(col + most, n)
                mu, nu = (x.some(0, i, last) if x.shape[0] > 1 else x for x in (self.mu, self.nu))
                planes = self.planes.some(1, i, last).some(3, col, min(col + most, self.planes.shape[3]))
                some = replace(self, planes=planes, mu=mu, nu=nu.some(1, col, end))
                some.round_into(b, device, out.some(0, i, last).some(2, col, end))
            return
        steps = ((x.view.steps[0] if x.shape[0] > 1 else 0) for x in (self.mu, self.nu))
        kernel = _recombining(device, self.scheme, self.planes.view, out.view, *steps)
        b.launch(kernel, self.planes, self.mu, self.nu, Out(out.at))


def round_quadrants(
    b: Builder, device: Device, scheme: Residues, planes: Array, cols: int, mu: Array, nu: Array, out: Array
) -> None:
    """Round one matrix, out of the bytes y_t of Strassen-Winograd's seven products of `cols` columns.

    planes : shape (moduli, 7, rows, columns or more)
    """
    kernel = _recombining_quadrants(device, scheme, planes.view, out.view, cols)
    b.launch(kernel, planes, mu, nu, Out(out.at))


@lru_cache(maxsize=1024)
def _recombining(device: Device, scheme: Scheme, planes: View, out: View, mu_step: int, nu_step: int) -> Kernel:
    batch, m, n = out.shape
    together = 2 if isinstance(scheme, Residues) and constants.product_words(scheme) <= _FEW_LIMBS else 1
    macros = _macros(scheme, out) | {
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0, "SUM64": int(planes.itemsize == 8),
        "TOGETHER": together,
    }  # fmt: skip
    grid = ceil(m / (8 * together)), ceil(n / _COLUMNS), batch
    return Kernel.of(
        "conversion/recombine.cu", "recombine", macros, grid, (32, 8), None, *planes.steps[:3],
        None, mu_step, None, nu_step, None, *out.steps, m, n,
        *([_crt_constants(scheme)] if isinstance(scheme, Residues) else []),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _recombining_quadrants(device: Device, scheme: Residues, planes: View, out: View, cols: int) -> Kernel:
    (_, m, n), rows = out.shape, planes.shape[2]
    grid = (ceil(rows / 4) * ceil(min(cols, n) / 128),)
    return Kernel.of(
        "conversion/recombine_quadrants.cu", "recombine_quadrants", _macros(scheme, out), grid, (32, 4), None,
        *planes.steps[1:3],
        None, None, None, *out.steps[1:], m, n, _crt_constants(scheme), rows, cols,
        accumulator_moduli(scheme, unsigned=True),
    )  # fmt: skip


def _macros(scheme: Scheme, out: View) -> Macros:
    return {"OUTPUT": out.ctype, "SLICES": scheme.count, "WORDS": constants.product_words(scheme)}


_FEW_LIMBS = 4
"""Of an integer, so that a thread has registers for the bytes of two (tests/test_compile.py)."""

_COLUMNS = 128
"""Of a block."""

_MOST_BLOCKS = 65535
"""Of a grid, in its second and third dimensions."""


@cache
def _crt_constants(scheme: Residues) -> Any:
    """The struct CrtConstants of kernels/arithmetic/crt.cuh."""
    return struct(constants.crt_constants(scheme))


@lru_cache(maxsize=1024)
def _reducing(scheme: Residues, entries: int, first: int, count: int, add: bool) -> Kernel:
    moduli = accumulator_moduli(scheme, unsigned=False)
    grid = (ceil(entries / 4096), count)
    return Kernel.of("conversion/reduce.cu", "reduce", {}, grid, (256,), None, None, entries, first, int(add), moduli)


@lru_cache(maxsize=1024)
def _collecting(products: str, sums: str, count: int, add: bool) -> Kernel:
    macros: Macros = {"PRODUCT": _C_NAMES[products], "SUM": _C_NAMES[sums]}
    grid = (ceil(count / 1024),)
    return Kernel.of("conversion/collect.cu", "collect", macros, grid, (256,), None, None, count, int(add))


_C_NAMES = {"f": "float", "i": "int32_t", "q": "int64_t"}
