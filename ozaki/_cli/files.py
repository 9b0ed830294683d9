"""Matrices in files: NumPy's .npy and .npz, and MatrixMarket's .mtx."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SUFFIXES = (".npy", ".npz", ".mtx")


def read(path: str) -> npt.NDArray[Any]:
    """Read a float32 or float64 array.

    Parameters
    ----------
    path : str
        A .npy, .npz or .mtx file; ``file.npz:name`` picks one array of several. Integers that float64 holds exactly
        become float64; a sparse matrix becomes dense.

    Raises
    ------
    ValueError, TypeError, OSError, ModuleNotFoundError
        Naming the file.
    """
    picked = None if Path(path).exists() else re.fullmatch(r"(.*?\.npz):(.*)", path, re.IGNORECASE | re.DOTALL)
    file, name = picked.groups() if picked else (path, "")
    suffix = _suffix(file)
    try:
        if suffix == ".mtx":
            array = _dense(file)
        else:
            with open(file, "rb") as opened:
                loaded = np.load(opened, allow_pickle=False)
                array = _named(loaded, file, name) if suffix == ".npz" else _whole(loaded)
    except (OSError, ModuleNotFoundError):
        raise
    except MemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except Exception as error:  # whatever the readers of the formats make of a damaged file
        raise ValueError(f"{path}: {error or type(error).__name__}") from None
    return _as_float(path, array)


def write(path: str, array: npt.NDArray[Any]) -> None:
    """Write an array in the format that the file's name ends with; in a .npz it is called "c"."""
    check_writable(path, array.shape)
    suffix = _suffix(path)
    with open(path, "wb") as file:  # by name, they would append a suffix to one in capitals
        if suffix == ".mtx":
            _matrix_market().mmwrite(file, array.astype(np.float64), precision=17)  # SciPy cuts float32 short
        elif suffix == ".npy":
            np.save(file, array)
        else:
            np.savez(file, c=array)


def check_writable(path: str, shape: tuple[int, ...] | None = None) -> None:
    """Raise what `write` would raise about the name and, if it is known, the shape, before anything is computed."""
    if _suffix(path) == ".mtx":
        _matrix_market()
        if shape is not None and len(shape) != 2:
            raise ValueError(f"{path}: a .mtx file holds a matrix, not shape {shape}; write .npy")
        if shape is not None and 0 in shape:
            raise ValueError(f"{path}: a .mtx file of shape {shape} cannot be read again; write .npy")
    check_place(path)


def check_place(path: str) -> None:
    """Raise where no file of that name can be written."""
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path}: is a folder; expected the name of a file")
    place = Path(path).resolve()
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{path}: no folder {place.parent}")
    if not os.access(place if place.exists() else place.parent, os.W_OK):
        raise PermissionError(f"{path}: may not be written")


def _suffix(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: format {suffix or 'without suffix'} is not known; expected {', '.join(SUFFIXES)}")
    return suffix


def _matrix_market() -> Any:
    try:
        import scipy.io
    except ModuleNotFoundError:
        raise ModuleNotFoundError(".mtx files need SciPy: pip install 'ozaki[io]'") from None
    return scipy.io


def _dense(file: str) -> npt.NDArray[Any]:
    market = _matrix_market()
    rows, columns, *_ = market.mminfo(file)
    if 0 in (rows, columns):  # SciPy's reader ends the process
        raise ValueError(f"a matrix of shape ({rows}, {columns}); expected one that is not empty, or .npy")
    matrix = market.mmread(file, spmatrix=False)
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def _whole(loaded: Any) -> npt.NDArray[Any]:
    if not isinstance(loaded, np.ndarray):
        raise ValueError("holds an archive; rename it to .npz")
    return loaded


def _named(loaded: Any, file: str, name: str) -> npt.NDArray[Any]:
    if isinstance(loaded, np.ndarray):
        raise ValueError("holds one array; rename it to .npy")
    names = list(loaded.keys())
    if not name and len(names) == 1:
        name = names[0]
    if name not in names:
        raise ValueError(f"arrays {', '.join(names)}; name one, as {file}:{names[0] if names else 'name'}")
    return np.asarray(loaded[name])


def _as_float(path: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    native = array.dtype.newbyteorder("=")
    if native in (np.float32, np.float64):
        return array.astype(native, copy=False)
    if array.dtype.kind in "iub":
        if array.size == 0 or (int(array.min()) >= -(2**53) and int(array.max()) <= 2**53):
            return array.astype(np.float64)
        raise ValueError(f"{path}: integers beyond 2**53, which float64 does not hold")
    raise TypeError(f"{path}: {array.dtype} is not supported; expected float32 or float64")
