"""Reading and writing NumPy's .npy and .npz files."""

from __future__ import annotations

from collections.abc import Callable
from io import BufferedIOBase
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.files import COMPLEX, PLANES

_ARRAY, _ARCHIVES = b"\x93NUMPY", (b"PK\x03\x04", b"PK\x05\x06")


def read_array(file: BufferedIOBase) -> npt.NDArray[Any]:
    """Read a .npy file.

    Raises
    ------
    ValueError, OSError
        If the file is something else, is damaged, has more than one array, or its array holds Python objects.
    """
    start = _start(file)
    if start.startswith(_ARCHIVES):
        raise ValueError("holds an archive; rename it to .npz")
    if not start.startswith(_ARRAY):
        raise ValueError("is no .npy file; expected what numpy.save writes")
    array = _without_objects(lambda: np.load(file, allow_pickle=False))
    if file.read(1):
        raise ValueError("holds more than one array, or bytes behind it; expected what numpy.save writes, once")
    return array


def read_archive(file: BufferedIOBase, path: str, name: str) -> npt.NDArray[Any] | MPArray:
    """Read the array `name` of a .npz file or, if that is empty, the only array, or the `MPArray` that was saved.

    Raises
    ------
    ValueError, OSError
        If the file is something else, is damaged, has no array of that name or, without a name, not exactly one, or if
        the array holds Python objects.
    """
    start = _start(file)
    if start.startswith(_ARRAY):
        raise ValueError("holds one array; rename it to .npy")
    if not start.startswith(_ARCHIVES):
        raise ValueError("is no .npz file; expected what numpy.savez writes")
    with np.load(file, allow_pickle=False) as archive:
        names = list(archive.keys())
        if not names:
            raise ValueError("holds no array; expected what numpy.savez writes")
        if not name and set(names) - {COMPLEX} == set(PLANES):
            file.seek(0)
            return _saved(file)
        if not name and len(names) == 1:
            name = names[0]
        if name not in names:
            raise ValueError(f"arrays {', '.join(names)}; name one, as {path}:{names[0]}")
        return _without_objects(lambda: archive[name])


def _saved(file: BufferedIOBase) -> MPArray:
    """Read a file that `MPArray.save` wrote."""
    try:
        return MPArray.load(file)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("file: ")) from None


def write_array(file: BufferedIOBase, array: npt.NDArray[Any]) -> None:
    """Write a .npy file."""
    np.save(_Written(file), array)


def write_archive(file: BufferedIOBase, **arrays: npt.NDArray[Any]) -> None:
    """Write a .npz file of arrays, which are named by the keywords."""
    np.savez(file, **arrays)  # type: ignore[arg-type]  # allow_pickle, its only other keyword, is no array's name


class _Written:
    """A file that shows NumPy its method `write` alone.

    To a file with a number NumPy writes by itself, which fails for a pipe, and without a reason that a user could read.
    """

    def __init__(self, file: BufferedIOBase) -> None:
        self.write = file.write


def _start(file: BufferedIOBase) -> bytes:
    """Return the first bytes of a file, and go back to its start."""
    start = file.read(len(_ARRAY))
    file.seek(0)
    return start


def _without_objects(load: Callable[[], Any]) -> npt.NDArray[Any]:
    """Load an array; replace errors in which NumPy advises unpickling, which may run any code, by safer advice."""
    try:
        return np.asarray(load())
    except ValueError as error:
        if "Object arrays" in str(error):
            raise ValueError(
                "holds Python objects, not numbers of one type; save it as numpy.save(name, x.astype('float64'))"
            ) from None
        if "allow_pickle" in str(error):
            raise ValueError("has a header longer than NumPy trusts; expected what numpy.save writes") from None
        raise
