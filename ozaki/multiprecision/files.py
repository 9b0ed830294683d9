"""Arrays of multiprecision numbers in NumPy's files, .npz.

A file holds four arrays, as `numpy.savez` writes them, and nothing that is pickled:

    signs      int8, shape (...): -1, 0 or 1
    exponents  int64, shape (...): 0 where the element is zero
    limbs      uint32, shape (L, ...), L = ceil(bits / 32), the highest limb first
    bits       int64, no axes

Of complex numbers the last axis of these planes has the real and the imaginary parts, and a fifth array says so:

    is_complex bool, no axes

An element is signs 2**exponents F, F = sum of limbs[l] 2**(-32 (l + 1)) in [1/2, 1), or zero. The bits of F after the
first `bits` ones are zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.limbs import LIMB_BITS, limbs_of
from ozaki.multiprecision.numbers import FARTHEST, Numbers, moved

PLANES = {"signs": np.int8, "exponents": np.int64, "limbs": np.uint32, "bits": np.int64}
"""The arrays of every file, and their dtypes."""

COMPLEX = "is_complex"
"""The array that files of complex numbers have beside these."""


def save(file: Any, x: Numbers) -> None:
    """Write an array into a file: a path, to which NumPy adds .npz, or a file opened for bytes."""
    x = moved(x, np)
    kind: dict[str, Any] = {COMPLEX: np.True_} if x.is_complex else {}
    np.savez(file, signs=x.signs, exponents=x.exponents, limbs=x.limbs, bits=np.int64(x.bits), **kind)


def load(file: Any) -> Numbers:
    """The array of a file that `save` wrote, checked.

    Raises
    ------
    ValueError
        If the file is none of these, or what it holds is no array of multiprecision numbers.
    OSError
        If it cannot be read.
    """
    from zipfile import BadZipFile  # here, since NumPy imports it only for files, too

    try:
        planes, is_complex = _read(file)
    except (BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"file: it is damaged, or no file of NumPy's ({error})") from None
    for name, dtype in PLANES.items():
        if planes[name].dtype != dtype:
            raise ValueError(f"file: {name} of dtype {planes[name].dtype}; expected {np.dtype(dtype)}")
        planes[name] = planes[name].astype(dtype, copy=False)
    if planes["bits"].ndim or not (planes["bits"] >= 1):
        raise ValueError("file: bits must be one positive integer")
    bits = int(planes["bits"])
    _check(planes["signs"], planes["exponents"], planes["limbs"], bits)
    if is_complex and planes["signs"].shape[-1:] != (2,):
        raise ValueError(f"file: planes of shape {planes['signs'].shape}; those of complex numbers end in an axis of 2")
    return Numbers(planes["signs"], planes["exponents"], planes["limbs"], bits, is_complex)


def _read(file: Any) -> tuple[dict[str, npt.NDArray[Any]], bool]:
    """The arrays of a file, and whether its numbers are complex."""
    expected = "expected a file that MPArray.save wrote"
    try:
        stored = np.load(file, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"file: {error}; {expected} (numpy.save pickles instead)") from None
    if not isinstance(stored, np.lib.npyio.NpzFile):
        raise ValueError(f"file: a single array; {expected}")
    with stored:
        absent = [name for name in PLANES if name not in stored]
        if absent:
            raise ValueError(f"file: no array {absent[0]!r}; {expected}")
        flag = stored.get(COMPLEX, np.False_)
        if flag.dtype != bool or flag.ndim:
            raise ValueError(f"file: {COMPLEX} must be one bool")
        return {name: stored[name] for name in PLANES}, bool(flag)


def _check(signs: npt.NDArray[Any], exponents: npt.NDArray[Any], limbs: npt.NDArray[Any], bits: int) -> None:
    """Whether the planes of a file are those of numbers.

    Raises
    ------
    ValueError
        If they are not; the message says which plane is wrong.
    """
    if exponents.shape != signs.shape or limbs.shape != (limbs_of(bits), *signs.shape):
        raise ValueError(
            f"file: signs, exponents and limbs of shapes {signs.shape}, {exponents.shape} and {limbs.shape}; "
            f"expected equal ones, and {limbs_of(bits)} limbs for {bits} bits"
        )
    zero = signs == 0
    if bool((abs(signs.astype(np.int64)) > 1).any()):
        raise ValueError("file: a sign that is not -1, 0 or 1")
    if bool((exponents[zero] != 0).any()) or bool((abs(exponents.astype(np.float64)) > 2.0 * FARTHEST).any()):
        raise ValueError("file: an exponent beyond -2**60 to 2**60, or of a zero")
    excess = LIMB_BITS * len(limbs) - bits
    if bool((limbs[:, zero] != 0).any()) or not bool((limbs[0][~zero] >> np.uint32(31) == 1).all()):
        raise ValueError("file: limbs that are not normalised")
    if bool((limbs[-1] & np.uint32(2**excess - 1)).any()):
        raise ValueError(f"file: an element of more than {bits} bits")
