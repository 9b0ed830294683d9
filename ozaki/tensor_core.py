"""Tensor cores in software: what an `mma` instruction returns, vectorised over NumPy arrays.

A model, after measurements that others published (`ozaki.schemes.formats` names them). It claims the bits of `mma.sync`
on V100 (m8n8k4), A100 (m16n8k16, m16n8k8) and H100 or H200 (the same, and `wgmma`), for finite operands, including
subnormal ones, and results that do not overflow. The payloads of NaN and the signs of zeros are not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from ozaki.interchange.plain import plain
from ozaki.process.environment import default_environment
from ozaki.records.formats import HALVES
from ozaki.schemes.formats import A100, FORMATS, H100, V100, Accumulator, Rounding, TensorCore, Word, depth

__all__ = ["A100", "H100", "V100", "TensorCore", "accumulate", "mma", "round_to"]

Floats = npt.NDArray[np.float64]

_FP32_MASK = np.int64(~((1 << 29) - 1))
"""Mask that keeps the 24 leading significand bits of a float64, as many as FP32 has."""


@default_environment
def round_to(x: npt.ArrayLike, name: str, rounding: Rounding = "RN") -> Floats:
    """Round numbers to a format, subnormals included.

    Parameters
    ----------
    x : array of finite numbers, taken as float64
    name : {"fp16", "bf16", "tf32", "fp32"}
    rounding : {"RN", "RNA", "RZ"}
        To nearest with ties to even or away from zero, or toward zero.

    Returns
    -------
    array of float64
        Numbers of the format; Inf where they exceed its range.

    Raises
    ------
    ValueError, TypeError
        For an unknown format or rounding, and for what is no array of real numbers.
    """
    _check("name", name, tuple(FORMATS))
    _check("rounding", rounding, get_args(Rounding))
    values = _floats("x", x)
    form = FORMATS[name]
    exponents = np.maximum(np.frexp(values)[1] - 1, form.least) - (form.bits - 1)
    units = np.ldexp(values, -exponents)
    if rounding == "RN":
        units = np.rint(units)
    else:
        whole = np.trunc(units)
        units = whole + np.copysign(np.abs(units - whole) >= 0.5, units) if rounding == "RNA" else whole
    rounded: Floats = np.ldexp(units, exponents)
    return np.where(np.abs(rounded) >= 2.0**form.past, np.copysign(np.inf, rounded), rounded)


def _floats(name: str, x: npt.ArrayLike) -> Floats:
    found = plain(name, x)
    if found.dtype.kind not in "biuf" and str(found.dtype) not in HALVES:
        raise TypeError(f"{name}: dtype {found.dtype}; expected real numbers")
    return np.asarray(found, np.float64)


def _check(argument: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{argument}: {value!r} is not known; expected one of {', '.join(known)}")


@default_environment
@np.errstate(all="ignore")
def mma(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: npt.ArrayLike,
    *,
    word: Word = "fp16",
    accumulator: Accumulator = "fp32",
    core: TensorCore = H100,
) -> npt.NDArray[Any]:
    """D = A B + C as the tensor core computes it, in one instruction or a chain of them along k.

    Parameters
    ----------
    a : array, shape (..., m, k), of numbers of the format `word`, in any dtype that holds them
    b : array, shape (..., k, n), likewise
    c : array, shape (..., m, n), of numbers of the accumulator's format; or 0
    word : {"fp16", "bf16", "tf32"}
    accumulator : {"fp32", "fp16"}
        Format of C, of D and between the instructions.
    core : TensorCore
        `V100`, `A100`, `H100`, or one of your own.

    Returns
    -------
    array, shape (..., m, n), float32 or float16

    Raises
    ------
    ValueError, TypeError
        Where shapes do not fit, an operand holds a number that its format does not or masked elements, or the tensor
        core does not take the format.
    """
    _check("accumulator", accumulator, get_args(Accumulator))
    if not isinstance(core, TensorCore):
        raise TypeError(f"core: {core!r}; expected a TensorCore, as ozaki.tensor_core.H100")
    if word not in core.words:
        raise ValueError(f"word: {core.name} does not multiply {word}; expected one of {', '.join(core.words)}")
    left, right, start = (_floats(name, x) for name, x in (("a", a), ("b", b), ("c", c)))
    for name, x, form in (("a", left, word), ("b", right, word), ("c", start, accumulator)):
        finite = np.where(np.isfinite(x), x, 0.0)
        if not np.array_equal(round_to(finite, form), finite):
            raise ValueError(f"{name}: holds numbers that are not {form}; expected tensor_core.round_to({name}, ...)")
    if min(left.ndim, right.ndim) < 2 or left.shape[-1] != right.shape[-2]:
        raise ValueError(f"b: shape {right.shape} does not fit a of shape {left.shape}; expected (m, k) and (k, n)")
    ieee = np.matmul(left, right) + start
    known = [np.where(np.isfinite(x), x, 0.0) for x in (left, right, start)]
    batch = ieee.shape[:-2]
    rows = np.broadcast_to(known[0], (*batch, *left.shape[-2:]))
    columns = np.broadcast_to(known[1], (*batch, *right.shape[-2:])).swapaxes(-1, -2)
    total = accumulate([(rows, columns)], np.broadcast_to(known[2], ieee.shape), word, accumulator, core)
    touched = ~np.isfinite(ieee)
    total[touched] = ieee[touched]
    return total.astype(np.float32 if accumulator == "fp32" else np.float16)


@default_environment
def accumulate(
    pairs: Sequence[tuple[Floats, Floats]],
    start: Floats,
    word: Word,
    accumulator: Accumulator = "fp32",
    core: TensorCore = H100,
) -> Floats:
    """Add the products of several pairs of operands to one accumulator, instruction by instruction.

    Parameters
    ----------
    pairs : rows of A and columns of B, shapes (..., m, k) and (..., n, k), finite numbers of the format `word`
        All pairs take turns at each instruction's share of k.
    start : array, shape (..., m, n)
    word, accumulator, core
        As for `mma`.

    Returns
    -------
    array of float64, shape (..., m, n)
        Numbers of the accumulator's format, which must not overflow.
    """
    total = np.array(start, np.float64)
    k, terms, step = pairs[0][0].shape[-1], core.terms(word), depth(word)
    # Inner indices first: sums over them then add whole matrices.
    operands = [tuple(np.ascontiguousarray(np.moveaxis(x, -1, 0)) for x in pair) for pair in pairs]
    powers = [tuple(_powers(x, word) for x in pair) for pair in operands]
    for first in range(0, k, step):
        for (a, b), (p, q) in zip(operands, powers, strict=True):
            for h in range(first, min(first + step, k), terms):
                at = slice(h, min(h + terms, first + step, k))
                products = a[at, ..., :, None] * b[at, ..., None, :]
                largest = (p[at, ..., :, None] * q[at, ..., None, :]).max(axis=0)
                total = _fused_sum(products, largest, total, accumulator, core)
    return total


def _powers(x: Floats, word: Word) -> Floats:
    """2**e for the exponent field e of each number, 0 for a zero; a subnormal has the least exponent."""
    exponents = np.maximum(np.frexp(x)[1] - 1, FORMATS[word].least)
    return np.where(x == 0, 0.0, np.ldexp(1.0, exponents))


def _fused_sum(products: Floats, largest: Floats, total: Floats, accumulator: Accumulator, core: TensorCore) -> Floats:
    """The accumulator `total` plus the sum of `products` over the first axis, which are overwritten.

    `largest` is 2**e for each entry, e the largest exponent of its products; 0 if all are zero.
    """
    form = FORMATS[accumulator]
    exponents = np.maximum(np.frexp(total)[1] - 1, form.least)
    # An exponent below that of the smallest normal FP32 number does not exist in the adder.
    scale = np.maximum(largest, np.where(total == 0, 0.0, np.ldexp(1.0, exponents)))
    np.maximum(scale, 2.0 ** FORMATS["fp32"].least, out=scale)
    np.divide(2.0**core.alignment_bits, scale, out=scale)
    products *= scale
    np.trunc(products, out=products)
    units: Floats = products.sum(axis=0)
    units += np.trunc(total * scale)
    units /= scale
    if accumulator == "fp16":
        with np.errstate(over="ignore"):
            return units.astype(np.float16).astype(np.float64)
    if core.rounding == "RN":
        return units.astype(np.float32).astype(np.float64)
    cut: Floats = (units.view(np.int64) & _FP32_MASK).view(np.float64)
    small = np.abs(units) < 2.0 ** FORMATS["fp32"].least
    if small.any():
        cut[small] = np.trunc(units[small] * 2.0**149) * 2.0**-149
    return cut
