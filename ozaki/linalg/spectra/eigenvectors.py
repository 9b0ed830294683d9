"""Eigenvectors from a measured decomposition, rounded to a format, and what is proven of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ozaki.functions.products import matmul
from ozaki.linalg.common.arrays import Floats, Sum, added, array_library, exactly
from ozaki.linalg.common.products import UNIT, componentwise, native_error, native_product
from ozaki.linalg.common.scaling import Exponents, Powers, bounds_scaled, scaled, tops_or_zero
from ozaki.linalg.common.upper import LEAST, UP, magnitudes, norm_bounds, norms_on_host
from ozaki.linalg.spectra.conjugates import NO_PAIRS, Pairs
from ozaki.linalg.spectra.similarity import GeneralDecomposition
from ozaki.linalg.systems.solution import in_format, missing, widened
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray
from ozaki.records.formats import is_multiprecision


class Unrounded(NamedTuple):
    """Eigenvectors with norms of about 1, before they are rounded to a format.

    Attributes
    ----------
    vectors : Sum or MPArray, shape (n, n); columns
    missed : shape (n,): upper bounds of the norms of what they are off by; inf where nothing is proven
    """

    vectors: Any
    missed: Floats

    @property
    def error(self) -> float:
        """The largest bound that is proven."""
        return float(self.missed[np.isfinite(self.missed)].max(initial=0.0))


def eigenvectors(found: GeneralDecomposition, balance: Exponents, real: bool) -> Unrounded:
    """Eigenvectors of the matrix that is balanced by these powers: those of the balanced one, which is `found`.

    Of `real` eigenvalues, of which some may look like pairs for want of digits, vectors are real.
    """
    vectors, errors = _to_first_order(found, NO_PAIRS if real else found.pairs)
    powers = Powers(rows=balance)
    if balance.any():  # else their norms are near 1
        powers = powers._replace(columns=-tops_or_zero(vectors, 0, powers))
    missed = norms_on_host(bounds_scaled(errors, powers) + LEAST, 0)
    return Unrounded(scaled(vectors, powers), np.where(found.alone & np.isfinite(missed), missed, np.inf))


def rounded_vectors(found: Unrounded, dtype: str) -> tuple[Any, Floats]:
    """Vectors whose Euclidean norms are 1 but for roundings of float64, in a format, and bounds of their sines.

    A sine that is not below 1 bounds nothing, and becomes inf.
    """
    shortest, lengths = norm_bounds(found.vectors, 0)
    inverse = np.where(abs(lengths - 1) > 2.0**-28, 1 / lengths, 1.0)  # norms are bounds, not roundings
    result, of_rounding = _multiplied(found.vectors, inverse, dtype)
    bounds = (found.missed + of_rounding / inverse) / shortest * UP
    return result, np.where(bounds < 1, bounds, np.inf)


def _to_first_order(found: GeneralDecomposition, pairs: Pairs) -> tuple[Any, Any]:
    """X (I + W), and upper bounds of the abs of what it is off by; zeros where nothing is known."""
    x, (turned, errors) = found.vectors, found.turned()
    xp, n = array_library(x), x.shape[0]
    dx = found.times(found.real_change(turned), bits := x.bits + 64 if isinstance(x, Numbers) else 128)
    floats = not isinstance(x, Numbers) and not isinstance(dx, Numbers)
    vectors = pairs.eigenvectors(added(x, dx) if floats else exactly(x) + exactly(dx))
    error = 2.0**-bits if isinstance(dx, Numbers) else native_error(x, dx) + 2 * UNIT
    # In a real basis the columns of a pair are combined, and so are their errors.
    partners = found.pairs.partners(n)
    sizes = abs(turned)
    sizes = sizes + sizes[:, partners]
    sizes = sizes + sizes[partners]
    errors = xp.asarray(errors + (error + 8 * UNIT) * sizes + LEAST)
    return vectors, native_product(magnitudes(found.pairs.eigenvectors(x)), errors) * (1 + (n + 64) * 2.0**-50)


def _multiplied(vectors: Any, factors: Floats, dtype: str) -> tuple[Any, Floats]:
    """Columns times factors, in a format, and upper bounds of the norms of what that adds to each."""
    xp, unit = array_library(vectors), bool((factors == 1).all())
    if isinstance(vectors, Sum) and not is_multiprecision(dtype):
        by = xp.asarray(factors)
        if unit:
            result = in_format(vectors, dtype)
            return result, norms_on_host(missing(vectors, widened(result)), 0)
        product = vectors.high * by + vectors.low * by
        result = in_format(product, dtype)
        errors = magnitudes(product - widened(result))
        return result, norms_on_host(errors + 1.25 * UNIT * magnitudes(product) + LEAST, 0)
    product = exactly(vectors)
    errors = 0.0
    if not unit:
        bits = max(product.bits, 64)
        by = mparray(xp.asarray(np.diag(factors)))
        product = matmul(product, by, accuracy=componentwise(2.0**-bits), dtype="mp")
        errors = 2.0**-bits * magnitudes(product) * (1 + 2.0**-7)
    result = in_format(product, dtype)
    return result, norms_on_host(missing(product, result) + errors + LEAST, 0)
