"""Exact products, computed in Python integers.

A float, or a multiprecision number, is an integer times a power of two. Each row of `b` is packed into one
long integer, with a slot of bits for each column (Kronecker's substitution).
An element of `a` times such an integer is that element times a whole row of
`b`, and k of these products add up to a row of the result. Exponents are taken
out of the rows of `a` and the columns of `b` first, so only the range inside a
row or a column costs bits.

A complex matrix is two real ones here, its parts: the real and the imaginary
parts of its elements. A complex product is made of the real products of parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import mul
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ozaki.interchange.plain import plain
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.convert import exactly, is_matrix
from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.moving import asnumpy
from ozaki.multiprecision.numbers import MOST_BITS
from ozaki.multiprecision.objects import mparray
from ozaki.process.environment import default_environment
from ozaki.process.placement import where_they_lie
from ozaki.records.formats import HALVES

Array: TypeAlias = npt.NDArray[Any]
Matrix: TypeAlias = Array | MPArray
Operand: TypeAlias = npt.ArrayLike | MPArray
Indices: TypeAlias = npt.ArrayLike | slice | None

# Bits above which elements of `a` are multiplied as 53-bit integers, and the
# products shifted: a long integer that is mostly zeros costs as much as any.
_WIDE_BITS = 150

# Bytes of a packed integer, about, so that they stay in the cache.
_PACKED_BYTES = 1 << 15

# Bytes of the buffer, about, in which several packed integers are made at a time.
_BUFFER_BYTES = 1 << 21

# The exponent that a zero gets: above that of any other number.
_ZERO_EXPONENT = 2**62


@default_environment
def exact_matmul(a: Operand, b: Operand) -> tuple[Array, int]:
    """Multiply two matrices exactly.

    Parameters
    ----------
    a : array, shape (m, k), floats or complex numbers, finite, or integers; or an MPArray
    b : array, shape (k, n), floats or complex numbers, finite, or integers; or an MPArray

    Returns
    -------
    integers : array of Python integers (dtype object)
        Shape (m, n); of a complex operand (m, n, 2), with the real and the imaginary part of entry (i, j) of the
        product as ``integers[i, j, 0]`` and ``integers[i, j, 1]``.
    exponent : int
        ``a @ b == integers * 2**exponent``, without any error.

    Raises
    ------
    ValueError
        If an operand is no matrix, has a NaN or an Inf, or if shapes do not fit; if elements lie more than 2**24 binary
        orders apart.
    TypeError
        If an operand is of another dtype (floats are float32 and float64, complex numbers complex64 and complex128), or
        has masked elements.

    Examples
    --------
    >>> from ozaki import reference
    >>> reference.exact_matmul([[0.5, 3.0]], [[1.0], [2.0]])
    (array([[13]], dtype=object), -1)

    The product of the complex numbers 1/2 + i and 4 + 3 i is -1 + 11/2 i:

    >>> integers, exponent = reference.exact_matmul([[0.5 + 1j]], [[4 + 3j]])
    >>> integers[0, 0].tolist(), exponent
    ([-2, 11], -1)
    """
    parts, exponent = exact_parts(a, b)
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1), exponent


@default_environment
def exact_entries(a: Operand, b: Operand, rows: Indices = None, cols: Indices = None) -> tuple[Array, int]:
    """Compute some entries of a product exactly.

    Parameters
    ----------
    a : array, shape (m, k), floats, complex numbers or integers; or an MPArray
    b : array, shape (k, n), floats, complex numbers or integers; or an MPArray
    rows, cols : sequence of int, mask or slice, optional
        The rows of `a` and the columns of `b` to multiply; all by default.

    Returns
    -------
    integers : array of Python integers (dtype object)
        Shape (rows, cols); of a complex operand (rows, cols, 2), real and imaginary parts, as of `exact_matmul`.
    exponent : int
        ``(a @ b)[np.ix_(rows, cols)] == integers * 2**exponent``.

    Raises
    ------
    ValueError, TypeError
        As `exact_matmul`, but NaN and Inf may stand in rows of `a` and columns
        of `b` that are not chosen; also for indices out of range.

    Examples
    --------
    >>> from ozaki import reference
    >>> reference.exact_entries([[float("nan")], [3.0]], [[5.0, 7.0]], rows=[1], cols=[0])
    (array([[15]], dtype=object), 0)
    """
    left, right = operand("a", a, finite=False), operand("b", b, finite=False)
    return exact_matmul(left[index("rows", rows, len(left))], right[:, index("cols", cols, right.shape[1])])


@default_environment
def mpmath_matmul(a: Operand, b: Operand) -> Array:
    """Multiply two small matrices with mpmath, at a precision that loses nothing.

    Parameters
    ----------
    a : array, shape (m, k), floats or complex numbers, finite, or integers; or an MPArray
    b : array, shape (k, n), floats or complex numbers, finite, or integers; or an MPArray

    Returns
    -------
    c : array of mpmath.mpf, of a complex operand of mpmath.mpc (dtype object), shape (m, n)
        The exact product. Further arithmetic with it rounds to mpmath's
        current precision.

    Raises
    ------
    ValueError, TypeError
        As `exact_matmul`.

    Examples
    --------
    >>> from ozaki import reference
    >>> print(reference.mpmath_matmul([[0.5 + 1j]], [[4 + 3j]])[0, 0])
    (-1.0 + 5.5j)
    """
    import mpmath  # here, since its import takes as long as NumPy's

    left, right = _operands(a, b)
    # A context of its own: the precision of mpmath.mp is shared by all threads, which may change it meanwhile.
    wide: Any = mpmath.ctx_mp.MPContext()
    # Bits enough for a sum of 2 k products of real numbers, as a part of a complex entry is, from the highest to the
    # lowest.
    wide.prec = _span(left) + _span(right) + max(1, 2 * left.shape[1]).bit_length()
    with_imaginary = is_complex(left) or is_complex(right)
    number = wide.mpc if with_imaginary else wide.mpf
    rows, columns = ([[*map(number, row)] for row in x.tolist()] for x in (left, right.T))
    c = np.empty((left.shape[0], right.shape[1]), dtype=object)
    for i, j in np.ndindex(c.shape):
        entry = number(wide.fsum(map(mul, rows[i], columns[j])))
        c[i, j] = mpmath.mp.make_mpc(entry._mpc_) if with_imaginary else mpmath.mp.make_mpf(entry._mpf_)
    return c


def exact_parts(a: Operand, b: Operand) -> tuple[list[Array], int]:
    """Return the exact product as (parts, exponent), to be multiplied by 2**exponent.

    The parts are arrays of Python integers, shape (m, n): one of a real product, the real and the imaginary parts of a
    complex one. Operands and errors are those of `exact_matmul`.
    """
    left, right = _operands(a, b)
    found, exponent = aligned([_real_product(x, y) for x in parts_of(left) for y in parts_of(right)])
    if len(found) == 4:  # both operands are complex: (x + i y) (u + i v)
        xu, xv, yu, yv = found
        return [xu - yv, xv + yu], exponent
    return found, exponent


def is_complex(x: Matrix) -> bool:
    """Return whether a matrix is one of complex numbers."""
    return x.is_complex if isinstance(x, MPArray) else x.dtype.kind == "c"


def parts_of(x: Matrix) -> list[Matrix]:
    """Return the real and the imaginary parts of a complex matrix, or a real matrix alone."""
    return [x.real, x.imag] if is_complex(x) else [x]


def aligned(numbers: Sequence[tuple[Array, int]]) -> tuple[list[Array], int]:
    """Return arrays (integers, exponent) with one exponent for all: their integers and that exponent.

    Zeros alone take part in no exponent, and are not shifted: theirs may be farther away than memory holds.
    """
    lowest = min((exponent for integers, exponent in numbers if integers.any()), default=0)
    return [x << exponent - lowest if x.any() else x for x, exponent in numbers], lowest


def on_host(name: str, x: Operand) -> Matrix:
    """Return `x` in NumPy's memory, copied from a GPU if it lies there; raise if something of it would be lost."""
    if isinstance(x, MPArray) or is_matrix(x):
        return asnumpy(x if isinstance(x, MPArray) else MPArray._of(exactly(x, name)))
    if library(x) is np:
        return plain(name, x)
    with where_they_lie(((name, x),)):
        return cast(Array, cast(Any, x).get())


def operand(name: str, x: Operand, finite: bool = True) -> Matrix:
    """Return `x` as a matrix of floats or complex numbers, or of multiprecision numbers, which integers become.

    Raises
    ------
    ValueError, TypeError
        If `x` is no such matrix, or not finite if it has to be.
    """
    matrix = on_host(name, x)
    if matrix.ndim != 2:
        raise ValueError(f"{name}: expected a matrix, got shape {matrix.shape} (of a stack, call it for each matrix)")
    if isinstance(matrix, MPArray):
        return matrix
    if matrix.dtype.kind in "biu":
        return mparray(matrix)
    if matrix.dtype.name in HALVES:
        matrix = matrix.astype(np.float32)
    if matrix.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError(
            f"{name}: expected float32, float64, complex64, complex128, integers or an MPArray, got {matrix.dtype}"
        )
    if finite and not np.isfinite(matrix).all():
        raise ValueError(f"{name}: NaN and Inf have no exact product")
    return matrix


def finite_elements(x: Matrix) -> Array:
    """Return which elements are finite, an array of bools: all those of multiprecision are."""
    return np.ones(x.shape, bool) if isinstance(x, MPArray) else np.isfinite(x)


def _operands(a: Operand, b: Operand) -> tuple[Matrix, Matrix]:
    """Return both operands as matrices; raise if they cannot be multiplied."""
    left, right = operand("a", a), operand("b", b)
    if left.shape[1] != right.shape[0]:
        raise ValueError(f"b: shape {right.shape} does not fit a of shape {left.shape}; expected ({left.shape[1]}, n)")
    return left, right


def index(name: str, indices: Indices, size: int) -> Any:
    """Return a slice or an index array that selects `indices` along an axis of `size` elements; None selects all."""
    if indices is None or isinstance(indices, slice):
        return slice(None) if indices is None else indices
    chosen = np.atleast_1d(indices)
    if chosen.dtype == bool:
        if chosen.shape != (size,):
            raise ValueError(f"{name}: a mask of shape {chosen.shape}; expected ({size},)")
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size > 0):
        raise TypeError(f"{name}: expected whole numbers, a mask or a slice, got {chosen.dtype}, shape {chosen.shape}")
    if ((chosen < -size) | (chosen >= size)).any():
        raise ValueError(f"{name}: expected indices from {-size} to {size - 1}, got {chosen.min()} to {chosen.max()}")
    return chosen.astype(np.intp)


def _odd_integers(x: Matrix) -> tuple[Array, Array]:
    """Return x as odd integers (int64, or Python's) and exponents of two, int64; 0 and `_ZERO_EXPONENT` for a zero."""
    if isinstance(x, MPArray):
        wholes, places = x.to_ints()
        return wholes, np.where(wholes == 0, _ZERO_EXPONENT, places)
    fractions, exponents = np.frexp(x.astype(np.float64))
    integers = np.ldexp(fractions, 53).astype(np.int64)
    # frexp returns the exponent of the lowest set bit.
    zeros = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    zeros = np.where(integers == 0, 0, zeros).astype(np.int64)
    exponents = np.where(integers == 0, _ZERO_EXPONENT, exponents - 53 + zeros)
    return integers >> zeros, exponents.astype(np.int64)


def _lowest(exponents: Array, axis: int | None = None) -> Array:
    """Return the smallest exponents along an axis; 0 where all elements are zeros."""
    lowest = exponents.min(axis=axis, initial=_ZERO_EXPONENT)
    return np.where(lowest == _ZERO_EXPONENT, 0, lowest)


def _widths(integers: Array, shifts: Array) -> Array:
    """Return the bit lengths of ``abs(integers) << shifts``; 0 for a zero."""
    if integers.dtype == object:
        bits = np.array([x.bit_length() for x in integers.flat], np.int64).reshape(integers.shape)
        return np.where(integers == 0, 0, bits + shifts)
    bits = np.frexp(abs(integers).astype(np.float64))[1]
    return np.where(integers == 0, 0, bits + shifts)


def _span(x: Matrix) -> int:
    """Return the binary orders from the highest set bit of all elements, or their parts, to the lowest, at least 1."""
    if is_complex(x):
        return _span(MPArray._of(x.parts) if isinstance(x, MPArray) else np.stack([x.real, x.imag]))
    integers, exponents = _odd_integers(x)
    tops = np.where(integers == 0, -_ZERO_EXPONENT, exponents + _widths(integers, np.zeros_like(exponents)))
    span = int(tops.max(initial=-_ZERO_EXPONENT)) - int(exponents.min(initial=_ZERO_EXPONENT))
    return int(_checked(np.array(max(span, 1))))


def _checked(shifts: Array) -> Array:
    """Return shifts of integers; raise if one is larger than `MOST_BITS`."""
    if (largest := int(shifts.max(initial=0))) > MOST_BITS:
        raise ValueError(
            f"a, b, c: elements lie {largest} binary orders apart; as exact integers they may lie {MOST_BITS} apart"
        )
    return shifts


def integers_of(x: Matrix) -> tuple[list[Array], int]:
    """Return the parts of a matrix as (parts, exponent): Python integers, to be multiplied by 2**exponent."""
    return aligned([_real_integers(part) for part in parts_of(x)])


def _real_integers(x: Matrix) -> tuple[Array, int]:
    """Return a real matrix as (integers, exponent): Python integers, to be multiplied by 2**exponent."""
    integers, exponents = _odd_integers(x)
    lowest = int(_lowest(exponents))
    shifts = _checked(np.where(integers == 0, 0, exponents - lowest))
    return integers.astype(object) << shifts.astype(object), lowest


def _real_product(left: Matrix, right: Matrix) -> tuple[Array, int]:
    """Return the exact product of real matrices as (integers, exponent)."""
    # The longer of the two is packed: fewer and longer multiplications.
    if left.shape[0] > right.shape[1]:
        integers, exponent = _product(right.T, left.T)
        return integers.T, exponent
    return _product(left, right)


def _product(left: Matrix, right: Matrix) -> tuple[Array, int]:
    """Return the exact product of real matrices as (integers, exponent), by packing the rows of `right`."""
    (m, k), n = left.shape, right.shape[1]
    c = np.zeros((m, n), dtype=object)
    if c.size == 0 or k == 0:
        return c, 0
    a, a_exponents = _odd_integers(left)
    b, b_exponents = _odd_integers(right)
    a_lowest, b_lowest = _lowest(a_exponents, 1), _lowest(b_exponents, 0)
    a_shifts = _checked(np.where(a == 0, 0, a_exponents - a_lowest[:, None]))
    b_shifts = _checked(np.where(b == 0, 0, b_exponents - b_lowest))
    a_widths = _widths(a, a_shifts).max(axis=1)
    b_width = int(_widths(b, b_shifts).max())
    # A slot holds, in whole bytes, the sum of k products with its sign, and
    # the 8 bytes that `_pack` writes for an element.
    bits = int(a_widths.max()) + b_width + k.bit_length() + 2
    slot = max((bits + 7) // 8, int(b_shifts.max()) // 8 + 8)

    block = max(1, _PACKED_BYTES // slot)
    for start in range(0, n, block):
        part = slice(start, min(start + block, n))
        packed = _pack(b[:, part], b_shifts[:, part], slot)
        for i in range(m):
            factors, shifts = a[i].tolist(), a_shifts[i].tolist()
            if a_widths[i] <= _WIDE_BITS:
                factors = [x << s for x, s in zip(factors, shifts, strict=True)]
                total = sum(map(mul, factors, packed))
            else:
                total = sum(x * p << s for x, p, s in zip(factors, packed, shifts, strict=True))
            c[i, part] = _unpack(total, slot, part.stop - part.start)

    exponents = a_lowest[:, None] + b_lowest
    lowest = int(exponents.min())
    return c << _checked(exponents - lowest).astype(object), lowest


def _pack(integers: Array, shifts: Array, slot: int) -> list[int]:
    """Pack each row of ``integers << shifts`` into one long integer.

    Element j of a row has the `slot` bytes from ``slot * j`` on; a negative
    element borrows from the slot above it.
    """
    if integers.dtype == object:
        return [_pack_row(row, by, slot) for row, by in zip(integers.tolist(), shifts.tolist(), strict=True)]
    k, n = integers.shape
    starts = slot * np.arange(n) + shifts // 8
    # Whole bytes of a shift are part of `starts`; 53 bits shifted by the other
    # bits, at most 7, fit 8 bytes.
    octets = (abs(integers) << (shifts % 8)).astype("<u8")[..., None].view(np.uint8)
    packed = []
    group = max(1, _BUFFER_BYTES // (slot * n))
    for first in range(0, k, group):
        part = slice(first, min(first + group, k))
        ends = slot * n * np.arange(1 + part.stop - part.start)
        places = starts[part] + ends[:-1, None]
        buffers = []
        for chosen in (integers[part] > 0, integers[part] < 0):
            buffer = np.zeros(ends[-1], dtype=np.uint8)
            at, written = places[chosen], octets[part][chosen]
            for t in range(8):
                buffer[at + t] = written[:, t]
            buffers.append(buffer.tobytes())
        packed += [
            int.from_bytes(buffers[0][i:j], "little") - int.from_bytes(buffers[1][i:j], "little")
            for i, j in itertools.pairwise(ends.tolist())
        ]
    return packed


def _pack_row(integers: list[int], shifts: list[int], slot: int) -> int:
    """Pack a row of Python integers, as `_pack` does."""
    shifted = [x << by for x, by in zip(integers, shifts, strict=True)]
    above, below = (b"".join([max(sign * x, 0).to_bytes(slot, "little") for x in shifted]) for sign in (1, -1))
    return int.from_bytes(above, "little") - int.from_bytes(below, "little")


def _unpack(total: int, slot: int, n: int) -> list[int]:
    """Return the n signed integers that a packed integer consists of."""
    half = 1 << (8 * slot - 1)
    # Half a slot is added to each integer, which makes it nonnegative: then no slot borrows.
    offset = int.from_bytes(half.to_bytes(slot, "little") * n, "little")
    octets = (total + offset).to_bytes(slot * n, "little")
    return [int.from_bytes(octets[j : j + slot], "little") - half for j in range(0, slot * n, slot)]
