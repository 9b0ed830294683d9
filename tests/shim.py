"""The kernels' arithmetic headers, built as a library for ctypes, and numbers as the 32-bit words that it takes."""

import ctypes
import math
import os
import pathlib
import shutil
import struct
import subprocess
from fractions import Fraction

import numpy as np
import pytest
from cases import FORMATS

KERNELS = pathlib.Path(__file__).parents[1] / "kernels"


def compiler():
    """The path of the C++ compiler; without one the test is skipped."""
    candidates = [os.environ.get("CXX"), "c++", "g++", "clang++"]
    path = next((path for name in candidates if name and (path := shutil.which(name))), None)
    if path is None:
        pytest.skip("no C++ compiler (CXX, c++, g++, clang++): what is written in C++ needs one to be tested")
    return path


def compiled(source, folder):
    """Build C++ functions, which may include the kernels' headers, and load them as a library."""
    (folder / "shim.cpp").write_text(source)
    library = folder / "shim.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    options += os.environ.get("OZAKI_SHIM_FLAGS", "").split()  # such as -fsanitize=undefined
    command = [compiler(), *options, f"-I{KERNELS}", str(folder / "shim.cpp"), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def call(function, *arguments):
    """Call a function of the library: arrays as pointers, the last argument, a count, as int64."""
    values = [a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else a for a in arguments[:-1]]
    function(*values, ctypes.c_int64(arguments[-1]))


def to_words(integers, words):
    mask = (1 << 32 * words) - 1
    raw = b"".join((x & mask).to_bytes(4 * words, "little") for x in integers)
    return np.frombuffer(raw, np.uint32).reshape(len(integers), words).copy()


def from_words(array):
    return [int.from_bytes(row.tobytes(), "little", signed=True) for row in np.ascontiguousarray(array)]


def bits_of(x, size):
    return struct.unpack("<Q", struct.pack("<d", x))[0] if size == 64 else struct.unpack("<I", struct.pack("<f", x))[0]


def value_of(bits, size):
    if size == 64:
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def rounded_bits(integer, exponent, size):
    """The bits of integer * 2^exponent, rounded once to a float of `size` bits; computed in integers."""
    precision, smallest, top = FORMATS[f"float{size}"]
    if integer == 0:
        return 0
    sign = 1 << size - 1 if integer < 0 else 0
    magnitude = abs(integer)
    unit = max(magnitude.bit_length() + exponent - precision, smallest)
    count = round(Fraction(magnitude) * Fraction(2) ** (exponent - unit))
    if count * Fraction(2) ** unit >= Fraction(2) ** top:
        return sign | bits_of(math.inf, size)
    return sign | bits_of(math.ldexp(count, unit), size)
