"""`mparray`: an `MPArray` of whatever holds numbers."""

from __future__ import annotations

from typing import Any

from ozaki.interchange.calls import any_arrays
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.checks import check_bits
from ozaki.multiprecision.convert import numbers_of


@any_arrays("x")
def mparray(x: Any, bits: int | None = None) -> MPArray:
    """Make an array of binary floating-point numbers of any precision.

    Parameters
    ----------
    x : array, tuple of arrays, nested lists, matrix or number
        - A NumPy or CuPy array of floats, complex numbers, integers or bools; the result lies in the same library.
          NumPy's long double and the arrays of numpy_quaddtype are taken, too.
        - A tuple: the words of unevaluated sums, float64 or complex128 arrays of one shape, the highest word first, as
          double-double and quad-double arithmetic keep them. Only a tuple is one: a list or an array with three axes
          holds elements.
        - Nested lists or other sequences, or an array, of objects: int, Fraction, float, complex, str ("0.1",
          "-2.5e-30" or "1/3"), decimal.Decimal, NumPy's scalars, mpmath.mpf, mpmath.mpc and mpmath's constants, mpz,
          mpq, mpfr and mpc of gmpy2, fmpz, fmpq, arf, arb and acb of python-flint, in any mixture; or one of these
          alone. An arb or acb counts as its midpoint. Where one is complex, the array is; strings are real numbers.
        - An mpmath.matrix; fmpz_mat, fmpq_mat, arb_mat or acb_mat of python-flint; an MPArray of the package mparray.
        - An MPArray.
    bits : int, optional
        2 to 1,000,000: the bits of the array, and so of products that name no other accuracy. Every element, of complex
        ones each part, is rounded to nearest at so many bits below its own first bit, ties to even, once.
        Default: all elements are kept exactly. Then none may be without an end in binary, as "0.1", Fraction(1, 3) and
        mpmath.pi are.

    Returns
    -------
    MPArray
        Its `bits` are those given; without, 53, 24 and 11 for floats, 8 for bfloat16, 113 for quads, 8 itemsize for
        unsigned integers and one less for signed ones, else the least that hold all elements, at least 2.

    Raises
    ------
    ValueError
        For an element that is NaN or Inf, a string that is no number, a number that has no end in binary, without
        `bits`, or one beyond 2**-2**60 to 2**2**60; the message names it. For nested lists of unequal lengths, and
        words of unequal shapes. If `bits` is beyond its range.
    TypeError
        For an element that is no number; the message names it and its type. If `bits` is no integer.

    Notes
    -----
    The input is never modified; the result shares no memory with it, unless it is an MPArray.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import numpy as np, ozaki
    >>> ozaki.mparray([["0.1", Fraction(1, 3)], [2**100, 1e-300]], bits=200)
    mparray([[        0.1,    0.333333],
             [1.26765e+30,    1.0e-300]], bits=200)
    >>> ozaki.mparray((np.array([1.0]), np.array([2.0**-80])))
    mparray([1.0], bits=81)
    >>> ozaki.mparray([[1, 0.5j]])
    mparray([[(1.0 + 0.0j), (0.0 + 0.5j)]], bits=2)
    """
    if bits is not None:
        bits = check_bits(bits)
    found = numbers_of(x, bits)
    return MPArray._of(found)
