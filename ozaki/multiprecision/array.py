"""`MPArray`: what users hold, an array of multiprecision numbers with exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import index as integer_of
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from ozaki.interchange.plain import plain
from ozaki.multiprecision import exact, files, provided
from ozaki.multiprecision.arithmetic import (
    add,
    difference,
    extreme,
    magnitude,
    negated,
    order,
    paired,
    rounded_to,
    scaled,
    shifted,
)
from ozaki.multiprecision.checks import check_bits
from ozaki.multiprecision.convert import comparable, exactly
from ozaki.multiprecision.exact import check_real
from ozaki.multiprecision.floats import PRECISION, not_finite, of_floats, to_floats, trimmed
from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.numbers import Numbers, moved
from ozaki.multiprecision.printing import repr_of, text_of
from ozaki.multiprecision.quads import to_quads
from ozaki.multiprecision.wholes import to_wholes
from ozaki.process.environment import default_environment
from ozaki.process.placement import methods_where_it_lies
from ozaki.records.formats import COMPLEX, check_quad_dtype, is_quad_dtype


class _ForNumPyOnly:
    """`__array_ufunc__`: a method for NumPy, which asks the class for it; None for those that ask an object.

    These are CuPy's arrays and NumPy's masked ones: None tells their operators to leave it to the other operand's,
    instead of taking `numpy.asarray` of it.
    """

    def __get__(self, instance: Any, owner: Any) -> Callable[..., Any] | None:
        return _array_ufunc if instance is None else None


def _array_ufunc(x: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    return provided.array_ufunc(ufunc, method, inputs, kwargs)


@methods_where_it_lies
class MPArray(Numbers):
    """An array of binary floating-point numbers, real or complex, of up to `bits` bits each.

    `ozaki.mparray` makes one. Its elements never change. Each has an exponent of its own; of a complex one, each part
    has. Sums, differences and multiples are exact: the result has as many bits as it needs; `round_to` makes it
    shorter. Indexing, `reshape`, `transpose`, `swapaxes` and `diagonal` are those of NumPy. There is no NaN, no
    infinity and no negative zero.

    NumPy's functions take it where they are products (`numpy.dot`, `einsum`, `linalg.multi_dot`, ...), to the larger
    `bits` of the operands, and where results are exact (`numpy.sum`, `trace`, `vstack`, `reshape`, `add`, ...); so does
    `numpy.linalg.norm`, rounded once. Others raise a TypeError. What converts an array by itself, as the method `dot`
    of NumPy's arrays does, gets `numpy.asarray(x)`: mpmath's numbers, whose arithmetic rounds to mpmath's precision.

    Attributes
    ----------
    shape : tuple of int
    ndim, size : int
    is_complex : bool
    dtype : numpy.dtype
        Object: that of `numpy.asarray(x)`, by which other libraries tell the array from one of floats.
    bits : int
        Most bits that an element, or a part of a complex one, may have, from its first set bit to its last.
    nbytes : int
        Bytes of memory that the elements take: 9, and 4 for each 32 bits, an element, or a part of a complex one.
    real, imag : MPArray
        The real and the imaginary parts, views; of a real array the array itself, and zeros.
    signs : int8 array, NumPy or CuPy
        -1, 0 or 1; to be read, not written, as are `exponents` and `limbs`. Its shape is that of the array; of a
        complex one `(*shape, 2)`, the last axis that of the parts.
    exponents : int64 array of the same shape
        0 where the element is zero.
    limbs : uint32 array, shape `(L, *signs.shape)`
        The bits of the fraction in [1/2, 1), the highest limb first.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> x = ozaki.mparray(["1/3", "0.1"], bits=200)
    >>> 2 * x + np.array([1.0, 2.0**-300])
    mparray([1.66667,     0.2], bits=299)
    >>> float((x - x.astype("float64"))[0])
    1.850371707708594e-17
    """

    __array_priority__: ClassVar[float] = 1000.0
    __pandas_priority__: ClassVar[int] = 5000  # above that of data frames: operators of pandas leave it to this class
    __hash__: ClassVar[None]  # type: ignore[assignment]

    @classmethod
    def _of(cls, x: Numbers) -> Self:
        return x if isinstance(x, cls) else cls(x.signs, x.exponents, x.limbs, x.bits, x.is_complex)

    @property
    def dtype(self) -> np.dtype[np.object_]:
        """Object: that of `numpy.asarray(x)`, by which other libraries tell the array from one of floats."""
        return np.dtype(object)

    @property
    def T(self) -> Self:  # noqa: N802
        """The axes in reverse order; a view."""
        return self.transpose()

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise TypeError("iteration over an array without axes")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth value of an array of several elements, or none, is ambiguous")
        return bool((self.signs != 0).any())

    def __float__(self) -> float:
        if self.ndim:
            raise TypeError("only an array without axes can be converted to a Python float")
        check_real(self, "float")
        return float(self.astype("float64"))

    def __int__(self) -> int:
        """The whole part of the number, as `int` of a float."""
        if self.ndim:
            raise TypeError("only an array without axes can be converted to a Python int; use to_integers()")
        check_real(self, "int")
        return int(exact.to_fractions(self)[()])

    def __complex__(self) -> complex:
        if self.ndim:
            raise TypeError("only an array without axes can be converted to a Python complex")
        return complex(self.astype("complex128"))

    def __repr__(self) -> str:
        return repr_of(self)

    def __str__(self) -> str:
        return text_of(self)

    def __pos__(self) -> Self:
        return self

    def __neg__(self) -> Self:
        return self._of(negated(self))

    def __abs__(self) -> Self:
        if self.is_complex:
            raise TypeError("abs: a modulus is irrational in general; use abs(x.astype('complex128'))")
        return self._of(magnitude(self))

    def __add__(self, other: Any) -> Self:
        y = self._operand(other)
        return NotImplemented if y is None else self._of(add(self, y))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        y = self._operand(other)
        return NotImplemented if y is None else self._of(add(self, y, -1))

    def __rsub__(self, other: Any) -> Self:
        y = self._operand(other)
        return NotImplemented if y is None else self._of(add(y, self, -1))

    def __mul__(self, other: Any) -> Self:
        y = self._operand(other)
        if y is None:
            return NotImplemented
        array, factor = (self, y) if y.ndim == 0 else (y, self)
        if factor.ndim:
            raise TypeError(
                "*: two arrays; elementwise products are not offered, only multiples by one number; @ multiplies "
                "matrices"
            )
        return self._of(_multiple(array, moved(factor, np)))

    __rmul__ = __mul__

    def __matmul__(self, other: Any) -> Any:
        return provided.multiply(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return provided.multiply(other, self)

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return provided.array_function(function, types, args, kwargs)

    __array_ufunc__ = _ForNumPyOnly()

    def __eq__(self, other: Any) -> Any:
        """Whether the elements are the same numbers: a bool array of the broadcast shape.

        An element of `other` that is not dyadic, as 1/3, equals none, and no more does NaN or Inf in an array of
        floats.
        """
        return self._compared(other, lambda found: found == 0, ordered=False)

    def __ne__(self, other: Any) -> Any:
        same = self.__eq__(other)
        return same if same is NotImplemented else ~same

    def __lt__(self, other: Any) -> Any:
        """Whether the elements are smaller: a bool array of the broadcast shape.

        The numbers are compared exactly, 1/3 and infinite floats of `other`, too. To NaN no order holds.

        Raises
        ------
        TypeError
            If one of the arrays is complex.
        """
        return self._compared(other, lambda found: found < 0)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, lambda found: found <= 0)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, lambda found: found > 0)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, lambda found: found >= 0)

    @default_environment
    def _compared(self, other: Any, holds: Callable[[Any], Any], ordered: bool = True) -> Any:
        """Whether `holds` of the `order` of the elements and another operand; False beside NaN.

        Without `ordered`, `holds` tells 0 from other numbers alone, and the operands may be complex. It is
        NotImplemented for what this class leaves to others.
        """
        xp, given = self.library, None
        is_array = isinstance(other, np.ndarray | np.generic) or library(other) is not np
        if isinstance(other, float | complex) or (is_array and other.dtype.kind in "fc"):
            other = xp.asarray(other) if isinstance(other, float | complex) else other
            if not_finite(other) is not None:
                given = other
                other = xp.where(xp.isfinite(given), given, 0)
        y = self._operand(other, lambda x: comparable(x, self.bits))
        if y is None:
            return NotImplemented
        if (self.is_complex or y.is_complex) and ordered:
            raise TypeError("complex numbers have no order; compare .real or .imag")
        found = difference(self, y) if self.is_complex or y.is_complex else order(self, y)
        if given is None:
            return holds(found)
        infinite = -xp.sign(given) if given.dtype.kind == "f" else 1
        found = xp.where(xp.isinf(given), infinite, found)
        return holds(found) & ~xp.isnan(given)

    def _operand(self, other: Any, convert: Callable[[Any], Numbers] = exactly) -> Numbers | None:
        """The other operand, in the memory where this array lies; None for what this class leaves to others.

        Raises
        ------
        TypeError
            If it is an array that lies elsewhere, or of what is no number.
        ValueError
            If an element cannot be used, as 1/3; the message names it.
        """
        if other is None or isinstance(other, str | bytes | tuple | dict | set):
            return None
        try:
            found = convert(other)
        except ValueError as error:
            raise ValueError(f"other: {str(error).removeprefix('x: ')}") from None
        except TypeError as error:
            if not isinstance(other, list) and not hasattr(other, "dtype") and not hasattr(other, "tolist"):
                return None  # no number: perhaps its class knows what to do
            raise TypeError(f"other: {str(error).removeprefix('x: ')}") from None
        if found.library is not self.library:
            if found.ndim and (isinstance(other, Numbers) or hasattr(other, "dtype")):
                raise TypeError("operands in NumPy and CuPy memory; move one by ozaki.asnumpy or ozaki.ascupy")
            found = moved(found, self.library)
        return found

    @default_environment
    def max(self, axis: int | None = None) -> Self:
        """The largest element, or those along an axis.

        Parameters
        ----------
        axis : int, optional
            Default: of the whole array.

        Returns
        -------
        MPArray, without the axis, or without any

        Raises
        ------
        ValueError
            If there are no elements to choose from.
        numpy.exceptions.AxisError, TypeError
            If the array has no such axis, it is no integer, or the array is complex.

        Examples
        --------
        >>> import ozaki
        >>> x = ozaki.mparray([["0.1", "0.3"], ["0.2", "-1"]], bits=200)
        >>> x.max(axis=0)
        mparray([0.2, 0.3], bits=200)
        >>> abs(x).max() == 1
        np.True_
        """
        return self._extreme(axis, 1)

    @default_environment
    def min(self, axis: int | None = None) -> Self:
        """The smallest element, or those along an axis; else as `max`."""
        return self._extreme(axis, -1)

    def _extreme(self, axis: int | None, sign: int) -> Self:
        check_real(self, "max" if sign > 0 else "min")
        x = self.reshape(-1) if axis is None else self
        place = normalize_axis_index(0 if axis is None else integer_of(axis), x.ndim)
        if x.shape[place] == 0:
            raise ValueError(f"{'max' if sign > 0 else 'min'} of no elements: the shape is {self.shape}")
        return self._of(extreme(x, place, sign))

    @default_environment
    def ldexp(self, exponents: Any) -> Self:
        """The elements times 2**exponents, exactly, as `numpy.ldexp` of floats.

        Parameters
        ----------
        exponents : int or array of integers
            Its shape broadcasts with that of the array.

        Returns
        -------
        MPArray, of the broadcast shape

        Raises
        ------
        TypeError
            If the exponents are no integers, or have more than numbers, as a unit or masked elements.
        ValueError
            If an element would lie beyond 2**-2**60 to 2**2**60, or the shapes do not broadcast.

        Examples
        --------
        >>> import ozaki
        >>> ozaki.mparray([3, 5]).ldexp([1, -2])
        mparray([ 6.0, 1.25], bits=3)
        """
        found = self.library.asarray(
            plain("exponents", exponents, objects=True) if library(exponents) is np else exponents
        )
        if found.dtype.kind not in "iu":
            raise TypeError(f"exponents: dtype {found.dtype}; expected integers")
        return self._of(shifted(self, found))

    def round_to(self, bits: int) -> Self:
        """The elements rounded to nearest at `bits` bits below their own first bit, ties to even.

        Of complex elements each part is rounded.

        Parameters
        ----------
        bits : int
            2 to 1,000,000.

        Returns
        -------
        MPArray, of the same shape
            The array itself, where its elements have no more bits.

        Raises
        ------
        ValueError, TypeError
            If `bits` is beyond these, or no integer.

        Examples
        --------
        >>> import ozaki
        >>> ozaki.mparray([5, 7, -9]).round_to(2)
        mparray([ 4.0,  8.0, -8.0], bits=2)
        """
        return self._of(rounded_to(self, check_bits(bits)))

    @default_environment
    def astype(self, dtype: Any) -> Any:
        """The elements as floats, rounded to nearest, ties to even: once, also where the result is subnormal.

        Parameters
        ----------
        dtype : {"float64", "float32", "float16", "complex128", "complex64"} or that dtype
            One of a complex array has to be complex. Or object: then the result is that of `numpy.asarray`. Or, of real
            numbers, `numpy_quaddtype.QuadPrecDType()`.

        Returns
        -------
        array of that dtype, of the same shape, in the library in which the numbers lie
            Numbers too large for the dtype become Inf, those too small become zeros.

        Raises
        ------
        TypeError
            For any other dtype, and for a real one of a complex array.

        Examples
        --------
        >>> import ozaki
        >>> ozaki.mparray(["0.1", "1e999"], bits=100).astype("float64")
        array([0.1, inf])
        """
        if is_quad_dtype(dtype):
            check_quad_dtype(dtype)
            check_real(self, "astype of quads")
            if self.library is not np:
                raise TypeError("dtype: numpy_quaddtype has no arrays on a GPU; use ozaki.asnumpy first")
            return to_quads(self)
        found = np.dtype(dtype)
        if found.kind == "O":
            return exact.to_mpfs(self)
        if self.is_complex and found.name in PRECISION:
            raise TypeError(f"dtype: {found}, but the numbers are complex; expected complex128 or complex64")
        if found.name not in (*PRECISION, *COMPLEX):
            raise TypeError(f"dtype: {found}; expected float64, float32, float16, complex128, complex64 or object")
        return to_floats(self, found.name)

    @default_environment
    def words(self, count: int) -> Any:
        """The elements as unevaluated sums of float64 words, of complex ones of complex128 words, the highest first.

        The first word is the element rounded to nearest, each further one is what is missing from those before it,
        rounded to nearest. So `ozaki.mparray(tuple(x.words(w)))` is x again, if w words hold it.

        Parameters
        ----------
        count : int
            How many words; at least 1.

        Returns
        -------
        float64 or complex128 array, shape (count, *shape), in the library in which the numbers lie
            Where the first word is Inf, the others are 0; of complex words each part by itself.

        Raises
        ------
        ValueError, TypeError
            If `count` is below 1, or no integer.

        Examples
        --------
        >>> import ozaki
        >>> ozaki.mparray("0.1", bits=106).words(2).tolist()
        [0.1, -5.551115123125783e-18]
        """
        try:
            count = integer_of(count)
        except TypeError:
            raise TypeError(f"count: {type(count).__name__}; expected an integer, the number of words") from None
        if count < 1:
            raise ValueError(f"count: {count}; expected 1 word or more")
        xp = self.library
        if self.is_complex:
            return xp.ascontiguousarray(self._of(self.parts).words(count)).view(np.complex128)[..., 0]
        out = xp.zeros((count, *self.shape), np.float64)
        rest: Numbers = self
        for i in range(count):
            word = xp.asarray(to_floats(rest, "float64"))
            out[i] = word
            if i + 1 == count or not bool(rest.signs.any()):
                break
            finite = xp.isfinite(word)
            rest = _where(finite, rest)
            rest = trimmed(add(rest, of_floats(xp.where(finite, word, 0.0)), -1))
        return out

    def to_mpmath(self) -> Any:
        """The elements as numbers of mpmath, exactly, whatever mpmath's precision is.

        Returns
        -------
        mpmath.matrix for two dimensions, mpmath.mpf for none, else an array of objects, mpf, of the same shape
            Of complex numbers mpmath.mpc in place of mpf. Arithmetic with them rounds to mpmath's working precision.

        Examples
        --------
        >>> import ozaki
        >>> print(ozaki.mparray("0.1", bits=100).to_mpmath())
        0.1
        """
        return exact.to_mpmath(self)

    def to_integers(self) -> npt.NDArray[np.object_]:
        """The elements as Python's integers, exactly.

        Returns
        -------
        array of objects, int, of the same shape

        Raises
        ------
        ValueError
            If one is no whole number, or takes more than 2**24 bits; the message names it.
        TypeError
            If the numbers are complex; it is there of .real and .imag.

        Examples
        --------
        >>> import numpy as np, ozaki
        >>> ozaki.matmul([[2**40, 5]], [[2**40], [5]], dtype="mp").to_integers().tolist()
        [[1208925819614629174706201]]
        """
        return exact.to_integers(self)

    def to_ints(self) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int64]]:
        """The elements as odd whole numbers times powers of two: ints * 2**exponents, exactly.

        Integers come back as they are from `to_integers`.

        Returns
        -------
        ints : array of objects, Python's int, of the same shape
            Odd, or 0.
        exponents : int64 array of the same shape
            0 where the element is zero.

        Raises
        ------
        TypeError
            If the numbers are complex; it is there of .real and .imag.

        Examples
        --------
        >>> import ozaki
        >>> ints, exponents = ozaki.mparray([0.375, -12]).to_ints()
        >>> ints.tolist(), exponents.tolist()
        ([3, -3], [-3, 2])
        """
        return exact.to_ints(self)

    def to_fractions(self) -> npt.NDArray[np.object_]:
        """The elements as Python's fractions, exactly.

        Returns
        -------
        array of objects, fractions.Fraction, of the same shape

        Raises
        ------
        ValueError
            If one would take more than 2**24 bits.
        TypeError
            If the numbers are complex; it is there of .real and .imag.

        Examples
        --------
        >>> import ozaki
        >>> ozaki.mparray([0.375, -12]).to_fractions().tolist()
        [Fraction(3, 8), Fraction(-12, 1)]
        """
        return exact.to_fractions(self)

    def to_flint(self) -> Any:
        """The elements as numbers of python-flint, exactly: balls of radius 0.

        Returns
        -------
        flint.arb_mat for two dimensions; for one, an arb_mat of one column; flint.arb for none
            Of complex numbers flint.acb_mat and flint.acb.

        Raises
        ------
        ImportError
            If python-flint is not installed.
        ValueError
            If there are more than two dimensions.
        """
        return exact.to_flint(self)

    def tolist(self) -> Any:
        """Nested lists of mpmath.mpf, or mpmath.mpc, exactly; a number for an array without axes."""
        return exact.to_mpfs(self).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """What `numpy.asarray` makes: an array of objects, mpmath.mpf or mpc, exactly; floats if a dtype asks for them.

        Raises
        ------
        TypeError
            If the numbers lie in CuPy memory.
        ValueError
            If no copy may be made.
        """
        if self.library is not np:
            raise TypeError("an array in CuPy memory is not converted implicitly; use ozaki.asnumpy")
        if copy is False:
            raise ValueError("copy: False; NumPy has no view of multiprecision numbers")
        found = self.astype(object if dtype is None else dtype)
        return np.asarray(found)

    def save(self, file: Any) -> None:
        """Write the array into a file of NumPy's format .npz, with nothing pickled.

        It holds the arrays signs, exponents, limbs and bits (`ozaki.multiprecision.files` says how). `MPArray.load`
        reads it.

        Parameters
        ----------
        file : str, path or file object opened for bytes
            NumPy adds .npz to a path without it.
        """
        files.save(file, self)

    @classmethod
    def load(cls, file: Any) -> Self:
        """Read a file that `save` wrote; nothing in it is unpickled, and all of it is checked.

        Parameters
        ----------
        file : str, path or file object opened for bytes

        Returns
        -------
        MPArray, in NumPy memory

        Raises
        ------
        ValueError
            If the file is not one that `save` wrote.
        OSError
            If it cannot be read.

        Examples
        --------
        >>> import io, ozaki
        >>> with io.BytesIO() as file:
        ...     ozaki.mparray([1, 2]).save(file)
        ...     _ = file.seek(0)
        ...     ozaki.MPArray.load(file)
        mparray([1.0, 2.0], bits=2)
        """
        return cls._of(files.load(file))


def _multiple(x: Numbers, factor: Numbers) -> Numbers:
    """X times a number, which has no axes and lies in NumPy's memory, exactly."""
    if not factor.is_complex:
        wholes, exponents = to_wholes(factor)
        return scaled(x, int(factor.signs) * wholes[0], int(exponents.reshape(-1)[0]))
    if not x.is_complex:
        return paired(_multiple(x, factor.real), _multiple(x, factor.imag))
    real = add(_multiple(x.real, factor.real), _multiple(x.imag, factor.imag), -1)
    return paired(real, add(_multiple(x.real, factor.imag), _multiple(x.imag, factor.real)))


def _where(chosen: Any, x: Numbers) -> Numbers:
    """The elements where `chosen` is true, else zeros."""
    xp = x.library
    signs, exponents, limbs = (xp.where(chosen, e, e.dtype.type(0)) for e in (x.signs, x.exponents, x.limbs))
    return Numbers(signs, exponents, limbs, x.bits)
