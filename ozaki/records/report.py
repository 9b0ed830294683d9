"""The report of a product: what ran, and what is proven of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from math import frexp, inf, isfinite
from typing import Any, Literal

import numpy as np

from ozaki.records.accuracy import Measure
from ozaki.schemes import PRESETS

ReportKind = Literal["relative", "bounds"]
"""What reports state on request beside what usual ones do, by name."""

AskedReport = bool | ReportKind | tuple[ReportKind, ...]
"""What `return_report` may be."""


def kinds_of(asked: AskedReport) -> frozenset[str]:
    """What a report is to state beside what usual ones do."""
    return frozenset(asked if isinstance(asked, tuple) else (asked,) if isinstance(asked, str) else ())


@dataclass(frozen=True)
class Report:
    """The account of one product.

    Attributes
    ----------
    bound
        Proven error in `measure`, in units of 2**exponent, the rounding to the output included, unless the result over-
        or underflows; inf where nothing is proven. It holds for entries that NaN or Inf do not touch; normwise, for the
        matrices without the rows of A and columns of B that hold any.
    unrounded_bound
        Proven error of the product before it is rounded to the output, as `bound` else: 0 if it is exact. That of a
        native product, which is rounded on the way, is `bound`.
    measure : str
        "componentwise", "row-column", "normwise" or "relative".
    scheme
        "residues", "complex-residues" (of two complex operands), "digits" (or "digits7", "fp16-digits7": digits of 7
        bits), "row-digits" (of a result rounded to 16 bits), the name of a preset of words, "words" or "native".
    slices
        Slices of each operand (0 for the native product; of row-digits those of rows with the fewest).
    products
        Number of slice products, of row-digits for rows with the fewest (by Strassen-Winograd each takes seven eighths
        of its operations).
    engine
        The device or library that multiplied, and how.
    native, why
        Whether the native product ran, and the reason for the choice.
    workspace_bytes
        Most bytes held at a time beside operands and result, planning included; what the array library holds for a
        native product is unknown and not counted.
    reproducible
        Whether the bits are the same on every backend.
    nonfinite
        Number of rows of A and columns of B with NaN or Inf (None: not counted, to save a synchronisation, as for plans
        from shapes, a given number of slices, and results rounded to 16 bits).
    out_of_range
        Number of entries of the result that over- or underflowed, or may have: that are Inf where operands are finite,
        or smaller than the normal numbers of the format, unless all their products are zero. No bound speaks of these
        (None: not counted, of native products, which have no bound then, and where `nonfinite` is not).
    underflows
        Number of elements of both operands that lose bits by underflow when they are scaled and cut into words (None:
        the scheme is not words).
    estimate
        Componentwise error to expect of words if rounding errors have zero mean; not proven, and too low for sums of
        one sign on tensor cores that truncate (None: the scheme is not words).
    exponent
        0, unless the bound may be below the range of a float.
    relative_bound
        Proven largest abs(c - C)_ij / abs(C_ij), C the exact product, in units of 2**exponent, with the rounding to the
        output, unless the result over- or underflows; inf where nothing is proven: of a native product, of words, and
        where an entry may be no larger than its error (None: not asked for by return_report="relative").
    bounds : array, float64, of the shape of c, in its library and on its device
        Proven bounds of abs(c - C), entry by entry, C the exact product or expression, the rounding to the output
        included: absolute, rounded up, 0 where c is known to be exact; inf where nothing is proven: of words, of a
        native product that might over- or underflow on the way, of a `gemm` that is not rounded once, of entries that
        are NaN or Inf. Of a complex entry one number, for its
        modulus. Beside arrays of JAX one of NumPy or CuPy, unless JAX has float64 switched on (None: not asked for by
        return_report="bounds").
    rounded_once
        Of `gemm`: whether alpha A B + beta C was rounded once; then the bound is that of the expression, relative to
        abs(alpha) abs(A) abs(B) + abs(beta) abs(C) (componentwise; other measures alike); else it is that of A B. None
        for a product alone.
    verified
        Number of random projections of the product of integers that agreed with those of the operands (None:
        verify=True was not given; 0: there was nothing to multiply).
    recomputed
        How many times the product was computed once more because they did not agree (None as for `verified`).
    inner_scaling
        Whether A S and S^-1 B were sliced, S a diagonal of powers of two (docs/definitions.md, 10).
    row_kinds
        Of a product of 16-bit floats rounded to 16 bits: number of rows of A by how they were multiplied, as
        {"2 digits": 4090, "3 digits": 5, "exact": 1} (docs/definitions.md, 11). None of other products.
    undecided
        Number of entries that their error left undecided when they were rounded, and that were computed apart, by exact
        inner products (docs/bounds.md, B14; None: the plan has nothing computed apart).
    """

    bound: float
    unrounded_bound: float
    measure: Measure
    scheme: str
    slices: int
    products: int
    engine: str
    native: bool
    why: str
    workspace_bytes: int
    reproducible: bool
    nonfinite: int | None = None
    out_of_range: int | None = None
    underflows: int | None = None
    estimate: float | None = None
    exponent: int = 0
    relative_bound: float | None = None
    rounded_once: bool | None = None
    bounds: Any = field(default=None, compare=False, repr=False)
    verified: int | None = None
    recomputed: int | None = None
    inner_scaling: bool = False
    undecided: int | None = None
    row_kinds: dict[str, int] | None = None

    def __str__(self) -> str:
        what = "native product"
        if not self.native:
            what = f"{counted(self.slices, self.scheme)}, {several(self.products, 'slice product')}"
            what += ", operands scaled along k," if self.inner_scaling else ""
            if self.undecided is not None:
                what += f", {several(self.undecided, 'undecided entry', 'undecided entries')} apart,"
        lines = [f"{what} on {self.engine}"]
        if self.row_kinds is not None:
            lines.append("rows of A: " + ", ".join(map(_of_kind, self.row_kinds, self.row_kinds.values())))
        if self.bound == inf:
            lines.append("no error bound")
        else:
            bound = rounded_up(self.bound, self.exponent)
            before = "roundings included"
            if not self.native:
                before = f"{power_of_two(self.unrounded_bound, self.exponent)} before the rounding to the output"
            lines.append("proven: exact" if self.bound == 0 else f"proven: {self.measure} error <= {bound} ({before})")
        if self.rounded_once is not None:
            lines.append(
                "that is of alpha A B + beta C, rounded once, over the sum of the sizes of alpha A B and beta C"
                if self.rounded_once
                else "that is of A B alone: alpha A B, beta C and their sum are rounded, too"
            )
        if self.relative_bound == inf:
            rounded = self.native or _are_words(self.scheme)
            why = "only products of slices prove one" if rounded else "an entry may be no larger than its error"
            why = "entries are out of range" if self.out_of_range else why
            lines.append(f"no relative error is proven: {why}")
        elif self.relative_bound and self.measure != "relative":
            lines.append(f"proven: relative error of every entry <= {rounded_up(self.relative_bound, self.exponent)}")
        if self.bounds is not None:
            lines += _of_entries(self.bounds)
        if self.estimate is not None:
            lines.append(f"about {self.estimate:.1e} if roundings cancel as random ones do: an estimate, not proven")
        if self.why:
            lines.append(self.why)
        same = "same bits on every backend" if self.reproducible else "bits may differ between backends"
        lines.append(f"workspace {bytes_in_words(self.workspace_bytes)}, {same}")
        if self.verified is not None:
            lines.append(
                f"{several(self.verified, 'random projection')} agreed with the operands"
                + (", once the product was computed anew" if self.recomputed else "")
            )
        if self.nonfinite:
            of_what = "1 row or column" if self.nonfinite == 1 else f"{self.nonfinite} rows or columns"
            lines.append(f"{of_what} with NaN or Inf: entries there follow IEEE 754, no bound")
        if self.out_of_range:
            entries = "1 entry is" if self.out_of_range == 1 else f"{self.out_of_range} entries are"
            lines.append(f"{entries} Inf, or smaller than the normal numbers of the format: no bound there")
        if self.nonfinite is None:
            lines.append("NaN, Inf, over- and underflow were not looked for: no bound where they are")
        if self.underflows:
            lines.append(f"{self.underflows} elements lose bits by underflow; the bound counts them")
        return "\n".join(lines)


def _of_kind(how: str, rows: int) -> str:
    """A number of rows and how they were multiplied: "61 with 2 digits", "1 exact"."""
    return f"{rows} {how}" if how == "exact" else f"{rows} with {how}"


def _of_entries(bounds: Any) -> list[str]:
    """The line about the bounds of entries, unless there are no entries; copies them to the host."""
    on_host = getattr(bounds, "get", None) or getattr(bounds, "cpu", None)  # of CuPy, of PyTorch
    found = np.asarray(bounds if on_host is None else on_host()).ravel()
    proven = found[found < inf]
    if not found.size:
        return []
    if not proven.size:
        return ["no bound of any entry by itself"]
    if proven.size == found.size and not proven.any():
        return ["proven of each entry by itself: exact"]
    of_all = float(proven.min()), float(np.median(proven)), float(proven.max())
    least, median, largest = map(rounded_up, of_all)
    missing = found.size - proven.size
    rest = f"; none of {missing} of {found.size} entries" if missing else ""
    return [f"proven of each entry by itself: error <= {least} to {largest}, median {median}{rest}"]


def counted(slices: int, scheme: str) -> str:
    """The slices of a scheme, with their number: "14 residues", "2 words (halfhalf)"."""
    if _are_words(scheme):
        return several(slices, "word") + ("" if scheme == "words" else f" ({scheme})")
    return f"{slices} {scheme}"


def _are_words(scheme: str) -> bool:
    """Whether a scheme of this name is words."""
    return scheme in PRESETS or scheme == "words"


def priced(slices: int, scheme: str, products: int) -> str:
    """The slices of a scheme and their price: "14 residues, 14 products"."""
    return f"{counted(slices, scheme)}, {several(products, 'product')}"


def several(count: int, what: str, plural: str | None = None) -> str:
    """A count and its noun: "1 word", "2 words"."""
    return f"{count} {what if count == 1 else plural or what + 's'}"


def rounded_up(x: float, exponent: int = 0) -> str:
    """The bound x 2**exponent in two significant digits, rounded up so that what is printed is a bound too.

    It is "none" for inf.
    """
    if x == 0 or not isfinite(x):
        return "none" if x == inf else f"{x:g}"
    up = Context(prec=30, rounding=ROUND_CEILING)
    value = up.create_decimal(repr(float(x)))
    if exponent:
        value = up.multiply(value, up.next_plus(up.power(2, exponent)))
    return f"{Context(prec=2, rounding=ROUND_CEILING).plus(value):.1e}"


def power_of_two(x: float, exponent: int = 0) -> str:
    """The least power of two that is no smaller than the bound x 2**exponent, as "2^-107"; "exact" for 0."""
    if x == 0:
        return "exact"
    fraction, power = frexp(x)
    return f"2^{power - (fraction == 0.5) + exponent}"


def bytes_in_words(count: int) -> str:
    """A number of bytes with a unit: "15 MiB"."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
