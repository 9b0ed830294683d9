"""The library's own kernels on a GPU: bytes moved per second, compared with a copy on the device in the same run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import ozaki
from benchmarks.devices import Device, median_seconds
from benchmarks.measure import drawn
from benchmarks.results import Row, Shape
from ozaki import Plan
from ozaki.records.shapes import Side
from ozaki.schemes import Words

if TYPE_CHECKING:
    from ozaki.backends.cupy.program.steps import Launch

PRODUCTS_ALONE = (2048, 4096)
"""Sizes at which only kernels bound by arithmetic are measured; those bound by memory need sizes far past the cache."""

SIZES = (*PRODUCTS_ALONE, 8192, 16384)

SCHEMES = {
    "float64": (("residues", 14, "cublas"), ("residues", 14, "hopper")),
    "float32": (
        ("residues", 7, "cublas"), ("residues", 7, "hopper"), ("digits", 3, "cublas"), ("digits", 3, "hopper"),
        ("halfhalf", None, "auto"), ("tf32tf32", None, "auto"),
    ),
}  # fmt: skip
"""Scheme, slices (None: words have a fixed number) and engine of the products whose kernels are measured."""

PRODUCTS = ("products/residue_gemm_sm90.cu", "products/digit_gemm_sm90.cu", "words/word_gemm_sm90.cu")
"""The kernels that are bound by arithmetic: their rows have operations, not bytes."""

FILES = (
    "conversion/describe.cu", "conversion/tops.cu", "conversion/split.cu", "conversion/describe_split_sm90.cu",
    "conversion/split_quadrants.cu", "words/split_words.cu", "words/tops_split_words_sm90.cu", *PRODUCTS,
    "conversion/reduce.cu", "conversion/recombine.cu", "conversion/recombine_quadrants.cu",
)  # fmt: skip
"""The kernels that are measured, by source file."""

NAMES = {
    "conversion/describe_split_sm90.cu": "describe and split",
    "words/tops_split_words_sm90.cu": "tops and split words",
    **{file: Path(file).stem for file in PRODUCTS},
}
"""Names of kernels by source file, where they are not made from the file's name."""

REPEATS = 10
"""Launches between two events, so that the device does not wait for the host."""


class Product:
    """A computed product whose program keeps all of its memory, so that its steps can be repeated one by one.

    Attributes
    ----------
    launches : the launches of kernels in `FILES`, in the order of the program
    """

    def __init__(self, a: Any, b: Any, plan: Plan) -> None:
        """Multiply two matrices by the slices or words of the plan."""
        import cupy as cp

        from ozaki.backends.cupy import backend
        from ozaki.backends.cupy.program.run import Execution
        from ozaki.backends.cupy.program.steps import Launch
        from ozaki.records.memory import Memory

        out = cp.empty((1, len(a), b.shape[1]), plan.dtype)
        rows: dict[Side, Any] = {"left": a[None], "right": b.T[None]}
        work = backend.work(a, b, rows.__getitem__, plan.dtype, Memory(None))
        work.multiply(plan, out)
        repetition = work.repetition()
        assert repetition is not None, "the program of this product cannot be repeated"
        program = repetition.program()
        self._kept = tuple(buffer for buffer in program.buffers if buffer.kind == "workspace")
        self._program = replace(program, releases=(), readers={}, keeps=self._kept)
        self._execution = Execution()
        self._execution.bind(program.given, (a, b, out))
        self._execution.run(self._program)
        self.launches = [x for x in program.steps if isinstance(x, Launch) and x.kernel.file in FILES]

    def repeating(self, launches: Collection[Launch]) -> Callable[[], object]:
        """A function that runs these launches again in the memory of this product, after clearing their counters."""
        from ozaki.backends.cupy.program.steps import Clear

        counters = {buffer for launch in launches for buffer, _ in launch.writes}
        steps = [x for x in self._program.steps if x in launches or (isinstance(x, Clear) and x.place[0] in counters)]
        part = replace(self._program, steps=tuple(steps), inputs=self._kept, keeps=())
        addresses = [self._execution.address(buffer) for buffer in (*part.given, *part.inputs)]
        return partial(part.run().start, addresses)


@dataclass(frozen=True)
class Kernel:
    """A kernel that is measured: one launch, or several, of a product.

    Attributes
    ----------
    name : name in result files, such as "split rows, residues 14"
    slices : number of slices, or of slice products of a kernel that multiplies; 0 for one that has neither
    bytes : bytes that it reads and writes, each counted once; None for a kernel that is bound by arithmetic
    launch : function that starts it on the current stream
    """

    name: str
    slices: int
    bytes: int | None
    launch: Callable[[], object]


def kernel_rows(device: Device, n: int, dtype: str, seed: int, min_seconds: float) -> Iterator[Row]:
    """Measure the copy of an n x n matrix, then the kernels for n x n operands, for `min_seconds` each."""
    a, b = drawn(device, Shape.square(n), dtype, seed)
    bandwidth = None
    if n not in PRODUCTS_ALONE:
        target = device.xp.empty_like(a)
        copy = Kernel("copy", 0, a.nbytes + target.nbytes, lambda: device.xp.copyto(target, a))
        copied = _row(device, copy, n, dtype, min_seconds, None)
        bandwidth = (a.nbytes + target.nbytes) / copied.seconds
        yield copied
    measured = set()
    for scheme, slices, engine in SCHEMES[dtype]:
        if engine == "hopper" and device.xp.cuda.Device().compute_capability != "90":
            continue
        for kernel in (*kernels_of(a, b, scheme, slices, engine), *whole_products(a, b, scheme, slices, engine)):
            if kernel.name not in measured and (kernel.bytes is None or bandwidth is not None):
                yield _row(device, kernel, n, dtype, min_seconds, bandwidth)
                measured.add(kernel.name)
        device.release()


def kernels_of(a: Any, b: Any, scheme: str, given: int | None, engine: str) -> Iterator[Kernel]:
    """Kernels of one product in order: describe (or find the largest elements), split, multiply, reduce, recombine.

    In names, "rows" are those of A, contiguous in memory, and "columns" those of B. "Strassen-Winograd" leaves out an
    eighth of the operations that are counted.
    """
    from ozaki.backends.cupy.steps.words import width

    plan = ozaki.plan(a, b, scheme=scheme, slices=given, engine=engine)
    multiplied = Product(a, b, plan)
    slices, product = plan.slices, f"{scheme} {given}" if given else scheme
    winograd = any(launch.kernel.file == "conversion/split_quadrants.cu" for launch in multiplied.launches)
    for (file, along_k), launches in groupby(multiplied.launches, _kind):
        step = NAMES.get(file, Path(file).stem.replace("_", " "))
        describes = step in ("describe", "tops")
        name = step if describes else f"{step}, {product}"
        if describes or "split" in step:
            name = name.replace(step, f"{step} {'rows' if along_k else 'columns'}")
        if step == "split" and engine == "hopper":
            name += ", in tiles"
        if winograd and file in PRODUCTS:
            name += ", Strassen-Winograd"
        sliced = width(plan.scheme) if isinstance(plan.scheme, Words) else 1  # bytes of a slice's element
        if scheme == "digits" and step == "recombine":
            sliced = 4
        read = a.itemsize
        each = {"describe": read, "tops": read, "reduce": 5 * slices}.get(step, read + sliced * slices)
        moved = None if file in PRODUCTS else each * a.size
        if step.endswith("quadrants"):  # 7/4 of the slices or products
            moved = (4 * read + 7 * slices) * a.size // 4
        count = plan.products if file in PRODUCTS else slices
        yield Kernel(name, 0 if describes else count, moved, multiplied.repeating(list(launches)))


def _kind(launch: Launch) -> tuple[str, bool]:
    """The source file of a kernel, and whether it reads an operand whose rows are contiguous."""
    return launch.kernel.file, bool(launch.kernel.macros.get("ALONG_K", 0))


def whole_products(a: Any, b: Any, scheme: str, given: int | None, engine: str) -> list[Kernel]:
    """The kernels that multiply residues without Strassen-Winograd, so that they do all operations that are counted."""
    if scheme != "residues" or engine != "hopper":
        return []
    from ozaki.backends.cupy.steps.engines import winograd

    with mock.patch.object(winograd, "_FROM", inf):
        return [kernel for kernel in kernels_of(a, b, scheme, given, engine) if kernel.bytes is None]


def _row(device: Device, kernel: Kernel, n: int, dtype: str, min_seconds: float, bandwidth: float | None) -> Row:
    def repeated() -> None:
        for _ in range(REPEATS):
            kernel.launch()

    watched = device.watch()
    seconds = median_seconds(device, [repeated], min_seconds) / REPEATS
    pace = watched()
    return Row(
        task="kernels",
        routine=kernel.name,
        ours=kernel.name != "copy",
        m=n,
        n=n,
        k=n,
        dtype=dtype,
        data="normal",
        seconds=seconds,
        tflops=2e-12 * n**3 * kernel.slices / seconds if kernel.bytes is None else None,
        error=None,
        bound=None,
        products=kernel.slices,
        sm_mhz=pace.sm_mhz,
        power_limited=pace.power_limited,
        bytes=kernel.bytes,
        of_copy=None if bandwidth is None or kernel.bytes is None else kernel.bytes / seconds / bandwidth,
    )
