"""NumPy's .npy and .npz files."""

from __future__ import annotations

from collections.abc import Callable
from io import BufferedIOBase
from typing import Any

import numpy as np
import numpy.typing as npt

_ARRAY, _ARCHIVES = b"\x93NUMPY", (b"PK\x03\x04", b"PK\x05\x06")


def read_array(file: BufferedIOBase) -> npt.NDArray[Any]:
    """Read a .npy file.

    Raises
    ------
    ValueError, OSError
        Where it is something else, damaged, has more than an array, or that array holds Python objects.
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


def read_archive(file: BufferedIOBase, path: str, name: str) -> npt.NDArray[Any]:
    """Read the array of that name in a .npz file, or the only one there is.

    Raises
    ------
    ValueError, OSError
        Where it is something else, damaged, has no such array or, without a name, not one only, or the array holds
        Python objects.
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
        if not name and len(names) == 1:
            name = names[0]
        if name not in names:
            raise ValueError(f"arrays {', '.join(names)}; name one, as {path}:{names[0]}")
        return _without_objects(lambda: archive[name])


def write_array(file: BufferedIOBase, array: npt.NDArray[Any]) -> None:
    """Write a .npy file."""
    np.save(_Written(file), array)


def write_archive(file: BufferedIOBase, **arrays: npt.NDArray[Any]) -> None:
    """Write a .npz file of arrays with these names."""
    np.savez(file, **arrays)  # type: ignore[arg-type]  # its other keyword is no name of an array


class _Written:
    """A file of which NumPy sees `write` alone.

    It would write to the file's number itself, which fails for a pipe, and does not say why it fails.
    """

    def __init__(self, file: BufferedIOBase) -> None:
        self.write = file.write


def _start(file: BufferedIOBase) -> bytes:
    start = file.read(len(_ARRAY))
    file.seek(0)
    return start


def _without_objects(load: Callable[[], Any]) -> npt.NDArray[Any]:
    """Load an array; where NumPy advises to unpickle it, which may run any code, say what would do instead."""
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
