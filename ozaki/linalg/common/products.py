"""Products inside of linear algebra, with what they err by.

There are three kinds. *Native* ones are the array library's own, in float64: what they err by is small where the
product is, as that of a correction. *Residuals* C - A B keep digits that cancel; slices for them follow from shapes
alone, so that nothing is looked for in the operands. *Componentwise* ones are for ill-conditioned matrices, whose
elements are far apart in size.
"""

from __future__ import annotations

from math import floor, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends import backend_of
from ozaki.bounds import native
from ozaki.caches import cached
from ozaki.call.operands import holds_complex
from ozaki.functions.products import gemm, matmul
from ozaki.linalg.common.upper import LEAST, largest_abs, row_norm
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.for_shapes import plan_for_shapes
from ozaki.records.accuracy import Accuracy
from ozaki.records.options import Options
from ozaki.records.plan import Plan
from ozaki.records.shapes import Shapes

Bounds = npt.NDArray[np.float64]

UNIT = 2.0**-52
"""More than a rounding to float64, or of both parts of a complex number to that, changes a number, relative to it."""

# Native products -----------------------------------------------------------------------------------------------------


def native_product(x: Any, y: Any) -> Any:
    """The product of two matrices in float64: off by no more than `native_error` times abs(x) abs(y), and `LEAST`.

    What underflows adds less than `LEAST`. What overflows is Inf or NaN, and so are bounds that are computed from it.
    """
    if backend_of(("x", x), ("y", y)).native_obstacle("float64"):
        return matmul(x, y, accuracy=componentwise(2.0**-53), reproducible=True)
    return x @ y


def native_error(x: Any, y: Any) -> float:
    """The factor of the error of `native_product` (docs/bounds.md, B5 and B11), and some roundings more."""
    k, is_complex = x.shape[-1], holds_complex(x) and holds_complex(y)
    return native.bound(2 * k + 4, "float64", 1.5) if is_complex else native.bound(k + 4, "float64")


# Products and residuals that keep digits which cancel ----------------------------------------------------------------


def product(x: Any, y: Any, tolerance: float, multiprecision: bool) -> Any:
    """The product x y, rounded once to float64 or complex128, or to as many bits as the tolerance asks for.

    With t the tolerance, 0 for every bit, an element (i, j) is off by no more than t norm(x_i) norm(y_j), Euclidean
    norms; float64 adds its rounding, less than `UNIT` times the element, and less than `LEAST` where that underflows.
    """
    x, y, how = _by_shapes(x, y, None, tolerance, multiprecision)
    return matmul(x, y, **how)


def residual(wanted: Any, x: Any, y: Any, tolerance: float, multiprecision: bool) -> Any:
    """C - x y, C the matrix that is `wanted`, rounded once; as `product`, but in many bits also off by t abs(C_ij)."""
    x, y, how = _by_shapes(x, y, wanted, tolerance, multiprecision)
    return gemm(-1, x, y, 1, wanted, **how)


def _by_shapes(x: Any, y: Any, c: Any, tolerance: float, multiprecision: bool) -> tuple[Any, Any, dict[str, Any]]:
    """The operands, and the options of a product whose slices follow from their shapes."""
    is_complex = any(map(holds_complex, (x, y, c)))
    dtype = "mp" if multiprecision else "complex128" if is_complex else "float64"
    numbers = any(isinstance(each, Numbers) for each in (x, y, c))
    if tolerance == 0 or (is_complex and (numbers or multiprecision)):
        return x, y, {"accuracy": Accuracy("row-column", tolerance), "dtype": dtype, "reproducible": True}
    if is_complex:
        x, y = (each.astype(dtype, copy=False) for each in (x, y))
    return x, y, {"plan": _plan(x.shape[0], *y.shape, dtype, tolerance)}


@cached(64)
def _plan(m: int, k: int, n: int, dtype: str, tolerance: float) -> Plan:
    """The plan of a product (m x k) (k x n) whose row-column error is at most the tolerance, whatever is multiplied.

    By residues, which multiply multiprecision numbers, too.
    """
    return plan_for_shapes(Shapes((), (m, k, n), (m, n)), dtype, Options(Accuracy("row-column", tolerance), "residues"))


# Componentwise products ----------------------------------------------------------------------------------------------


def componentwise(tolerance: float) -> Accuracy:
    """The componentwise accuracy of a product inside; no coarser than 2**-8, which is as cheap."""
    return Accuracy("componentwise", min(tolerance, 2.0**-8))


def product_within(x: Any, y: Any, tolerance: float) -> Any:
    """The multiprecision product x y, its elements off by no more than the tolerance."""
    fine = not_tiny(min(tolerance / (row_norm(x) * largest_abs(y)), 2.0**-8))
    return matmul(x, y, accuracy=componentwise(fine), dtype="mp")


def product_of_inverses(x: Any, y: Any, count: int) -> Any:
    """A product of `count` inverses in float64 and one more: all 53 bits of each, and some more."""
    return matmul(x, y, accuracy=componentwise(2.0 ** -(113 + 53 * count)), dtype="mp")


# Tolerances ----------------------------------------------------------------------------------------------------------


def tolerance_for(allowed: Any, terms: Any) -> float:
    """The largest tolerance, at most 2**-8, with which a product adds no more than `allowed` to a column.

    `terms` are what an error of the product is relative to, the largest of each column, times what it is multiplied by
    later. The tolerance is a power of two, or 0, which asks for every bit, where a column allows next to nothing.
    """
    live = terms > 0
    return not_tiny(min(float((allowed[live] / terms[live]).min()) if live.any() else 1.0, 2.0**-8))


def not_tiny(tolerance: float) -> float:
    """The next power of two below a tolerance, or 0, which asks for every bit, in place of one below `LEAST`."""
    return 2.0 ** floor(log2(tolerance)) if tolerance >= LEAST else 0.0


def errors_of(tolerance: float, terms: Any) -> Any:
    """Error bounds of the columns of a product computed with a tolerance; zeros for 0: the product is exact then."""
    return tolerance * terms + LEAST * (terms > 0) if tolerance else np.zeros_like(terms)
