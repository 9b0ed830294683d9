"""Products of 16-bit floats rounded once to 16 bits, beside those of PyTorch, which add in an order of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import ozaki
from benchmarks.devices import Device, medians_side_by_side
from benchmarks.measure import Sample, WrongAnswerError
from benchmarks.results import Row, Shape

if TYPE_CHECKING:
    import torch

FORMATS = {"bfloat16": "bf16", "float16": "fp16"}
"""The formats, with the accuracies that are named after them."""

WIDTH = {"cupy": 8192, "numpy": 1024}
"""Rows and columns of the weights that few rows are multiplied by."""

FEW = (1, 16, 64)
"""Numbers of rows of decoding steps."""


class Routine(NamedTuple):
    """A way to multiply, and what is proven of it: a componentwise bound, or None."""

    name: str
    multiply: Callable[[], Any]
    bound: float | None
    products: int


def half_rows(device: Device, sizes: tuple[int, ...], seed: int, min_seconds: float) -> Iterator[Row]:
    """Measure square products, then those of few rows with wide weights, in both formats.

    Raises
    ------
    ImportError
        Without PyTorch.
    WrongAnswerError
        If an error is above its bound; nothing is timed then.
    """
    width = WIDTH[device.xp.__name__]
    for name in FORMATS:
        for shape in (*map(Shape.square, sizes), *(Shape(m, width, width) for m in FEW)):
            yield from _rows_of(device, shape, name, seed, min_seconds)
            device.release()


def _rows_of(device: Device, shape: Shape, name: str, seed: int, min_seconds: float) -> Iterator[Row]:
    import torch

    on_gpu = device.xp.__name__ == "cupy"
    made = torch.Generator("cuda" if on_gpu else "cpu").manual_seed(seed)
    a, b = (
        torch.randn(*size, generator=made, device=made.device).to(getattr(torch, name))
        for size in ((shape.m, shape.k), (shape.k, shape.n))
    )
    x, y = (device.xp.asarray(each.double()) if on_gpu else each.double().numpy() for each in (a, b))
    sample = Sample.of(x, y, device.xp, seed)
    del x, y
    routines = list(_routines(a, b, name, on_gpu))
    entries = [sample.entries(_as_array(each.multiply().double(), device)) for each in routines]
    errors = sample.errors(*entries)
    for routine, (error, _) in zip(routines, errors, strict=True):
        if routine.bound is not None and not error <= routine.bound:
            raise WrongAnswerError(f"{routine.name}, n = {shape}: error {error:.3g}, bound {routine.bound}")
    measured = medians_side_by_side(device, [[each.multiply] for each in routines], min_seconds)
    for routine, (error, rms), (seconds, pace) in zip(routines, errors, measured, strict=True):
        yield Row(
            task="bf16",
            routine=routine.name,
            ours=routine.name.startswith("ozaki"),
            m=shape.m,
            n=shape.n,
            k=shape.k,
            dtype=name,
            data="normal",
            seconds=seconds,
            tflops=2e-12 * shape.m * shape.k * shape.n / seconds,
            error=error,
            bound=routine.bound,
            products=routine.products,
            rms=rms,
            sm_mhz=pace.sm_mhz,
            power_limited=pace.power_limited,
        )


def _routines(a: torch.Tensor, b: torch.Tensor, name: str, on_gpu: bool) -> Iterator[Routine]:
    """PyTorch's product in that format, and on a CPU that in float32; ours of a matrix, and of a prepared one."""
    accuracy = FORMATS[name]
    plan = ozaki.plan(a, b, accuracy=accuracy)
    right = ozaki.prepare(b, "right", plan)
    yield Routine(f"torch {name}", partial(a.__matmul__, b), None, 1)
    if not on_gpu:
        yield Routine("torch float32", partial(a.float().__matmul__, b.float()), None, 1)
    yield Routine(f"ozaki {accuracy}", partial(ozaki.matmul, a, b, accuracy=accuracy), plan.bound, plan.products)
    yield Routine(f"ozaki {accuracy}, prepared", partial(ozaki.matmul, a, right, plan=plan), plan.bound, plan.products)


def _as_array(x: torch.Tensor, device: Device) -> Any:
    return device.xp.asarray(x) if device.xp.__name__ == "cupy" else np.asarray(x)
