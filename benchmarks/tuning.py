"""The choices of the word kernels that no method fixes, timed: `python -m benchmarks.tuning`.

As in Ootomo and Yokota, section 3.5.1: rules filter all combinations before they run, and then their answers do. Timed
is the product of operands that are words already: once in short for all that is left, side by side for the fastest, and
once more for the fastest of these and the library's own choice. The file holds these two for each method and shape, and
what other blocks of k cost and err; `python -m benchmarks.tiles` puts what is worth it into the library's table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import ozaki
from benchmarks.__main__ import draw, table
from benchmarks.candidates import SPACE, Candidate, distinct, fits, kernel_of
from benchmarks.devices import Device, device_of, medians_side_by_side
from benchmarks.measure import Sample, drawn
from benchmarks.results import RESULTS, Row, Run, Shape, git_commit
from benchmarks.routines import planned
from ozaki.backends import backend_of
from ozaki.schemes import PRESETS, Words

SCHEMES = ("halfhalf", "tf32tf32", "two-stage", "single-fp16", "triple-bf16", "fabsum-v1", "fabsum-v2", "markidis")

BLOCKS = (16, 32, 64, 128, 256, 512)
"""Inner indices after which the leading product is promoted."""

SHAPES = (
    *map(Shape.square, (1024, 2048, 4096, 8192, 16384)),
    Shape(16384, 1024, 16384),
    Shape(2048, 16384, 2048),
    Shape(1024, 4096, 16384),
    Shape(16384, 4096, 1024),
)

BURST = 1e-3
"""Seconds of products between two events, so that the host is ahead of the device."""

FINALISTS = 6
"""Candidates of a product that are timed again."""

FINAL = 3
"""Times as long as these, the fastest of them and the library's own choice."""


@dataclass(frozen=True)
class Problem:
    """One product.

    Attributes
    ----------
    words : Words
    shape : Shape
    a, b : operands on the device
    c : their product, by the library's own choice
    own : that choice
    """

    words: Words
    shape: Shape
    a: Any
    b: Any
    c: Any
    own: Candidate

    @classmethod
    def of(cls, device: Device, words: Words, shape: Shape, kernel: type[Candidate]) -> Problem:
        a, b = drawn(device, shape, "float32", 0)
        return cls(words, shape, a, b, ozaki.matmul(a, b, scheme=words), kernel.of(words, shape))


def preset(device: Device, scheme: str) -> Words:
    """The words of that name on the device's tensor cores."""
    core = backend_of(("a", device.xp.empty(0))).core()
    if core is None:
        raise typer.BadParameter(f"the tensor cores of this {device.name} are unknown to ozaki.Words")
    return replace(PRESETS[scheme], core=core)


def multiplied(device: Device, candidate: Candidate, problem: Problem, slices: dict[Any, Any], out: Any) -> Call | None:
    """Multiply by a candidate into out, so often that it takes a burst; None for other bits.

    `slices` are those made before, by the engines that they fit.
    """
    from ozaki.backends.cupy._tops import tops
    from ozaki.backends.cupy.engines._word_split import split

    engine, words = candidate.engine(), problem.words
    if engine not in slices:
        sides = {"left": problem.a[None], "right": problem.b.T[None]}
        slices[engine] = [split(tops(x), words, engine.layout(words, side, *x.shape)) for side, x in sides.items()]
    out.fill(device.xp.nan)
    multiply = partial(engine.multiply, words, *slices[engine], out[None])
    multiply()
    if not bool((out == problem.c).all()):
        return None
    return Call(multiply, ceil(BURST / device.elapsed(multiply)))


@dataclass(frozen=True)
class Call:
    """A product, so many times."""

    multiply: Callable[[], None]
    repeats: int

    def __call__(self) -> None:
        for _ in range(self.repeats):
            self.multiply()


Times = dict[Candidate, float]


def tuned(device: Device, scheme: str, shapes: Sequence[Shape], least: float, console: Console) -> Iterator[Row]:
    """Time all candidates for one method; for each shape the fastest and the library's own."""
    words = preset(device, scheme)
    kernel = kernel_of(words)
    fitting = [candidate for candidate in SPACE[kernel] if fits(candidate, words, shared_memory(device))]
    console.print(f"{scheme}: {len(fitting)} of {len(SPACE[kernel])} combinations fit")
    for shape in shapes:
        problem = Problem.of(device, words, shape, kernel)
        calls = calls_of(device, problem, {c for c in fitting if distinct(c, shape)} | {problem.own}, console)
        once = {candidate: device.elapsed(call) / call.repeats for candidate, call in calls.items()}
        several = side_by_side(device, calls, {problem.own, *nsmallest(FINALISTS, once, key=once.__getitem__)}, least)
        # What came first of many owes it to chance, too: the two times of the file are of their own.
        two = side_by_side(device, calls, {problem.own, min(several, key=several.__getitem__)}, FINAL * least)
        console.print(f"{shape.m} x {shape.k} x {shape.n}: {min(two, key=two.__getitem__)}")
        yield from rows_of_times(device, scheme, problem, two)
        del calls
        device.release()


def calls_of(
    device: Device, problem: Problem, candidates: Iterable[Candidate], console: Console
) -> dict[Candidate, Call]:
    """A burst of each candidate, but for those with other bits."""
    calls: dict[Candidate, Call] = {}
    slices: dict[Any, Any] = {}
    out = device.xp.empty_like(problem.c)
    for candidate in sorted(candidates, key=str):
        if (call := multiplied(device, candidate, problem, slices, out)) is not None:
            calls[candidate] = call
        else:
            console.print(f"[red]other bits[/red]: {problem.words.name}, {problem.shape}, {candidate}")
    return calls


def side_by_side(
    device: Device, calls: Mapping[Candidate, Call], candidates: Iterable[Candidate], least: float
) -> Times:
    """Time candidates in turn: one after the other, the first would find the device cool."""
    order = sorted(candidates, key=str)
    medians = medians_side_by_side(device, [[calls[c]] for c in order], least)
    return {c: seconds / calls[c].repeats for c, (seconds, _) in zip(order, medians, strict=True)}


def architecture_of(device: Device) -> str:
    """As the library's table has it."""
    from ozaki.backends.cupy.launching._jit import architecture

    return architecture(device.xp.cuda.runtime.getDevice())


def shared_memory(device: Device) -> int:
    """Bytes that a block can have."""
    return int(device.xp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def rows_of_times(device: Device, scheme: str, problem: Problem, times: Times) -> Iterator[Row]:
    """The fastest candidate, and the library's own choice."""
    fastest = min(times, key=times.__getitem__)
    named = {f"{scheme}, fastest": fastest, f"{scheme}, own choice": problem.own}
    yield from rows_of(device, problem, {name: (candidate, times[candidate]) for name, candidate in named.items()})


def rows_of_blocks(device: Device, scheme: str, shape: Shape, least: float, console: Console) -> Iterator[Row]:
    """What other blocks of k would cost, and err: it is the block that makes a method what it is, not its tiles."""
    preferred = preset(device, scheme)
    if preferred.block is None:
        return
    for block in BLOCKS:
        words = replace(preferred, block=block)
        problem = Problem.of(device, words, shape, kernel_of(words))
        calls = calls_of(device, problem, [problem.own], console)
        times = side_by_side(device, calls, calls, least)
        yield from rows_of(device, problem, {f"{scheme}, block {block}": (problem.own, times[problem.own])})
        device.release()


def rows_of(device: Device, problem: Problem, timed: dict[str, tuple[Candidate, float]]) -> Iterator[Row]:
    """Candidates for one product, by the routine's name; their bits are the same, and so are their errors."""
    a, b, shape = problem.a, problem.b, problem.shape
    sample = Sample.of(a, b, device.xp, 0)
    ((error, rms),) = sample.errors(sample.entries(problem.c))
    account = planned(a, b, {"scheme": problem.words})
    for routine, (candidate, seconds) in timed.items():
        yield Row(
            task="tuning",
            routine=routine,
            ours=True,
            m=shape.m,
            n=shape.n,
            k=shape.k,
            dtype="float32",
            data="normal",
            seconds=seconds,
            tflops=2e-12 * shape.m * shape.k * shape.n / seconds,
            error=error,
            bound=account.bound,
            products=account.products,
            rms=rms,
            ran=str(candidate),
        )


def main(
    scheme: Annotated[list[str] | None, typer.Option(help=f"May be repeated. Default: {', '.join(SCHEMES)}.")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Of square products; may be repeated.")] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the JSON and PNG files.", show_default="benchmarks/results")
    ] = RESULTS,
    seconds: Annotated[float, typer.Option(help="Least time to measure each candidate for.")] = 0.1,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
) -> None:
    """Time the candidates on this GPU, and write which was fastest."""
    console = Console()
    for name in scheme or ():
        if name not in PRESETS:
            raise typer.BadParameter(f"{name!r}; expected one of {', '.join(PRESETS)}", param_hint="--scheme")
    try:
        device = device_of("gpu")
    except ImportError as error:
        raise typer.BadParameter(f"{error}; install the extra cuda12 or cuda13") from None
    shapes = [Shape.square(n) for n in size] if size else SHAPES
    date = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [row for name in scheme or SCHEMES for row in tuned(device, name, shapes, seconds, console)]
    largest = max((shape for shape in shapes if shape.k <= 4096), key=lambda shape: shape.k, default=None)
    for name in scheme or SCHEMES:
        rows += [] if largest is None else rows_of_blocks(device, name, largest, seconds, console)
    versions = device.versions() | {"architecture": architecture_of(device)}
    run = Run(date, commit or git_commit(), device.name, versions, tuple(rows))
    console.print(table(run))
    path = run.write(output)
    console.print(str(path), soft_wrap=True)
    draw(path, console)


if __name__ == "__main__":
    typer.run(main)
