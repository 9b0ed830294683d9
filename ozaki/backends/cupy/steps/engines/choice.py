"""Which engine multiplies the slices of a plan, and in which panels."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Literal, cast

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.steps.engines import (
    fused_digits,
    fused_residues,
    thin_residues,
    winograd,
    word_pairs,
    word_promoted,
)
from ozaki.backends.cupy.steps.engines.cublas_digits import CublasDigits
from ozaki.backends.cupy.steps.engines.cublas_fp16 import CublasFp16
from ozaki.backends.cupy.steps.engines.cublas_residues import CublasResidues
from ozaki.backends.cupy.steps.engines.engine import Engine, units_of, workspace_of
from ozaki.backends.cupy.steps.engines.fused_digits import FusedDigits
from ozaki.backends.cupy.steps.engines.fused_residues import (
    FusedResidues,
    SymmetricResidues,
    triangle_is_faster,
)
from ozaki.backends.cupy.steps.engines.row_digits import engine_of_columns, row_engine
from ozaki.backends.cupy.steps.engines.thin_residues import ThinResidues
from ozaki.backends.cupy.steps.engines.winograd import Winograd
from ozaki.backends.cupy.steps.engines.word_mma import MmaWords
from ozaki.backends.cupy.steps.unrounded import Symmetry
from ozaki.caches import cached
from ozaki.records.formats import is_multiprecision
from ozaki.records.memory import too_few_bytes
from ozaki.records.plan import Plan
from ozaki.schemes import ComplexResidues, ComplexSlices, Digits, Residues, Scheme, Words
from ozaki.schemes.constants import MOST_AT_ONCE, KernelScheme
from ozaki.schemes.digits import LEAST_FP16_BITS, MOST_FP16_BITS
from ozaki.schemes.row_digits import RowDigits


def engine_of(
    device: Device,
    plan: Plan,
    multiprecision: bool = False,
    combined: bool = False,
    symmetry: Symmetry | None = None,
) -> Engine:
    """The engine of a plan's slices: the one asked for, or the fastest there, within the plan's limit of workspace.

    `multiprecision`: whether an operand is; whether the result is, the plan says. `combined`: it rounds alpha A B +
    beta C once, which only engines that keep products do. `symmetry`: that of the result, where a matrix is
    multiplied by its own transpose, or conjugate transpose, and nothing is added.

    Raises
    ------
    ValueError
        If the device has none of the kind that is asked for.
    """
    (m, k, n), batch, limit = plan.shape, prod(plan.batch), plan.workspace_limit
    if isinstance(plan.scheme, Words):
        return word_engine(device, plan.scheme, batch, m, k, n)
    if isinstance(plan.scheme, RowDigits):
        # For its name, and for what is prepared: `steps.rows_of_digits` asks for the one that multiplies.
        return cast(Engine, engine_of_columns(row_engine(device, plan, m)))
    assert isinstance(plan.scheme, KernelScheme)  # `slices_obstacle` refuses any other
    quadrants = not (multiprecision or is_multiprecision(plan.dtype) or plan.inner_scaling)
    engine = slice_engine(device, plan.scheme, plan.engine, batch, plan.shape, quadrants)
    if combined and not engine.keeps:
        if plan.engine != "auto":
            raise ValueError(
                f"engine: {plan.engine!r} rounds products of digits alone, not alpha A B + beta C; use "
                "scheme='residues' there, or engine='auto'"
            )
        engine = cublas_engine(device, plan.scheme)
    if limit is None:
        if (
            symmetry
            and quadrants
            and isinstance(plan.scheme, Residues)
            and isinstance(engine, FusedResidues | ThinResidues | Winograd)
        ):
            return SymmetricResidues.of(device, symmetry) if triangle_is_faster(plan.scheme, plan.shape) else engine
        return engine
    if isinstance(engine, Winograd):
        if limit >= workspace_of(engine, plan.scheme, k, batch, m, n):
            return engine
        engine = FusedResidues(device)
    cublas = slice_engine(device, plan.scheme, "cublas", batch, plan.shape)
    if engine != cublas and plan.engine == "auto":
        # Panels of the library's own kernels are whole tiles, and panels do not shrink what digits keep aside: those of
        # cuBLAS may be smaller.
        at_once = batch if plan.undecided_apart else 1
        least = workspace_of(engine, plan.scheme, k, at_once, *units_of(engine, plan.scheme, k))
        return engine if limit >= 2 * least else cublas
    return engine


def has_complex_slices(scheme: Scheme | Words | None) -> bool:
    """Whether there are kernels that split complex rows into the slices of this scheme, and round their products."""
    return isinstance(scheme, ComplexResidues) and not scheme.several and scheme.slices.count <= MOST_AT_ONCE


def slices_obstacle(scheme: Scheme, asked: str) -> str | None:
    """Why no engine, or not the one that is asked for, multiplies the slices of this scheme; None if one does.

    That some devices lack the kernels of "fused", or lack them for these slices, is for `slice_engine` to say.
    """
    if isinstance(scheme, RowDigits):
        return None
    if not isinstance(scheme, KernelScheme):
        return f"CuPy arrays have no engine for {scheme.name}; use scheme='auto'"
    if isinstance(scheme, Residues):
        if asked == "fused" and not fused_residues.multiplies(scheme):
            return f"engine='fused' multiplies residues below 2**14, and {scheme.count} have more; use engine='auto'"
        return None
    if scheme.bits not in _DIGIT_BITS[scheme.word]:
        return f"digits of {scheme.bits} bits have no kernels for {scheme.word}; use scheme='digits'"
    if scheme.word == "fp16" and asked == "fused":
        return f"{scheme.name} are not the int8 slices that engine='fused' multiplies; use engine='auto'"
    return None


_DIGIT_BITS = {"int8": (7, 8), "fp16": range(LEAST_FP16_BITS, MOST_FP16_BITS + 1)}
"""The bits of the digits that kernels cut, for each format."""


def slice_engine(
    device: Device, scheme: KernelScheme, asked: str, batch: int, shape: tuple[int, int, int], quadrants: bool = True
) -> Engine:
    """The engine of digits or residues that is asked for, or the fastest there, for (m, k, n) and any memory.

    `quadrants`: whether there are kernels that split and round these operands and results by quadrants.
    """
    if isinstance(scheme, Digits) and scheme.word == "fp16":
        return CublasFp16(device)
    cublas = cublas_engine(device, scheme)
    if asked == "cublas":
        return cublas
    own = _own_engine(device, scheme, batch, shape, quadrants)
    if own is None:
        if asked == "fused":
            raise ValueError(
                "engine: 'fused' multiplies residues, or up to 7 digits with moderate k, on devices of compute "
                "capability 9.0; use scheme='residues' there, or engine='auto'"
            )
        return cublas
    return own if asked == "fused" or _is_faster(own, cublas, scheme, batch, shape) else cublas


def cublas_engine(device: Device, scheme: KernelScheme) -> Engine:
    """The engine of int8 slices that every GPU has."""
    return CublasResidues(device) if isinstance(scheme, Residues) else CublasDigits(device)


def fused_engine(device: Device, scheme: KernelScheme) -> Engine:
    """The library's own kernels, of a device that has them."""
    return FusedResidues(device) if isinstance(scheme, Residues) else FusedDigits(device)


def _own_engine(
    device: Device, scheme: KernelScheme, batch: int, shape: tuple[int, int, int], quadrants: bool
) -> Engine | None:
    """The fastest of the library's own int8 kernels; None if the device has none for these slices."""
    kind: Literal["residues", "digits"] = "residues" if isinstance(scheme, Residues) else "digits"
    if kind not in device.family.fused or (isinstance(scheme, Residues) and not fused_residues.multiplies(scheme)):
        return None
    quadrants = quadrants and not isinstance(scheme, ComplexSlices)
    if quadrants and isinstance(scheme, Residues) and winograd.faster(scheme, batch, shape):
        return Winograd(device)
    if quadrants and isinstance(scheme, Residues) and thin_residues.multiplies(scheme, shape[1]):
        return ThinResidues(device)
    if isinstance(scheme, Digits) and not fused_digits.multiplies(device, scheme, shape[1]):
        return None
    return fused_engine(device, scheme)


@cached(1024)
def _is_faster(own: Engine, cublas: Engine, scheme: KernelScheme, batch: int, shape: tuple[int, int, int]) -> bool:
    """Whether the library's own kernel is faster than cuBLAS, which multiplies a batch one matrix after the other.

    Its tiles are mostly filled, or the padded slices take little memory or no more than those of cuBLAS.
    """
    (m, k, n), tiles = shape, own.device.tiles
    if min(m, n) >= tiles.smallest:
        return True
    if batch == 1 and isinstance(scheme, Residues) and m * n < _FEW_ENTRIES and k > _SHORT:
        return False
    padded, plain = (workspace_of(engine, scheme, k, 1, m, n) for engine in (own, cublas))
    return padded <= max(_MOST_PADDED, plain)


_FEW_ENTRIES, _SHORT = 2**15, 2**13
"""cuBLAS is faster for results of fewer than _FEW_ENTRIES entries with k above _SHORT: its tiles are smaller."""

_MOST_PADDED = 2**34
"""Bytes that slices of a small or narrow matrix may take when they are padded to whole tiles."""


def word_engine(device: Device, words: Words, batch: int, m: int, k: int, n: int) -> Engine:
    """The engine of words, with the tiles that fit a product of that size best."""
    if device.family.words == "wgmma":
        if word_promoted.multiplies(words):
            return word_promoted.PromotedWords.of(device, words, batch, m, k, n)
        if word_pairs.multiplies(words):
            return word_pairs.PairedWords.of(device, words, batch, m, k, n)
    return MmaWords.of(device, words, batch, m, k, n)


def matrices_of(engine: Engine, plan: Plan, shape: tuple[int, ...]) -> int:
    """Matrices of a product of that shape (batch, m, n) whose slices are held at a time.

    All, if their slices and products take no more than the plan's limit or, without one, than `_MOST_OF_BATCH`; and of
    words, and where undecided entries are computed apart, which takes the whole batch.
    """
    batch, m, n = shape
    if batch == 1 or plan.undecided_apart or not isinstance(plan.scheme, KernelScheme):
        return batch
    most, part = (_MOST_OF_BATCH, _PART_OF_BATCH) if plan.workspace_limit is None else [plan.workspace_limit] * 2
    return _matrices(engine, plan.scheme, plan.shape[1], batch, m, n, most, part)


@cached(1024, typed=True)
def _matrices(
    engine: Engine, scheme: KernelScheme, k: int, batch: int, m: int, n: int, most: int, part: int
) -> int:  # fmt: skip
    if workspace_of(engine, scheme, k, batch, m, n) <= most:
        return batch
    while batch > 1 and workspace_of(engine, scheme, k, batch, m, n) > part:
        batch = -(-batch // 2)
    return batch


_MOST_OF_BATCH, _PART_OF_BATCH = 2**34, 2**32
"""Bytes that slices and products of a batch may take together; and those of its parts, where they would take more."""


def panel_of(engine: Engine, plan: Plan, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a product of that shape (batch, m, n) that are computed at a time, within the plan's limit.

    Without a limit, slices of so many residues that they are some ten times as large as the operands keep within a part
    of the device's memory, unless the smallest panel does not.

    Raises
    ------
    ValueError
        If the smallest panel takes more than the limit.
    """
    assert plan.scheme is not None
    batch, m, n = shape
    k, limit, memory = plan.shape[1], plan.workspace_limit, engine.device.memory
    if limit is None and memory is not None and isinstance(plan.scheme, Residues) and plan.scheme.several:
        least = workspace_of(engine, plan.scheme, k, batch, *units_of(engine, plan.scheme, k))
        limit = max(int(_OF_MEMORY * memory), least)
    if limit is None:
        return m, n
    return _panel(engine, plan.scheme, k, batch, m, n, limit)


_OF_MEMORY = 0.55
"""The part of a device's memory that slices and residues may take beside operands and results with many bits."""


@cached(1024, typed=True)
def _panel(engine: Engine, scheme: Scheme | Words, k: int, batch: int, m: int, n: int, limit: int) -> tuple[int, int]:
    def workspace(rows: int, cols: int) -> int:
        """Of whatever panel takes most: the last ones are smaller, but may be multiplied in more parts of k."""
        sizes = product({rows, m % rows or rows}, {cols, n % cols or cols})
        return max(workspace_of(engine, scheme, k, batch, *size) for size in sizes)

    rows, cols = m, n
    units = units_of(engine, scheme, k)
    while workspace(rows, cols) > limit:
        if rows <= units[0] and cols <= units[1]:
            too_few_bytes(limit, workspace(rows, cols))
        if rows > units[0] and (rows >= cols or cols <= units[1]):
            rows = round_up(-(-rows // 2), units[0])
        else:
            cols = round_up(-(-cols // 2), units[1])
    return rows, cols
