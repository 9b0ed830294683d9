"""The speed that Hopper's tensor cores sustain with operands in shared memory: the upper limit for all products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.devices import Device, median_seconds
from benchmarks.results import Row

SOURCE = Path(__file__).with_name("tensor_cores_sm90.cu")

THREADS = 256

DEPTH = 128
"""Bytes of k in a stage."""

ROUNDS = 2000
"""Passes of the kernel through all stages: about 10 ms."""


@dataclass(frozen=True)
class Format:
    """A format of elements, and the tile in which they are multiplied.

    Attributes
    ----------
    dtype : dtype of the elements in memory
    rows, cols, stages : size of a tile and number of stages, as in the library's kernels
    macros : macros of the kernel
    """

    dtype: Any
    rows: int
    cols: int
    stages: int
    macros: dict[str, str | int]

    def drawn(self, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Random elements for all stages: uniform bytes for integers, N(0, 1) for floats."""
        dtype = np.dtype(self.dtype)
        size = self.stages * (self.rows + self.cols) * DEPTH // dtype.itemsize
        if dtype.kind in "iu":
            return np.frombuffer(rng.bytes(size), dtype)
        return np.asarray(rng.standard_normal(size), dtype)


FORMATS = {
    "uint8": Format(np.uint8, 256, 192, 4, {"ELEMENT": "uint8_t"}),
    "int8": Format(np.int8, 256, 192, 4, {"ELEMENT": "int8_t"}),
    "fp16": Format(np.float16, 128, 208, 5, {"WORD": "FP16"}),
    "tf32": Format(np.float32, 128, 208, 5, {"WORD": "TF32"}),
}
"""The formats of residues, digits, halfhalf and tf32tf32, in this order."""


def tensor_core_rows(device: Device, seed: int, min_seconds: float) -> Iterator[Row]:
    """Measure each format for `min_seconds`; nothing on other devices than Hopper."""
    if device.xp.cuda.Device().compute_capability != "90":
        return
    from ozaki.backends.cupy.program.calls import block_of
    from ozaki.backends.cupy.program.kernels import Kernel

    rng = np.random.default_rng(seed)
    blocks = device.xp.cuda.Device().attributes["MultiProcessorCount"]
    sums = device.xp.empty(blocks * THREADS, np.uint32)
    stream = device.xp.cuda.get_current_stream().ptr
    for name, form in FORMATS.items():
        data = device.xp.asarray(form.drawn(rng))
        arguments = None, None, ROUNDS
        shared = data.nbytes + 1024
        kernel = Kernel.of(str(SOURCE), "multiply", form.macros, (blocks,), (THREADS,), *arguments, shared_mem=shared)
        block = block_of(kernel)
        for i, array in zip(kernel.addresses, (data, sums), strict=True):
            block.pieces[i] = array.data.ptr
        watched = device.watch()
        seconds = median_seconds(device, [partial(block.start, stream)], min_seconds)
        pace = watched()
        m, k = blocks * form.rows, ROUNDS * form.stages * DEPTH // data.itemsize
        yield Row(
            task="kernels",
            routine=f"tensor cores alone, {name}",
            ours=False,
            m=m,
            n=form.cols,
            k=k,
            dtype=name,
            data="normal" if data.dtype.kind == "f" else "bytes",
            seconds=seconds,
            tflops=2e-12 * m * form.cols * k / seconds,
            error=None,
            bound=None,
            products=1,
            sm_mhz=pace.sm_mhz,
            power_limited=pace.power_limited,
        )
