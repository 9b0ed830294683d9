"""Formats by name: "float32", "complex128", and so on; of multiprecision numbers of, say, 106 bits "mp106"."""

from __future__ import annotations

from math import ceil, floor, inf, log2, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from ozaki.caches import cached

if TYPE_CHECKING:
    from ozaki.records.accuracy import Accuracy

SIGNIFICAND_BITS = {"float32": 24, "float64": 53}
"""Bits of the significands of the hardware's real formats."""

COMPLEX = {"complex64": "float32", "complex128": "float64"}
"""The complex formats, with the format of their real and imaginary parts."""

DTYPES = (*SIGNIFICAND_BITS, *COMPLEX)
"""The formats of the hardware that the library multiplies."""

HALVES = {"float16": 11, "bfloat16": 8}
"""Formats of 16 bits, bfloat16 as the package ml_dtypes gives it to NumPy, with the bits of their significands."""

STORED_AS = "uint16"
"""The dtype of arrays of results of 16-bit formats while they are computed: NumPy and CuPy may have no bfloat16."""

MULTIPRECISION = "mp"
"""The name of a format of multiprecision numbers begins with this; the bits of their significands follow.

Without bits it is the format of an exact product, as long as nobody knows how many it needs.
"""

QUAD = "quad"
"""The format of arrays of numpy_quaddtype, IEEE 754's binary128: a result of `QUAD_BITS` bits is given back as one."""

QUAD_BITS = 113
"""Bits of the significand of binary128."""

MOST_BITS = 100_000
"""Largest number of bits that a caller may ask for."""


def is_multiprecision(dtype: str) -> bool:
    """Whether a format is one of multiprecision numbers."""
    return dtype.startswith(MULTIPRECISION)


def is_complex(dtype: str) -> bool:
    """Whether a format is one of complex numbers."""
    return dtype in COMPLEX


def is_quad_dtype(dtype: Any) -> bool:
    """Whether a dtype, or a class of dtypes, is one of numpy_quaddtype, which need not be installed to ask."""
    kind = dtype if isinstance(dtype, type) else type(dtype)
    return kind.__module__.partition(".")[0] == "numpy_quaddtype" and issubclass(kind, np.dtype)


def check_quad_dtype(dtype: Any) -> None:
    """Refuse a dtype of numpy_quaddtype whose numbers are long doubles.

    Raises
    ------
    TypeError
    """
    if not isinstance(dtype, type) and dtype.backend != 0:
        raise TypeError(f"dtype: {dtype} is of long doubles; expected numpy_quaddtype.QuadPrecDType()")


def part_of(dtype: str) -> str:
    """The format of the real and the imaginary part of numbers; the format itself, if it is a real one."""
    return COMPLEX.get(dtype, dtype)


def part_bytes(dtype: str) -> int:
    """Bytes of a number of a format of the hardware, of a complex one of each part."""
    if dtype in HALVES:
        return 2
    return 8 if part_of(dtype) == "float64" else 4


def parts_in(dtype: str) -> int:
    """Real parts of a number of a format of the hardware: 2 of a complex one."""
    return 1 + is_complex(dtype)


def complex_of(dtype: str) -> str:
    """The complex format whose parts have a format of the hardware."""
    return next(name for name, part in COMPLEX.items() if part == dtype)


def precision_of(dtype: str) -> int:
    """Bits of the significand of a format, of a complex one of each part."""
    if is_multiprecision(dtype):
        return int(dtype.removeprefix(MULTIPRECISION))
    return HALVES[dtype] if dtype in HALVES else SIGNIFICAND_BITS[part_of(dtype)]


def stored_as(dtype: str) -> str:
    """The dtype of the array in which a result of a format of the hardware is computed."""
    return STORED_AS if dtype in HALVES else dtype


def in_units(x: float, exponent: int, how: str) -> str:
    """The number x 2**exponent for a person, formatted as floats are, as 5.3e-15: also below the range of a float."""
    if exponent == 0 or not 0 < x < inf:
        return format(x, how)
    decimal = (log2(x) + exponent) * log10(2)
    whole = floor(decimal)
    digits = format(10 ** (decimal - whole), how)
    if float(digits) >= 10:  # rounded up
        digits, whole = format(1.0, how), whole + 1
    return f"{digits}e{whole}"


def format_named(dtype: Any, halves: bool = False) -> str | None:
    """The format that a caller asks for: "float32", "complex128", "int64", "mp", "mp106", "quad"; None if for none.

    With `halves` also "float16" and "bfloat16".

    Raises
    ------
    ValueError
        For a number of bits out of range.
    TypeError
        For any other dtype.
    """
    if dtype is None:
        return None
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")  # torch.float64 is "float64" for NumPy
    name = dtype if isinstance(dtype, str) else ""
    if halves and (found := _half_named(dtype)) is not None:
        return found
    bits = name.removeprefix(MULTIPRECISION)
    if name == MULTIPRECISION:
        return name
    if is_multiprecision(name) and bits.isascii() and bits.isdecimal():
        if not 2 <= int(bits) <= MOST_BITS:
            raise ValueError(f"dtype: {name!r}; expected 'mp' with 2 to {MOST_BITS} bits, as 'mp106'")
        return f"{MULTIPRECISION}{int(bits)}"
    if is_quad_dtype(dtype):
        check_quad_dtype(dtype)
        return QUAD
    try:
        name = str(np.dtype(dtype))
    except TypeError:
        name = ""
    if name not in (*SIGNIFICAND_BITS, *COMPLEX, "int64", *(HALVES if halves else ())):
        sixteen = ", or 'bfloat16' or 'float16', of two such operands" if halves else ""
        raise TypeError(
            f"dtype: {dtype!r} is not supported; expected 'float32', 'float64', 'complex64', 'complex128', 'int64' or "
            f"'mp'{sixteen}"
        )
    return name


def _half_named(dtype: Any) -> str | None:
    """The 16-bit format of a name, a dtype, or a class of numbers; None of anything else."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", "")
    return name if name in HALVES else None


_LEAST_BITS = 53
"""Least bits of a multiprecision result where no accuracy is named: a list of small integers has few bits."""


def result_format(asked: str | None, operands: tuple[str, ...], target: Accuracy | None) -> str:
    """The format in which a product is computed.

    Parameters
    ----------
    asked : the format that the caller asks for, as `format_named` returns it; None for that of the operands
    operands : the formats of the operands
    target : the accuracy asked for; None if none is named
    """
    if (found := _of_hardware(asked, operands)) is not None:
        return found
    if asked == QUAD and (target is None or not target.exact):
        return f"{MULTIPRECISION}{QUAD_BITS}"
    if asked is not None and is_multiprecision(asked) and asked != MULTIPRECISION:
        return asked
    if target is None:
        return f"{MULTIPRECISION}{max(_LEAST_BITS, *map(precision_of, operands))}"
    if target.exact:
        return MULTIPRECISION
    # The rounding to the format takes at most half of the tolerance, and leaves the other half to the images.
    half = ceil(-log2(target.tolerance) - target.exponent) + 1
    return f"{MULTIPRECISION}{max(half, target.bits or 0, 2)}"


@cached(256)
def _of_hardware(asked: str | None, operands: tuple[str, ...]) -> str | None:
    """The format, if it is one of the hardware's; None of a multiprecision result."""
    if asked is not None and (asked in SIGNIFICAND_BITS or is_complex(asked)):
        return asked
    if asked is not None or any(map(is_multiprecision, operands)):
        return None
    widest = part_of(max(operands, key=precision_of))
    return complex_of(widest) if any(map(is_complex, operands)) else widest
