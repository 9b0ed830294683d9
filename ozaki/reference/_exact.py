"""Exact products, computed in Python integers.

A float is an integer times a power of two. Each row of `b` is packed into one
long integer, with a slot of bits for each column (Kronecker's substitution).
An element of `a` times such an integer is that element times a whole row of
`b`, and k of these products add up to a row of the result. Exponents are taken
out of the rows of `a` and the columns of `b` first, so only the range inside a
row or a column costs bits.
"""

from __future__ import annotations

import itertools
from operator import mul
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ozaki._environment import default_environment
from ozaki._masks import unmasked

Array: TypeAlias = npt.NDArray[Any]
Indices: TypeAlias = npt.ArrayLike | slice | None

# Bits above which elements of `a` are multiplied as 53-bit integers, and the
# products shifted: a long integer that is mostly zeros costs as much as any.
_WIDE_BITS = 150

# Bytes of a packed integer, about, so that they stay in the cache.
_PACKED_BYTES = 1 << 15

# Bytes of the buffer, about, in which several packed integers are made at a time.
_BUFFER_BYTES = 1 << 21

# The exponent that a zero gets: above that of any other float.
_ZERO_EXPONENT = 4096


@default_environment
def exact_matmul(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, int]:
    """Multiply two matrices exactly.

    Parameters
    ----------
    a : array, shape (m, k), float32 or float64, finite
    b : array, shape (k, n), float32 or float64, finite

    Returns
    -------
    integers : array of Python integers (dtype object), shape (m, n)
    exponent : int
        ``a @ b == integers * 2**exponent``, without any error.

    Raises
    ------
    ValueError
        If an operand is no matrix, has a NaN or an Inf, or if shapes do not fit.
    TypeError
        If an operand is not float32 or float64, or has masked elements.
    """
    left, right = _operands(a, b)
    # The longer of the two is packed: fewer and longer multiplications.
    if left.shape[0] > right.shape[1]:
        integers, exponent = _product(right.T, left.T)
        return integers.T, exponent
    return _product(left, right)


@default_environment
def exact_entries(a: npt.ArrayLike, b: npt.ArrayLike, rows: Indices = None, cols: Indices = None) -> tuple[Array, int]:
    """Compute some entries of a product exactly.

    Parameters
    ----------
    a : array, shape (m, k), float32 or float64
    b : array, shape (k, n), float32 or float64
    rows, cols : sequence of int, mask or slice, optional
        The rows of `a` and the columns of `b` to multiply; all by default.

    Returns
    -------
    integers : array of Python integers (dtype object), shape (rows, cols)
    exponent : int
        ``(a @ b)[np.ix_(rows, cols)] == integers * 2**exponent``.

    Raises
    ------
    ValueError, TypeError
        As `exact_matmul`, but NaN and Inf may stand in rows of `a` and columns
        of `b` that are not chosen; also for indices out of range.
    """
    left, right = operand("a", a, finite=False), operand("b", b, finite=False)
    return exact_matmul(left[index("rows", rows, len(left))], right[:, index("cols", cols, right.shape[1])])


@default_environment
def mpmath_matmul(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """Multiply two small matrices with mpmath, at a precision that loses nothing.

    Parameters
    ----------
    a : array, shape (m, k), float32 or float64, finite
    b : array, shape (k, n), float32 or float64, finite

    Returns
    -------
    c : array of mpmath.mpf (dtype object), shape (m, n)
        The exact product. Further arithmetic with it rounds to mpmath's
        current precision.

    Raises
    ------
    ValueError, TypeError
        As `exact_matmul`.
    """
    import mpmath  # here, since its import takes as long as NumPy's

    left, right = _operands(a, b)
    c = np.empty((left.shape[0], right.shape[1]), dtype=object)
    # Bits enough for a sum of k products of any floats, subnormals included.
    with mpmath.workprec(2 * (1024 + 1074) + max(1, left.shape[1]).bit_length()):
        for i, j in np.ndindex(c.shape):
            products = (mpmath.mpf(float(x)) * mpmath.mpf(float(y)) for x, y in zip(left[i], right[:, j], strict=True))
            c[i, j] = mpmath.fsum(products)
    return c


def on_host(name: str, x: npt.ArrayLike) -> Array:
    """Return `x` as a NumPy array, copied from a GPU if it lies there; raise if it is masked."""
    return cast(Array, x.get()) if hasattr(x, "get") else unmasked(x, name)


def operand(name: str, x: npt.ArrayLike, finite: bool = True) -> Array:
    """Return `x` as a NumPy matrix of float32 or float64; raise if it is none, or not finite if it has to be."""
    matrix = on_host(name, x)
    if matrix.ndim != 2:
        raise ValueError(f"{name}: expected a matrix, got shape {matrix.shape}")
    if matrix.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name}: expected float32 or float64, got {matrix.dtype}")
    if finite and not np.isfinite(matrix).all():
        raise ValueError(f"{name}: NaN and Inf have no exact product")
    return matrix


def _operands(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Array, Array]:
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


def _odd_integers(x: Array) -> tuple[Array, Array]:
    """Return x as odd integers and exponents of two, arrays of int64; 0 and `_ZERO_EXPONENT` for a zero."""
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
    bits = np.frexp(abs(integers).astype(np.float64))[1]
    return np.where(integers == 0, 0, bits + shifts)


def integers_of(x: Array) -> tuple[Array, int]:
    """Return a matrix as (integers, exponent): Python integers, to be multiplied by 2**exponent."""
    integers, exponents = _odd_integers(x)
    lowest = int(_lowest(exponents))
    shifts = np.where(integers == 0, 0, exponents - lowest)
    return integers.astype(object) << shifts.astype(object), lowest


def _product(left: Array, right: Array) -> tuple[Array, int]:
    """Return the exact product as (integers, exponent), by packing the rows of `right`."""
    (m, k), n = left.shape, right.shape[1]
    c = np.zeros((m, n), dtype=object)
    if c.size == 0 or k == 0:
        return c, 0
    a, a_exponents = _odd_integers(left)
    b, b_exponents = _odd_integers(right)
    a_lowest, b_lowest = _lowest(a_exponents, 1), _lowest(b_exponents, 0)
    a_shifts = np.where(a == 0, 0, a_exponents - a_lowest[:, None])
    b_shifts = np.where(b == 0, 0, b_exponents - b_lowest)
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
    return c << (exponents - lowest).astype(object), lowest


def _pack(integers: Array, shifts: Array, slot: int) -> list[int]:
    """Pack each row of ``integers << shifts`` into one long integer.

    Element j of a row has the `slot` bytes from ``slot * j`` on; a negative
    element borrows from the slot above it.
    """
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


def _unpack(total: int, slot: int, n: int) -> list[int]:
    """Return the n signed integers that a packed integer consists of."""
    half = 1 << (8 * slot - 1)
    # Half a slot is added to each integer, which makes it nonnegative: then no slot borrows.
    offset = int.from_bytes(half.to_bytes(slot, "little") * n, "little")
    octets = (total + offset).to_bytes(slot * n, "little")
    return [int.from_bytes(octets[j : j + slot], "little") - half for j in range(0, slot * n, slot)]
