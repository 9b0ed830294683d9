"""Slice products on the device to the result: the exact integers, rounded once."""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product
from math import ceil
from typing import Any

import cupy as cp

from ozaki.backends.cupy._split import accumulator_moduli
from ozaki.backends.cupy.launching._launch import Launch, Macros, View, struct
from ozaki.schemes import Digits, Residues, Scheme, constants


def recombine(scheme: Scheme, planes: Any, mu: Any, nu: Any, out: Any) -> None:
    """The exact integers, rounded once into out, shape (batch, m, n).

    planes are the bytes y_t, or diagonals of digits, shape (slices, batch, m, ld); mu and nu of shape (batch, m) and
    (batch, n), or with a single entry for all.
    """
    batch, _, n = out.shape
    if batch > _MOST_BLOCKS or n > _MOST_BLOCKS * _COLUMNS:
        for first, col in product(range(0, batch, _MOST_BLOCKS), range(0, n, _MOST_BLOCKS * _COLUMNS)):
            some, cols = slice(first, first + _MOST_BLOCKS), slice(col, col + _MOST_BLOCKS * _COLUMNS)
            each_mu, each_nu = (x[some] if x.shape[0] > 1 else x for x in (mu, nu))
            recombine(scheme, planes[:, some, :, cols], each_mu, each_nu[:, cols], out[some, :, cols])
        return
    steps = ((x.strides[0] // x.itemsize if x.shape[0] > 1 else 0) for x in (mu, nu))
    launch = _recombining(cp.cuda.runtime.getDevice(), scheme, View.of(planes), View.of(out), *steps)
    launch(*(x.data for x in (planes, mu, nu, out)))


def recombine_quadrants(scheme: Residues, planes: Any, cols: int, mu: Any, nu: Any, out: Any) -> None:
    """The same for one matrix, out of the bytes y_t of Winograd's products (moduli, 7, rows, ld), which have `cols`."""
    views = View.of(planes), View.of(out)
    _recombining_quadrants(cp.cuda.runtime.getDevice(), scheme, *views, cols)(*(x.data for x in (planes, mu, nu, out)))


@lru_cache(maxsize=1024)
def _recombining(device: int, scheme: Scheme, planes: View, out: View, mu_step: int, nu_step: int) -> Launch:
    batch, m, n = out.shape
    together = 2 if isinstance(scheme, Residues) and constants.product_words(scheme) <= _FEW_WORDS else 1
    macros = _macros(scheme, out) | {
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0, "SUM64": int(planes.itemsize == 8),
        "TOGETHER": together,
    }  # fmt: skip
    grid = ceil(m / (8 * together)), ceil(n / _COLUMNS), batch
    return Launch(
        "conversion/recombine.cu", "recombine", macros, grid, (32, 8), None, *planes.steps[:3],
        None, mu_step, None, nu_step, None, *out.steps, m, n,
        *([_crt_constants(scheme)] if isinstance(scheme, Residues) else []),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _recombining_quadrants(device: int, scheme: Residues, planes: View, out: View, cols: int) -> Launch:
    (_, m, n), rows = out.shape, planes.shape[2]
    grid = (ceil(rows / 4) * ceil(min(cols, n) / 128),)
    return Launch(
        "conversion/recombine_quadrants.cu", "recombine_quadrants", _macros(scheme, out), grid, (32, 4), None,
        *planes.steps[1:3],
        None, None, None, *out.steps[1:], m, n, _crt_constants(scheme), rows, cols,
        accumulator_moduli(scheme, unsigned=True),
    )  # fmt: skip


def _macros(scheme: Scheme, out: View) -> Macros:
    return {
        "OUTPUT": out.ctype,
        "SLICES": scheme.count,
        "WORDS": constants.product_words(scheme),
    }


_FEW_WORDS = 4
"""Of an integer, so that a thread has registers for the bytes of two (tests/test_compile.py)."""

_COLUMNS = 128
"""Of a block."""

_MOST_BLOCKS = 65535
"""Of a grid, in its second and third dimensions."""


@cache
def _crt_constants(scheme: Residues) -> Any:
    """The struct CrtConstants of kernels/arithmetic/crt.cuh."""
    return struct(constants.crt_constants(scheme))
