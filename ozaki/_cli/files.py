"""Reading and writing matrices: NumPy's .npy and .npz, MatrixMarket's .mtx, compressed or not (.mtx.gz), and .txt."""

from __future__ import annotations

import gzip
import os
import re
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ozaki
from ozaki._cli import matrix_market, numpy_files, text_files
from ozaki._cli.replacing import check_place, written_whole
from ozaki.call.integers import first_rounded
from ozaki.call.operands import holds_complex
from ozaki.records.formats import is_complex

SUFFIXES = (".npy", ".npz", ".mtx", ".mtx.gz", ".txt")

Matrix = npt.NDArray[Any] | ozaki.MPArray


def read(path: str, integers: bool = False, halves: bool = True) -> Matrix:
    """Read an array of real or complex floats, or of multiprecision numbers.

    Parameters
    ----------
    path : str
        A .npy, .npz, .mtx, .mtx.gz or .txt file; ``file.npz:name`` picks one array of several. A sparse matrix becomes
        dense.
    integers : bool
        Whether integers stay integers; else they become float64, which must hold them.
    halves : bool
        Whether float16 becomes float32; else it is refused.

    Returns
    -------
    array of float32, float64, complex64 or complex128, or of integers; or an MPArray, of a .txt file, of integers
    beyond 64 bits, or, real or complex, of a file that `MPArray.save` wrote

    Raises
    ------
    ValueError, TypeError, OSError, MemoryError
        The message names the file.
    """
    picked = None if os.path.exists(path) else re.fullmatch(r"(.*?\.npz):(.*)", path, re.IGNORECASE | re.DOTALL)
    file, name = picked.groups() if picked else (path, "")
    suffix = _suffix(file)
    try:
        with open(file, "rb") as opened:
            array = _read(opened, suffix, file, name, integers)
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from None
    except MemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except Exception as error:  # readers of damaged files may raise anything
        raise ValueError(f"{path}: {' '.join(str(error).split()) or type(error).__name__}") from None
    if isinstance(array, ozaki.MPArray) or (integers and array.dtype.kind in "iub"):
        return array
    if array.dtype == object:
        return ozaki.mparray(array)
    if halves and array.dtype.kind == "f" and array.dtype.itemsize == 2:
        return array.astype(np.float32)
    return _as_float(path, array)


def read_operands(a: str, b: str, dtype: str | None) -> tuple[Matrix, Matrix]:
    """Read two operands of a product of this dtype: for "int64" and "mp" integers stay integers."""
    integers = dtype in ("int64", "mp")
    return read(a, integers), read(b, integers)


def write(path: str, array: Matrix) -> None:
    """Write an array in the format that the file's name ends with; in a .npz an array of NumPy's is called "c".

    Raises
    ------
    ValueError, OSError
        The message names the file, which is not changed then.
    """
    check_writable(path, array.shape)
    check_holds(path, "mp" if isinstance(array, ozaki.MPArray) else str(array.dtype))
    if holds_complex(array):
        check_holds(path, "complex128")
    suffix = _suffix(path)
    with written_whole(path) as file:
        if suffix == ".txt":
            text_files.write(file, ozaki.mparray(array))
        elif isinstance(array, ozaki.MPArray):
            array.save(file)
        elif suffix == ".mtx.gz":
            # No name and no time are stored, so the same matrix gives the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                matrix_market.write(packed, array)
        elif suffix == ".mtx":
            matrix_market.write(file, array)
        elif suffix == ".npy":
            numpy_files.write_array(file, array)
        else:
            numpy_files.write_archive(file, c=array)


def check_writable(path: str, shape: tuple[int, ...] | None = None) -> None:
    """Raise what `write` would raise for this name and, unless it is None, this shape."""
    if _suffix(path).startswith(".mtx") and shape is not None and len(shape) != 2:
        raise ValueError(f"{path}: a .mtx file holds a matrix, not shape {shape}; write .npy")
    check_place(path)


def check_holds(path: str, dtype: str) -> None:
    """Refuse a file whose format holds no array of this dtype: one of NumPy's, or "mp" for an MPArray.

    Raises
    ------
    ValueError
        The message names the file.
    """
    suffix = _suffix(path)
    if dtype == "mp" and suffix not in (".npz", ".txt"):
        raise ValueError(
            f"{path}: a {suffix} file holds no multiprecision numbers; write .npz or .txt, or round by --dtype float64"
        )
    if dtype.startswith("float") and suffix == ".txt":
        raise ValueError(f"{path}: a .txt file holds multiprecision numbers; remove --dtype {dtype}, or write .npy")
    if is_complex(dtype) and suffix == ".txt":
        raise ValueError(f"{path}: a .txt file holds real numbers, and the product is complex; write .npz")


def implied_dtype(path: str) -> str | None:
    """Return the dtype that the name of a file implies for a product: "mp" for .txt, else None."""
    return "mp" if _suffix(path) == ".txt" else None


def _suffix(path: str) -> str:
    """Return the suffix, of `SUFFIXES`, of a file's name; raise if it has none of them."""
    name = Path(path).name.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return suffix
    if not path:
        raise ValueError(f"the name of a file is empty; expected one that ends with {', '.join(SUFFIXES)}")
    suffix = Path(path).suffix or "without suffix"
    raise ValueError(f"{path}: format {suffix} is not known; expected {', '.join(SUFFIXES)}")


def _read(file: BufferedIOBase, suffix: str, path: str, name: str, integers: bool) -> Matrix:
    if suffix == ".mtx.gz":
        with gzip.GzipFile(fileobj=file) as unpacked:
            return matrix_market.read(unpacked, integers)
    if suffix == ".mtx":
        return matrix_market.read(file, integers)
    if suffix == ".txt":
        return text_files.read(file)
    return numpy_files.read_array(file) if suffix == ".npy" else numpy_files.read_archive(file, path, name)


def _as_float(path: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as floats, real or complex; integers become float64 if none is rounded, else raise."""
    native = array.dtype.newbyteorder("=")
    if native in (np.float32, np.float64, np.complex64, np.complex128):
        return array.astype(native, copy=False)
    if array.dtype.kind in "iub":
        if first_rounded(array) is None:
            return array.astype(np.float64)
        raise ValueError(
            f"{path}: integers beyond 2**53, which float64 does not hold; --dtype int64 or --dtype mp multiplies them"
        )
    if native == np.dtype("V2"):
        raise TypeError(
            f"{path}: two bytes an element, of which the file does not say what they are, as NumPy writes bfloat16; "
            "save it as numpy.save(name, x.astype('float32')), which is exact"
        )
    raise TypeError(f"{path}: {array.dtype} is not supported; expected float32, float64, complex64 or complex128")
