"""What an engine is."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps.epilogue import Epilogue, Keep, Round
from ozaki.backends.cupy.steps.operands import Described, Layout, Slices
from ozaki.backends.cupy.steps.unrounded import Unrounded
from ozaki.schemes import Scheme, Words


class Engine(Protocol):
    """What multiplies slices of a device, and how it wants them to lie.

    If engines are equal, slices for one serve the other, for plans that agree in `records.plan.slices_depend_on`.
    """

    keeps: ClassVar[bool]
    """Whether `multiply` takes every epilogue, since the product exists before it is rounded; else its kernels round in
    registers, and take `Round` into an array alone."""

    @property
    def device(self) -> Device: ...

    @property
    def label(self) -> str:
        """For reports."""
        ...

    def __hash__(self) -> int: ...

    def layout(self, scheme: Any, side: str, batch: int, rows: int, k: int) -> Layout:
        """Where the slices of an operand lie."""
        ...

    def workspace(self, scheme: Any, batch: int, rows: int, cols: int, k: int) -> int:
        """Bytes held beside the slices while such a product is computed."""
        ...

    def split(self, b: Builder, operand: Described, side: str, scheme: Any) -> Slices:
        """The slices of a whole operand."""
        ...

    def splits_in_one_read(self, scheme: Any, side: str, operand: Array, whole: bool) -> bool:
        """Whether an operand is described and split by one kernel, and faster so; `whole`: described as a whole."""
        ...

    def multiply(
        self, b: Builder, scheme: Any, left: Slices, right: Slices, epilogue: Any
    ) -> Unrounded | None:  # fmt: skip
        """Left right^T, shape (batch, m, n); frees what it holds beside.

        Returns
        -------
        The un-rounded product, if that is to be kept; else None: the epilogue has finished it.
        """
        ...

    def seconds(self, scheme: Any, batch: int, m: int, k: int, n: int, dtype: str) -> float | None:
        """How long a product takes that is planned from its data; None where nobody measured it."""
        ...


def finished(b: Builder, device: Device, product: Unrounded, epilogue: Epilogue) -> Unrounded | None:
    """The un-rounded product, to be kept; or None, when the epilogue has finished it, and its memory is free."""
    if isinstance(epilogue, Keep):
        return product
    product.finish(b, device, epilogue)
    product.release(b)
    return None


def rounded_by(epilogue: Epilogue) -> Array:
    """The result of the only epilogue of an engine that does not keep products."""
    assert isinstance(epilogue, Round) and isinstance(epilogue.out, Array)
    return epilogue.out


def workspace_of(engine: Engine, scheme: Scheme | Words, k: int, batch: int, rows: int, cols: int) -> int:
    """Bytes of slices and of what an engine holds beside them for a product of that size."""
    slices = sum(engine.layout(scheme, side, batch, x, k).size for side, x in (("left", rows), ("right", cols)))
    return slices + engine.workspace(scheme, batch, rows, cols, k)


def units_of(engine: Engine, scheme: Scheme | Words, k: int) -> tuple[int, int]:
    """Rows and columns of the smallest panel."""
    rows, cols = (engine.layout(scheme, side, 1, 1, k).unit for side in ("left", "right"))
    return rows, cols
