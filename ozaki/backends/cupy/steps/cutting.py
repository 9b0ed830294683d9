"""Integer slices of operands, stored in the layout that an engine reads."""

from __future__ import annotations

from math import ceil
from typing import Any

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros, struct
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.wide import is_wide, split_wide
from ozaki.bounds.description import FIELDS
from ozaki.caches import cached
from ozaki.schemes import Digits, Residues, Scaling, constants
from ozaki.schemes.constants import KernelScheme


def split(b: Builder, device: Device, operand: Described, side: str, scheme: KernelScheme, layout: Layout) -> Slices:
    """Split a described operand into digits or residues, stored in `layout`."""
    if isinstance(scheme, Residues) and is_wide(scheme, operand.numbers is not None):
        return split_wide(b, operand, side, scheme, layout, device.block_memory)
    slices, inner = Slices.room(b, operand, layout), operand.inner
    kernel = _split_kernel(
        operand.x.view, operand.scaling(scheme), side, scheme, layout, operand.only_largest, inner is not None
    )
    factors = [] if inner is None else [inner]
    b.launch(kernel, operand.x, operand.fields, Out(slices.mu), Out(slices.planes), *factors)
    return slices


@cached(1024)
def _split_kernel(
    view: View, scaling: Scaling, side: str, scheme: KernelScheme, layout: Layout, largest: bool, scaled: bool
) -> Kernel:
    batch, rows, k = view.shape
    of_block = min(32, 256 // view.dtype.itemsize)  # rows
    macros = cutting_macros(view, side, scheme, layout) | {"LARGEST": int(largest)}
    assert scaling.statistic == "peak" or not largest
    statistic = scaling.width if largest else FIELDS.index(scaling.statistic)
    grid = (batch * ceil(layout.rows / of_block) * (layout.k // 128),)
    file, function, threads = "conversion/split.cu", "split", 128
    more = cutting_constants(scheme, side, layout)
    if scaled:
        macros, more = macros | {"INNER": 1}, (*more, None)
    if isinstance(scheme, Digits) and scheme.word == "fp16":
        assert not scaled
        file, function, threads, more = "conversion/split_fp16.cu", "split_fp16", 256, ()
        macros = {name: x for name, x in macros.items() if name != "ROOM"} | {"SLICES": scheme.count}
    return Kernel.of(
        file, function, macros, grid, (threads,), None, *view.steps_of_parts, rows, k, layout.rows, layout.k, None,
        batch * rows, statistic, scaling.step, scaling.base, scaling.threshold, None, None,
        layout.matrix_bytes, layout.row_bytes, layout.slice_bytes, layout.slab, layout.slab_stride, *more,
    )  # fmt: skip


def cutting_macros(view: View, side: str, scheme: KernelScheme, layout: Layout) -> Macros:
    """The macros of kernels/conversion/cut.cuh, and ALONG_K; `side`: "left" or "right"."""
    shared: Macros = {"SHARED": layout.shared} if layout.shared > 1 else {}
    return shared | {
        "INPUT": view.dtype.ctype_of_part,
        "REALS": view.dtype.parts,
        "ROOM": _room(scheme),
        "LIMBS": constants.image_limbs(scheme),
        "DIGIT_BITS": scheme.bits if isinstance(scheme, Digits) else 0,
        "ALONG_K": view.along_k,
        "REVERSED": int(isinstance(scheme, Digits) and side == "right"),
        "TILE": layout.tile,
        "NEIGHBOURS": layout.neighbours,
    }


def cutting_constants(scheme: KernelScheme, side: str, layout: Layout) -> tuple[Any, ...]:
    """The arguments MORE_ARGUMENTS of kernels/conversion/cut.cuh: constants for residues, and the number of slices."""
    of_residues = (_residue_constants(scheme, side, layout.unsigned),) if isinstance(scheme, Residues) else ()
    return *of_residues, scheme.count


def _room(scheme: KernelScheme) -> int:
    """The slices that a kernel has room for: their number, rounded up to eight where the kernel takes fewer, too."""
    return scheme.count if isinstance(scheme, Digits) and scheme.bits == 7 else ceil(scheme.count / 8) * 8


@cached(256)
def _residue_constants(scheme: Residues, side: str, unsigned: bool) -> Any:
    """The struct ResidueConstants of kernels/arithmetic/residues.cuh."""
    return struct(constants.residue_constants(scheme, side, unsigned, _room(scheme)))


@cached(256)
def accumulator_moduli(moduli: tuple[int, ...], unsigned: bool) -> Any:
    """The struct AccumulatorModuli of kernels/arithmetic/residues.cuh."""
    return struct(constants.accumulator_moduli(moduli, unsigned))
