"""Floating-point errors of products of NumPy arrays, handled as `numpy.errstate` says."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ozaki._api import matmul
from ozaki._warning import warn

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
    if not isinstance(c, np.ndarray | np.generic):
        return found
    left, right = a if a.ndim > 1 else a[None, :], b if b.ndim > 1 else b[:, None]
    entries = np.expand_dims(c, (-2,) * (a.ndim < 2) + (-1,) * (b.ndim < 2))
    if not kinds.isdisjoint(("over", "invalid")) and not np.isfinite(entries).all():
        nan = np.isnan(left).any(axis=-1)[..., :, None] | np.isnan(right).any(axis=-2)[..., None, :]
        if (np.isnan(entries) & ~nan).any():
            found.add("invalid")
        finite = np.isfinite(left).all(axis=-1)[..., :, None] & np.isfinite(right).all(axis=-2)[..., None, :]
        if (~np.isfinite(entries) & finite).any():  # NaN, too: of a native product, Inf - Inf on the way
            found.add("over")
    if "under" in kinds and _underflows(left, right, entries):
        found.add("under")
    return found & kinds


def _underflows(a: Any, b: Any, c: Any) -> bool:
    """Whether an entry of c, or a part of it, is smaller than normal numbers and not that of the exact product a b."""
    parts = (c.real, c.imag) if c.dtype.kind == "c" else (c,)
    small = [abs(part) < np.finfo(part.dtype).tiny for part in parts]
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
