"""What the functions of the compiled library are given: its structures, field by field (kernels/cpu/)."""

from __future__ import annotations

import ctypes

INNER = ("inner", ctypes.c_void_p), ("inner_matrix", ctypes.c_int64)
"""The fields of the factors of inner indices: their address, and the step from one matrix's to the next one's."""


class Describe(ctypes.Structure):
    """Rows, and where their description goes (describe.h)."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("single", "batch", "rows", "k", "of_batch", "of_rows", "of_k")],
        *[(name, ctypes.c_int64) for name in ("pairs", "width", "empty")],
        *[(name, ctypes.c_void_p) for name in ("top", "peak", "magnitudes", "squares", "bottom", "nonfinite")],
        *INNER,
    )


class Split(ctypes.Structure):
    """Rows, and where their slices go (split.h)."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("single", ctypes.c_int64),
        *[(name, ctypes.c_int64) for name in ("batch", "rows", "k", "of_batch", "of_rows", "of_k")],
        ("exponents", ctypes.c_void_p),
        ("slices", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("plane", "matrix", "depth", "narrow")],
        *INNER,
    )


class Operands(ctypes.Structure):
    """The residues of both operands (products.h)."""

    _fields_ = (
        ("left", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
        *[(f"{side}_{what}", ctypes.c_int64) for what in ("plane", "matrix", "depth") for side in ("left", "right")],
        ("words", ctypes.c_int64),
        ("moduli", ctypes.c_void_p),
        ("count", ctypes.c_int64),
    )


class DigitOperands(ctypes.Structure):
    """The digits of both operands (digits.h)."""

    _fields_ = (
        ("panels", Operands),
        *[(name, ctypes.c_int64) for name in ("right_count", "half")],
        ("weights", ctypes.c_void_p),
    )


class ShortFormat(ctypes.Structure):
    """A format of 16 bits (short_floats.h)."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("precision", "least", "infinity"))


class Addend(ctypes.Structure):
    """What is added to entries before they are rounded to 16 bits (short_floats.h)."""

    _fields_ = (
        ("c", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("of_batch", "of_rows")],
        ("beta", ctypes.c_double),
    )


class RowStatistics(ctypes.Structure):
    """Rows, and where their statistics go (row_statistics.h)."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("batch", "rows", "k", "of_batch", "of_rows", "of_k")],
        *[(name, ctypes.c_void_p) for name in ("tops", "exponents")],
        *[(name, ctypes.c_int64) for name in ("last", "empty")],
        *[(name, ctypes.c_void_p) for name in ("inexact", "low", "counts")],
    )


class LeastProducts(ctypes.Structure):
    """Counts of rows and of summaries, and where lower bounds go (row_statistics.h)."""

    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("counts", "matrices", "missing", "weight", "product", "steps", "out")
    )


class Recombination(ctypes.Structure):
    """The Chinese remainder theorem of moduli (recombine.h)."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("limbs", ctypes.c_int64),
        ("weights", ctypes.c_void_p),
        ("product", ctypes.c_void_p),
        ("inverse", ctypes.c_double),
    )


class Result(ctypes.Structure):
    """Where tiles of the result go (tiles.h)."""

    _fields_ = (
        *[
            (name, ctypes.c_int64)
            for name in ("batch", "rows", "columns", "tile_rows", "tile_columns", "single", "triangle")
        ],
        ("out", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("of_batch", "of_rows")],
        ("row_factors", ctypes.c_void_p),
        ("column_factors", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("step_of_row_factors", "step_of_column_factors")],
    )


class Magnitudes(ctypes.Structure):
    """Rows, and where their magnitudes go (proof.h)."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("imaginary", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("single", "batch", "rows", "of_batch", "of_rows", "of_k")],
        ("exponents", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("count", "every")],
        ("out", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("matrix", "depth")],
        *INNER,
    )


class Sums(ctypes.Structure):
    """Magnitudes of both operands, and where sums of their products go (`SumsOfMagnitudes` in proof.h)."""

    _fields_ = (
        ("left", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("left_matrix", "right_matrix", "depth", "rows", "columns")],
        ("out", ctypes.c_void_p),
    )


class Ratios(ctypes.Structure):
    """Lower bounds and error terms, and where their largest ratios go (proof.h)."""

    _fields_ = (
        ("lower", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("integers", "rows", "columns", "first")],
        ("left", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
        *[(f"{side}_{what}", ctypes.c_int64) for what in ("term", "matrix") for side in ("left", "right")],
        ("found", ctypes.c_void_p),
    )


class Scaling(ctypes.Structure):
    """The rule of the exponents of rows (whole.h)."""

    _fields_ = (
        *[(name, ctypes.c_int64) for name in ("width", "empty", "by_squares", "base", "count")],
        ("limits", ctypes.c_void_p),
    )


class Whole(ctypes.Structure):
    """Operands and the result of whole products (whole.h)."""

    _fields_ = (
        *[(name, ctypes.c_int64) for name in ("batch", "single", "m", "k", "n")],
        ("left", ctypes.c_void_p),
        *[(f"left_of_{axis}", ctypes.c_int64) for axis in ("batch", "rows", "k")],
        ("right", ctypes.c_void_p),
        *[(f"right_of_{axis}", ctypes.c_int64) for axis in ("batch", "rows", "k")],
        ("out", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("out_of_batch", "out_of_rows", "tile_rows", "tile_columns")],
        *[(name, ctypes.c_int64) for name in ("narrow", "farthest")],
        *[(name, ctypes.c_void_p) for name in ("scaling", "left_residues", "right_residues", "moduli")],
        ("recombination", ctypes.c_void_p),
    )


class InnerProducts(ctypes.Structure):
    """Rows of both operands, and entries of their product, in groups (inner_products.h)."""

    _fields_ = (
        *[(name, ctypes.c_void_p) for name in ("x", "y")],
        *[(name, ctypes.c_int64) for name in ("x_single", "y_single", "single", "k", "x_of_batch", "x_of_rows")],
        *[(name, ctypes.c_int64) for name in ("rows", "y_of_batch", "y_of_rows", "y_of_k")],
        *[(name, ctypes.c_void_p) for name in ("batch", "of_x", "of_y", "starts", "values")],
    )


def declare(library: ctypes.CDLL) -> None:
    """Let ctypes know the arguments of the library's functions, and what those return that return anything."""
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    arguments = {
        "describe": (pointer, integer, integer),
        "split": (pointer, ctypes.c_int, integer, integer),
        "split_complex": (pointer, ctypes.c_int, integer, integer),
        "split_digits": (pointer, ctypes.c_int, integer, integer),
        "multiply": (pointer, pointer, pointer, integer, integer, pointer),
        "multiply_complex": (pointer, pointer, pointer, integer, integer, pointer),
        "residues": (pointer, pointer, integer, integer, pointer),
        "multiply_digits": (pointer, pointer, integer, integer, pointer),
        "multiply_digits_short": (pointer, pointer, pointer, pointer, integer, integer, pointer),
        "row_statistics": (pointer, integer, integer),
        "least_products": (pointer, integer, integer),
        "diagonals": (pointer, pointer, integer, integer, pointer),
        "magnitudes": (pointer, ctypes.c_int, integer, integer),
        "sums": (pointer, integer, integer),
        "ratios": (pointer, integer, integer),
        "inner_products": (pointer, integer, integer, pointer),
    }
    for name, types in arguments.items():
        function = getattr(library, f"ozaki_cpu_{name}")
        function.argtypes, function.restype = types, None
    library.ozaki_cpu_inner_products_scratch.argtypes = ()
    library.ozaki_cpu_inner_products_scratch.restype = integer
    library.ozaki_cpu_whole_scratch.argtypes = (pointer,)
    library.ozaki_cpu_whole.argtypes = (pointer, integer, integer, pointer)
    library.ozaki_cpu_whole_scratch.restype = library.ozaki_cpu_whole.restype = integer
