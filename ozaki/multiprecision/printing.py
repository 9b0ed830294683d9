"""How an array of multiprecision numbers prints: as NumPy's do, to six decimal digits."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ozaki.multiprecision.exact import to_mpfs
from ozaki.multiprecision.numbers import Numbers

DIGITS = 6
"""Significant decimal digits that are printed; zeros at their end are left out."""


def text_of(x: Numbers, prefix: str = "") -> str:
    """The elements in decimal; of an array of more than NumPy's threshold, the first and last ones of each axis.

    Only elements that are printed are converted. The lines after the first are indented as `prefix` is long.
    """
    import mpmath  # here, since its import takes as long as NumPy's

    options = np.get_printoptions()
    edge = int(options["edgeitems"])
    summarised = x.size > options["threshold"]
    if summarised:
        for axis, size in enumerate(x.shape):
            if size > 2 * edge:  # one element more than is printed, so that NumPy sees that it is to leave some out
                shown = np.r_[: edge + 1, size - edge : size]
                x = x[(slice(None),) * axis + (shown,)]
    numbers = [mpmath.libmp.to_str(value._mpf_, DIGITS) for value in to_mpfs(x.parts).reshape(-1).tolist()]
    texts = [*map(_complex_text, numbers[::2], numbers[1::2])] if x.is_complex else numbers
    width = max(map(len, texts), default=0)
    shown_texts = np.empty(len(texts), object)
    shown_texts[:] = [text.rjust(width) for text in texts]
    return np.array2string(
        shown_texts.reshape(x.shape),
        separator=", " if prefix else " ",
        prefix=prefix,
        threshold=0 if summarised else max(prod(x.shape), 1),
        edgeitems=edge,
        formatter={"object": str},
    )


def _complex_text(real: str, imag: str) -> str:
    """A complex number of two parts in decimal, as mpmath prints it."""
    return f"({real} - {imag[1:]}j)" if imag.startswith("-") else f"({real} + {imag}j)"


def repr_of(x: Numbers) -> str:
    """The elements, the shape where they do not show it, and the bits."""
    options: dict[str, Any] = np.get_printoptions()  # type: ignore[assignment]
    hidden = x.size == 0 or x.size > options["threshold"]
    shape = f"shape={x.shape}, " if hidden else ""
    if x.is_complex and not x.size:
        shape += "is_complex=True, "
    return f"mparray({text_of(x, 'mparray(')}, {shape}bits={x.bits})"
