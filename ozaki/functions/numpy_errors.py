"""Floating-point errors of products of NumPy arrays, handled as `numpy.errstate` says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ozaki.functions.products import matmul
from ozaki.interchange.halves import half_format_of
from ozaki.process.warning import warn

SIGNALLED_AS = {"matmul": "matmul", "dot": "dot", "inner": "dot", "tensordot": "dot", "multi_dot": "dot"}
"""Functions whose errors NumPy signals, and whose name its messages have; those of `vdot` and `einsum` it does not."""

_KINDS = (("over", "overflow", 2), ("under", "underflow", 4), ("invalid", "invalid value", 8))
"""Errors of products as `numpy.errstate` names them, as messages do, and their flags for `numpy.seterrcall`."""


def not_ignored() -> set[str]:
    """The kinds of errors that the caller does not ignore."""
    return {kind for kind, how in np.geterr().items() if how != "ignore"}


def errors_of(a: Any, b: Any, c: Any, kinds: set[str]) -> set[str]:
    """The errors, of these kinds, of a product c of a and b; none of arrays of other libraries.

    A product counts as one operation: what would overflow on the way is no error. Of an entry it is

    - "invalid" that it is NaN, where its row of a and its column of b hold no NaN;
    - "over" that it is Inf or NaN, where these are finite;
    - "under" that it, or a part of it, is smaller than the normal numbers of its format, and not exact.
    """
    found: set[str] = set()
    if not kinds or not isinstance(c, np.ndarray | np.generic):
        return found
    if half_format_of(c):
        a, b = a.astype(np.float32), b.astype(np.float32)
    left, right = a if a.ndim > 1 else a[None, :], b if b.ndim > 1 else b[:, None]
    entries = np.expand_dims(c, (-2,) * (a.ndim < 2) + (-1,) * (b.ndim < 2))
    if not kinds.isdisjoint(("over", "invalid")) and any(not np.isfinite(x).all() for _, x in _in_rows(entries)):
        nan, finite = _lines(np.isnan, np.any, left, right), _lines(np.isfinite, np.all, left, right)
        for rows, x in _in_rows(entries):
            of_nan = nan[0][..., rows, None] | nan[1][..., None, :]
            if (np.isnan(x) & ~of_nan).any():
                found.add("invalid")
            of_finite = finite[0][..., rows, None] & finite[1][..., None, :]
            if (~np.isfinite(x) & of_finite).any():  # NaN, too: of a native product, Inf - Inf on the way
                found.add("over")
    if "under" in kinds and any(_underflows(left[..., rows, :], right, x) for rows, x in _in_rows(entries)):
        found.add("under")
    return found & kinds


_AT_A_TIME = 2**14
"""Elements that are looked at together, so that masks of them take little memory."""


def _in_rows(x: Any) -> Iterator[tuple[slice, Any]]:
    """Some rows at a time of a stack of matrices: where they are, and views of them."""
    count = x.shape[-2]
    step = max(1, _AT_A_TIME * count // max(x.size, 1))
    for start in range(0, count, step):
        rows = slice(start, start + step)
        yield rows, x[..., rows, :]


def _lines(test: Any, join: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Whether a test holds for any, or for all, elements of each row of a, and of each column of b."""
    found = []
    for x in (a, np.swapaxes(b, -1, -2)):
        lines = np.zeros(x.shape[:-1], bool)
        for rows, some in _in_rows(x):
            lines[..., rows] = join(test(some), axis=-1)
        found.append(lines)
    return found[0], found[1]


def _underflows(a: Any, b: Any, c: Any) -> bool:
    """Whether an entry of c, or a part of it, is smaller than normal numbers and not that of the exact product a b."""
    parts = (c.real, c.imag) if c.dtype.kind == "c" else (c,)
    half = half_format_of(c)
    tiny = _LEAST_NORMAL[half] if half else float(np.finfo(c.dtype).tiny)
    small = [abs(part) < tiny for part in parts]
    if not any(each.any() for each in small):
        return False
    touched = (a != 0).astype(np.float32) @ (b != 0).astype(np.float32) > 0  # other entries are exact zeros
    if not any((each & touched).any() for each in small):
        return False
    finite = (np.where(np.isfinite(x), x, 0) for x in (a, b))
    exact = matmul(*finite, accuracy="exact", dtype="mp")
    exact_parts = (exact.real, exact.imag)[: len(parts)]
    return any(
        bool((each & touched & (exact_part != part)).any())
        for each, part, exact_part in zip(small, parts, exact_parts, strict=True)
    )


_LEAST_NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126}
"""Smallest normal numbers of 16-bit formats."""


def signal(errors: set[str], name: str) -> None:
    """Handle errors of a function as NumPy does: raise, warn, print, call or log.

    Raises
    ------
    FloatingPointError
    """
    flags = sum(flag for kind, _, flag in _KINDS if kind in errors)
    for kind, what, _ in _KINDS:
        if kind not in errors:
            continue
        how, text = dict(np.geterr())[kind], f"{what} encountered in {name}"
        if how == "raise":
            raise FloatingPointError(text)
        if how == "warn":
            warn(text, RuntimeWarning)
        elif how == "print":
            print(f"Warning: {text}", file=sys.stderr)
        elif how == "call":
            np.geterrcall()(what, flags)  # type: ignore[misc, operator]
        elif how == "log":
            np.geterrcall().write(f"Warning: {text}\n")  # type: ignore[union-attr]
