"""`det` and `slogdet`, to a named accuracy or exactly."""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Callable
from math import ceil, inf, isqrt, log2, prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ozaki.backends import backend_of
from ozaki.call.operands import are_integers, as_array, holds_complex
from ozaki.driver.watching import named, reached
from ozaki.interchange.calls import any_arrays
from ozaki.linalg.common.arrays import array_library
from ozaki.linalg.common.matrices import check_matrix, matrices
from ozaki.linalg.common.targets import Target, target_of
from ozaki.linalg.common.upper import UP, least_magnitudes, magnitudes
from ozaki.linalg.determinants import deciding
from ozaki.linalg.determinants.scalars import Determinant, Scalar, logarithm_of_abs
from ozaki.linalg.determinants.stacks import determinants
from ozaki.linalg.systems.gathering import one_by_one
from ozaki.linalg.systems.stacks import at_once
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.errors import UnfitError
from ozaki.multiprecision.numbers import Numbers, moved
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.records.accuracy import Accuracy, of_text
from ozaki.records.formats import COMPLEX, format_named, is_multiprecision, precision_of

T = TypeVar("T")


class Det(NamedTuple):
    """A determinant, and what is proven of it.

    Attributes
    ----------
    det : number, MPArray without axes, or array of the shape of a stack
    error_bound : float, or NumPy array of float64 of the shape of a stack
        The determinant differs from the exact one by no more than this times abs of the exact one. Proven, rounding to
        the dtype included. 0 where it is exact: of a singular matrix det is 0, and so is this.
    iterations : int
        Corrections; of a stack the most of a matrix.
    """

    det: Any
    error_bound: Any
    iterations: int


class SLogDet(NamedTuple):
    """The sign of a determinant, the logarithm of its abs, and what is proven of them.

    Attributes
    ----------
    sign : number, MPArray without axes, or array of the shape of a stack
        1 or -1, of a complex matrix a number of abs 1; 0 of a singular matrix.
    logabsdet : as `sign`, real
        The natural logarithm of abs(det); -inf of a singular matrix.
    error_bound : float, or NumPy array of float64 of the shape of a stack
        The larger one of `error_bounds`.
    error_bounds : NumPy array of float64, shape (..., 2)
        abs(sign - exact sign) and abs(logabsdet - exact logarithm) are at most these. They are absolute errors, since
        that of a logarithm is the relative one of the determinant. Proven, rounding to the dtype included.
    iterations : int
        As of `Det`.
    """

    sign: Any
    logabsdet: Any
    error_bound: Any
    error_bounds: npt.NDArray[np.float64]
    iterations: int


@any_arrays("a", numpy=("error_bound",))
@default_environment
@np.errstate(all="ignore")
@named("det", solves=True)
def det(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> Det:
    """Find the determinant of a square matrix to a named relative accuracy, which is proven, or exactly.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
    accuracy : str, int, float or Accuracy, optional
        Relative to the determinant, before it is rounded to its dtype: "fp64", a number of bits b up to 900, which
        allows an error of 2^-b, or a tolerance. Or "exact": with `dtype="mp"` every bit of it; of real matrices in
        float64 and float32 the number nearest to it, and so the same everywhere. Default: as many bits as the dtype
        has; of integers with `dtype="mp"` "exact".
    dtype : {"float64", "float32", "complex128", "complex64", "mp"}, optional
        As in `solve`.

    Returns
    -------
    Det
        det, its proven error bound, and how many corrections it took.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the determinant cannot be told from zero, as the condition number is above 2^300, rows and columns scaled,
        and the matrix so large that finding it exactly takes long: `accuracy="exact"` does.
    OverflowError
        If it is too large for the dtype, or so small that nothing is left of it: `dtype="mp"` holds it, and `slogdet`
        finds its logarithm.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Notes
    -----
    With unit lower triangular X and upper triangular Y for which X A Y = I + E, rows of A exchanged, det A is
    det(I + E) / prod(diag Y), and det(I + E) differs from the product of the diagonal of I + E by about half the square
    of the norm of E (docs/linalg.md, L7). Singular matrices are those whose determinant is 0 modulo so many primes that
    it can be no other integer, by Hadamard's inequality. Exact determinants are found modulo primes, too.

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> hilbert = 1 / (1 + np.add.outer(np.arange(12.0), np.arange(12.0)))
    >>> found, error_bound, _ = ozaki.linalg.det(hilbert, accuracy="fp64")
    >>> print(found, error_bound < 3e-16)
    2.68...e-78 True
    >>> ozaki.linalg.det([[2**40, 1], [1, 2**40]], dtype="mp").det == 2**80 - 1
    np.True_
    >>> ozaki.linalg.det([[1, 2], [2, 4]]).error_bound
    0.0
    """
    of_integers = _holds_integers(a)
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    asked = _asked(a, of_integers, accuracy, dtype, formats)
    found = _each(a, asked, lambda each: _rounded(each, asked))
    values, bounds = [each[0] for each in found], np.array([each[1] for each in found])
    steps = max((each[2] for each in found), default=0)
    result = Det(_of_stack(a, values, asked.target.dtype), _bounds_of_stack(a, bounds), steps)
    return reached(result, a.shape, result.det[..., None, None], "relative")


@any_arrays("a", numpy=("error_bound", "error_bounds"))
@default_environment
@np.errstate(all="ignore")
@named("slogdet", solves=True)
def slogdet(a: Any, *, accuracy: Accuracy | str | float | None = None, dtype: Any = None) -> SLogDet:
    """Find the sign of a determinant and the logarithm of its abs to a named accuracy, which is proven.

    Whatever the size of the determinant, it neither over- nor underflows.

    Parameters
    ----------
    a : array or MPArray, shape (..., n, n), real or complex
    accuracy : str, int, float or Accuracy, optional
        Of the sign and of the logarithm, an absolute error, before they are rounded to their dtype: the same as the
        relative one of `det`, but for "exact", as a logarithm has no end.
    dtype : {"float64", "float32", "complex128", "complex64", "mp"}, optional
        As in `solve`; beside a complex sign the logarithm has the dtype of its real part.

    Returns
    -------
    SLogDet

    Raises
    ------
    numpy.linalg.LinAlgError
        As in `det`, and of a singular matrix with `dtype="mp"`, where there is no -inf.
    ValueError, TypeError
        For operands that cannot be used, before any work.

    Notes
    -----
    The determinant is found as in `det`, with an error of at most e times its abs; so its logarithm is off by no more
    than e (1 + e), and so is the angle of a complex sign. The logarithm itself is computed in integers whose every
    rounding is counted (docs/linalg.md, L7).

    Examples
    --------
    >>> import numpy as np, ozaki.linalg
    >>> sign, logabsdet, error_bound, _, _ = ozaki.linalg.slogdet(-1e3 * np.eye(201))
    >>> print(sign, logabsdet, error_bound < 3e-13)
    -1.0 1388.45... True
    """
    (a,), formats = matrices(a=a)
    check_matrix("a", a, square=True)
    if _is_exact(accuracy):
        raise ValueError("accuracy: 'exact'; a logarithm has no end in binary, so name bits or a tolerance")
    asked = _Asked(target_of(accuracy, dtype, formats), False, _named_bits(dtype), holds_complex(a))
    found = _each(a, asked, lambda each: _logarithm(each, asked))
    bounds = np.array([each[2] for each in found], np.float64).reshape(-1, 2)
    steps, form = max((each[3] for each in found), default=0), asked.target.dtype
    sign = _of_stack(a, [each[0] for each in found], form)
    logabsdet = _of_stack(a, [each[1] for each in found], COMPLEX.get(form, form))
    of_parts = bounds.reshape(*a.shape[:-2], 2)
    result = SLogDet(sign, logabsdet, _bounds_of_stack(a, bounds.max(axis=1)), of_parts, steps)
    return reached(result, a.shape, logabsdet[..., None, None], "absolute")


class _Asked(NamedTuple):
    """What a caller asks of a determinant.

    Attributes
    ----------
    target : of the accuracy, unless `exact`, and of the format
    exact : whether the determinant is to be exact, or rounded to its format as the exact one is
    bits : of the format, if it is a multiprecision one and the caller named its bits, else None
    of_complex : whether the matrix is complex
    """

    target: Target
    exact: bool
    bits: int | None
    of_complex: bool


def _holds_integers(a: Any) -> bool:
    """Whether an operand, as a caller gives it, is an array of integers, or a list of these."""
    if isinstance(a, tuple | Numbers):
        return False
    x = as_array("a", a, backend_of(("a", a)))
    return not isinstance(x, Numbers) and are_integers(x)


def _asked(a: Any, of_integers: bool, accuracy: Any, dtype: Any, formats: list[str]) -> _Asked:
    """What is asked of `det`, by default every bit of integers in "mp".

    Raises
    ------
    ValueError, TypeError
    """
    every_bit = of_integers and accuracy is None and is_multiprecision(str(format_named(dtype)))
    exact = _is_exact(accuracy) or every_bit
    target = target_of(53 if exact else accuracy, dtype, formats)
    return _Asked(target, exact, _named_bits(dtype), holds_complex(a))


def _is_exact(accuracy: Any) -> bool:
    meant = of_text(accuracy)
    return meant.exact if isinstance(meant, Accuracy) else meant == "exact"


def _named_bits(dtype: Any) -> int | None:
    name = format_named(dtype)
    return precision_of(name) if name is not None and is_multiprecision(name) and name != "mp" else None


def _each(a: Any, asked: _Asked, finished: Callable[[Determinant], T]) -> list[T]:
    """What is made of the determinant of each matrix, in row-major order.

    Raises
    ------
    numpy.linalg.LinAlgError, OverflowError
        Of a stack the message ends with the index.
    """
    batch, target, n = a.shape[:-2], asked.target, a.shape[-1]
    known: list[Determinant | None] = [None] * prod(batch)
    if a.size and not asked.exact and (batch or n > deciding.SMALL) and at_once(target, n, a):
        known = determinants(a, target.tolerance / 4)
    in_order = iter(known)
    return one_by_one(batch, lambda index: finished(next(in_order) or _one(a[index], asked)))


def _one(a: Any, asked: _Asked) -> Determinant:
    """The determinant of one matrix."""
    target = asked.target
    if not asked.exact:
        return deciding.determinant(a, target.tolerance / 4)
    if is_multiprecision(target.dtype) or asked.of_complex:
        return deciding.exact(a)
    return deciding.rounding_exactly(a, COMPLEX.get(target.dtype, target.dtype))


def _rounded(found: Determinant, asked: _Asked) -> tuple[Any, float, int]:
    """A determinant in its format, in NumPy's memory, with the bound of its relative error, and the corrections.

    Raises
    ------
    OverflowError
        If it is too large for the format, or nothing is left of it.
    """
    kept: Any
    dtype = asked.target.dtype
    error = found.error / (1 - found.error) * UP  # relative to the exact determinant
    if is_multiprecision(dtype):
        kept, lost = _in_many_bits(found, asked)
    else:
        kept, left = found.value.nearest(COMPLEX.get(dtype, dtype))
        finite = isfinite(kept)
        if not finite or (not found.zero and not kept):
            raise OverflowError(
                f"dtype: the determinant is too {'small' if finite else 'large'} for {dtype}; ask for dtype='mp', or "
                "ozaki.linalg.slogdet"
            )
        lost = 0.0 if found.zero else left.size(found.value)
        kept = kept if dtype in COMPLEX else kept.real
    return kept, (error + lost * (1 + error)) * UP, found.steps


def _in_many_bits(found: Determinant, asked: _Asked) -> tuple[MPArray, float]:
    """A determinant rounded to a multiprecision format, and what that changes, relative to it.

    Raises
    ------
    OverflowError
    """
    try:
        x = found.value.multiprecision(asked.of_complex)
    except UnfitError:
        raise OverflowError(
            "a: the determinant lies beyond 2^-2^60 to 2^2^60, as no multiprecision number does; use "
            "ozaki.linalg.slogdet"
        ) from None
    bits = asked.bits if asked.exact else precision_of(asked.target.dtype)
    kept = x if bits is None else x.round_to(bits)
    return kept, _lost(x, kept)


def _lost(x: MPArray, kept: Any) -> float:
    """An upper bound of abs(x - kept) / abs(x), numbers without axes."""
    lost = x - mparray(kept)
    if not bool(lost.signs.any()):
        return 0.0
    top = int(x.exponents[x.signs != 0].max())
    return float(magnitudes(lost.ldexp(-top))) / float(least_magnitudes(x.ldexp(-top))) * UP


def _logarithm(found: Determinant, asked: _Asked) -> tuple[Any, Any, tuple[float, float], int]:
    """The sign and the logarithm of the abs of a determinant, the bounds of their errors, and the corrections.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the determinant is zero, and there is no -inf in the format.
    """
    dtype, value = asked.target.dtype, found.value
    wide, real = is_multiprecision(dtype), COMPLEX.get(dtype, dtype)
    if found.zero:
        if wide:
            raise np.linalg.LinAlgError(
                "a: singular; the logarithm of its determinant is -inf, which no multiprecision number is; ask for "
                "dtype='float64'"
            )
        return 0.0, -inf, (0.0, 0.0), found.steps
    # abs(log(1 + z)), and so the angle between 1 and 1 + z, is at most abs(z) (1 + abs(z)) for abs(z) <= 1/2.
    error = found.error * (1 + found.error) * UP
    places = max(ceil(-log2(asked.target.tolerance)), 53) + 8
    logarithm = Scalar(logarithm_of_abs(value, places), 0, -places)
    signs: Any
    kept: Any
    sign, of_sign = Scalar(1 if value.real > 0 else -1), 0.0
    if asked.of_complex:
        head = value.cut(places + 8)
        root = isqrt((head.real**2 + head.imag**2) << 2 * places)
        sign = Scalar((head.real << 2 * places) // root, (head.imag << 2 * places) // root, -places)
        of_sign = error + 2.0 ** (3 - places)
    if wide:
        signs, sign_lost = _kept_bits(sign, asked.of_complex, precision_of(dtype))
        kept, lost = _kept_bits(logarithm, False, asked.bits)
    else:
        (signs, left_of_sign), (kept, left) = sign.nearest(real), logarithm.nearest(real)
        signs, sign_lost = signs if dtype in COMPLEX else signs.real, left_of_sign.size(Scalar(1))
        kept, lost = kept.real, left.size(Scalar(1))
    return signs, kept, ((of_sign + sign_lost) * UP, (error + 2.0**-places + lost) * UP), found.steps


def _kept_bits(x: Scalar, is_complex: bool, bits: int | None) -> tuple[MPArray, float]:
    """A number as a multiprecision one, of so many bits or of all, and an upper bound of the change."""
    exact = x.multiprecision(is_complex)
    kept = exact if bits is None else exact.round_to(bits)
    return kept, float(magnitudes(exact - kept))


def _of_stack(a: Any, values: list[Any], dtype: str) -> Any:
    """Numbers in NumPy's memory as one number, or as an array of the shape of a stack, where `a` lies."""
    xp, batch = array_library(a), a.shape[:-2]
    if not is_multiprecision(dtype):
        found = xp.asarray(np.array(values, dtype).reshape(batch))
        return found[()]
    if a.ndim == 2:
        return MPArray._of(moved(values[0], xp))
    numbers = [each for value in values for each in value.reshape(1).tolist()]
    return MPArray._of(moved(mparray(np.array(numbers, object)).reshape(batch), xp))


def _bounds_of_stack(a: Any, bounds: npt.NDArray[np.float64]) -> Any:
    """Bounds as a float, or as an array of the shape of a stack."""
    return float(bounds[0]) if a.ndim == 2 else bounds.reshape(a.shape[:-2])
