"""Random stacks of all kinds, against NumPy, bit for bit: batch axes, broadcasts, strides, formats, k = 1, nothing."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import devices
from runs.of_stacks import rows_of
from runs.operands import same

FORMATS = ("f8", "f8", "f4", "f2", "c16", "c8")
PRODUCTS = 25
"""How many products a run draws; a third of them on Hopper, which has more kernels to be built."""


def _size(drawn: np.random.Generator) -> int:
    """Of an axis of a matrix: 1 and nothing at times."""
    sizes = [int(drawn.integers(2, most)) for most in (9, 9, 17, 40)]
    return int(drawn.choice([0, 1, 1, 16, 32, 70, *sizes]))


def _batches(drawn: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Batch axes of two operands that broadcast: axes of size 1, or missing ones, of either, or of both."""
    whole = [int(drawn.choice([1, 2, 3, 5, 7], p=[0.1, 0.3, 0.3, 0.2, 0.1])) for _ in range(drawn.choice([1, 1, 2, 3]))]
    if drawn.random() < 0.05:
        whole[drawn.integers(len(whole))] = 0
    found = []
    for _ in "ab":
        batch = [1 if drawn.random() < 0.2 else size for size in whole]
        found.append(tuple(batch[int(drawn.choice([0, 0, 0, 1, len(batch)])) :]))
    return found[0], found[1]


def _elements(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """A stack of matrices whose rows, or columns, are of many kinds."""
    *batch, m, n = shape
    if 0 in shape:
        return np.zeros(shape, dtype)
    count = int(np.prod(batch, dtype=int))
    if rng.random() < 0.5:
        return rows_of(rng, (count, m, n), dtype).reshape(shape)
    return rows_of(rng, (count, n, m), dtype).swapaxes(1, 2).reshape(shape)


def _laid_out(rng: np.random.Generator, x: np.ndarray) -> tuple[np.ndarray, Any]:
    """The same elements with other strides, on the host and the device: turned, cut, reversed, repeated."""
    order = rng.permutation(x.ndim) if rng.random() < 0.5 else np.arange(x.ndim)
    steps = rng.choice([1, 1, 1, 2, -1, -2], x.ndim) if rng.random() < 0.5 else np.ones(x.ndim, int)
    more = rng.integers(0, 2, x.ndim) * int(rng.integers(0, 3))
    large = np.zeros([x.shape[axis] * abs(int(steps[axis])) + int(more[axis]) for axis in order], x.dtype)
    back = tuple(int(place) for place in np.argsort(order))

    def view(of: Any) -> Any:
        of = of.transpose(back)
        return of[tuple(slice(None, None, int(step)) for step in steps)][tuple(slice(0, size) for size in x.shape)]

    view(large)[...] = x
    found = view(large), view(cp.asarray(large))
    if x.ndim > 2 and x.shape[0] == 1 and rng.random() < 0.5:  # equal matrices, in one memory
        shape = (int(rng.integers(1, 4)), *x.shape[1:])
        return np.broadcast_to(found[0], shape), cp.broadcast_to(found[1], shape)
    return found


def _options(rng: np.random.Generator, dtype: str) -> dict[str, Any]:
    """What is asked of a product: a count, an accuracy, or nothing, with and without reproducible bits."""
    if dtype == "f2":
        halves: list[dict[str, Any]] = [{}, {"accuracy": "fp16"}, {"accuracy": "fp32", "reproducible": True}]
        return halves[rng.integers(3)]
    single, is_complex = dtype in ("f4", "c8"), dtype in ("c8", "c16")
    usual = "fp32" if single else "fp64"
    match rng.integers(6):
        case 0:
            most = (9 if single else 16) if is_complex else (10 if single else 21)
            return {"scheme": "residues", "slices": int(rng.integers(4, most))}
        case 1:
            return {"scheme": "digits", "slices": int(rng.integers(1, 4 if single else 8))}
        case 2:
            return {"accuracy": usual, "reproducible": True}
        case 3:
            return {"reproducible": True}
        case 4:
            accuracy = [usual, "exact", "dd", 1e-6, 30][rng.integers(5)]
            return {"accuracy": accuracy, "reproducible": bool(rng.integers(2))}
    return {}


def _both(a: Any, b: Any, options: dict[str, Any], into: bool) -> None:
    """One product has the bits of NumPy, or raises an error where NumPy does; not where either is the native one."""

    def result(x: Any, y: Any) -> Any:
        try:
            if not into:
                return ozaki.matmul(x, y, **options)
            library = cp if isinstance(x, cp.ndarray) else np
            target = library.full(np.matmul(a[0], b[0]).shape, np.nan, np.result_type(a[0], b[0]))
            assert ozaki.matmul(x, y, target, **options) is target
            return target
        except (ValueError, TypeError) as error:
            return str(error)

    with np.errstate(all="ignore"):
        expected, got = result(a[0], b[0]), result(a[1], b[1])
        if isinstance(expected, str) or isinstance(got, str):
            assert type(expected) is type(got), (expected, got)
            return
        if "scheme" in options or options.get("reproducible"):
            same(np.asarray(expected), got)
            return
        reports = [ozaki.matmul(*operands, return_report=True, **options)[1] for operands in zip(a, b, strict=True)]
        if not any(report.native for report in reports) and reports[0].scheme == reports[1].scheme:
            same(np.asarray(expected), got)


def one(drawn: np.random.Generator) -> None:
    (of_a, of_b), m, k, n = _batches(drawn), *(_size(drawn) for _ in "mkn")
    dtype = str(drawn.choice(FORMATS))
    other = dtype if drawn.random() < 0.8 else str(drawn.choice(FORMATS))
    a, b = _elements(drawn, (*of_a, m, k), dtype), _elements(drawn, (*of_b, k, n), other)
    if not of_a and drawn.random() < 0.2 and m:
        a = a[0]
    if not of_b and drawn.random() < 0.2 and n:
        b = b[..., 0]
    widest = np.result_type(dtype, other).char
    options = _options(drawn, {"d": "f8", "f": "f4", "e": "f2", "D": "c16", "F": "c8"}[widest])
    x, y = _laid_out(drawn, a), _laid_out(drawn, b)
    out = bool(drawn.random() < 0.2)
    case = f"{x[0].shape} {x[0].strides} {x[0].dtype} {y[0].shape} {y[0].strides} {y[0].dtype} {options} {out}"
    try:
        _both(x, y, options, out)
        if drawn.random() < 0.2:  # by the kept program
            _both(x, y, options, out)
    except Exception as error:
        raise AssertionError(case) from error


def random_stacks(rng: np.random.Generator) -> None:
    """Products of random stacks."""
    for _ in range(PRODUCTS // 3 if devices.current().family.one_read else PRODUCTS):
        one(rng)
