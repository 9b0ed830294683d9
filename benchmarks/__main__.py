"""The command line: `python -m benchmarks`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ctypes import CDLL
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.cublas_peer import EmulatedDgemm, load
from benchmarks.devices import Device, device_of
from benchmarks.halves import half_rows
from benchmarks.kernels import SCHEMES, kernel_rows
from benchmarks.kernels import SIZES as KERNEL_SIZES
from benchmarks.labels import label
from benchmarks.measure import WrongAnswerError, rows_of
from benchmarks.peers import MODULI, Peers, load_gemmul8
from benchmarks.results import RESULTS, Row, Run, Shape, error_of, git_commit, size, unit
from benchmarks.routines import SQUARE, TASKS, routines
from benchmarks.shapes import choice_rows, shape_rows, stack_rows
from benchmarks.tensor_cores import tensor_core_rows

GEMMUL8 = "Folder with gemmul8.py, to time it too: its GEMMul8 has matmul(a, b, moduli, out) and version, a text."

CUBLAS = (
    "Folder that a wheel of nvidia-cublas (13.7 or newer) was unpacked in: cuBLAS runs out of it, and its emulated "
    "DGEMM is timed too. How to get it: benchmarks/cublas_peer.py."
)


class Task(StrEnum):
    float64 = "float64"
    float32 = "float32"
    complex128 = "complex128"
    complex64 = "complex64"
    shapes = "shapes"
    choices = "choices"
    stacks = "stacks"
    bf16 = "bf16"
    kernels = "kernels"


class Where(StrEnum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


def main(
    task: Annotated[list[Task] | None, typer.Option(help="May be repeated. Default: both real formats.")] = None,
    device: Annotated[Where, typer.Option(help="auto: the GPU where there is one.")] = Where.auto,
    sizes: Annotated[str, typer.Option(help="Matrix sizes, separated by commas.", show_default="by device")] = "",
    gemmul8: Annotated[Path | None, typer.Option(help=GEMMUL8)] = None,
    cublas: Annotated[Path | None, typer.Option(help=CUBLAS)] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the JSON and PNG files.", show_default="benchmarks/results")
    ] = RESULTS,
    seconds: Annotated[float, typer.Option(min=0, help="Least time to measure each routine for.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Of the random matrices.")] = 0,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
) -> None:
    """Time ours next to the native product and peers, check every answer, and write one JSON and PNG per task."""
    console, progress_console = Console(), Console(stderr=True)
    newer = None if cublas is None else _loaded(cublas)  # before CuPy, which `device_of` imports
    try:
        where = device_of(device.value)
    except ImportError as error:
        raise typer.BadParameter(f"{error}; install the extra cuda12 or cuda13", param_hint="--device") from None
    tasks = [t.value for t in task] if task else list(TASKS)
    if not set(tasks) <= {*SQUARE, "stacks", "bf16"} and where.xp.__name__ != "cupy":
        raise typer.BadParameter("shapes, choices and kernels run on a GPU only", param_hint="--task")
    chosen = sizes_of(sizes)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--output") from None
    peers = _peers(gemmul8, newer, where, progress_console)
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    progress = Progress(*columns, console=progress_console, transient=True)
    for name in tasks:
        ns = chosen or (KERNEL_SIZES if name == "kernels" else where.sizes)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with progress:
                rows = tuple(_rows(name, ns, where, peers, seed, seconds, progress))
        except WrongAnswerError as error:
            progress_console.print(f"[red]wrong answer[/red]: {error}")
            raise typer.Exit(1) from None
        versions = where.versions() | peers.versions(name) | ({"torch": version("torch")} if name == "bf16" else {})
        run = Run(date, commit or git_commit(), where.name, versions, rows)
        console.print(table(run))
        if name in MODULI and peers.gemmul8 is None:
            console.print("GEMMul8: not measured")
        path = run.write(output)
        console.print(str(path), soft_wrap=True)
        draw(path, console)


def draw(path: Path, console: Console) -> None:
    """Draw a result file into its folder; without Matplotlib, say that it is not drawn."""
    try:
        from benchmarks import plots
    except ImportError as error:
        console.print(f"not drawn, {error}: install the extra plot, then python -m benchmarks.plots {path}")
    else:
        console.print(str(plots.plot_file(path)), soft_wrap=True)


def sizes_of(text: str) -> tuple[int, ...]:
    """The sizes of matrices in an option; an error names it."""
    try:
        sizes = tuple(int(size) for size in text.split(",")) if text else ()
    except ValueError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise typer.BadParameter(f"{text!r}; expected positive numbers, as 1024,2048", param_hint="--sizes")
    return sizes


def _loaded(folder: Path) -> CDLL:
    """Load cuBLAS from a folder; an error names the option."""
    try:
        return load(folder)
    except OSError as error:
        raise typer.BadParameter(f"{folder}: {error}", param_hint="--cublas") from None


def _peers(gemmul8: Path | None, cublas: CDLL | None, device: Device, console: Console) -> Peers:
    """The peers that the device can run: GEMMul8 from a folder, and the emulated DGEMM of a newer cuBLAS."""
    if device.xp.__name__ != "cupy":
        if gemmul8 is not None or cublas is not None:
            console.print("GEMMul8 and cuBLAS need a GPU")
        return Peers()
    try:
        emulated = None if cublas is None else EmulatedDgemm.on_device(cublas)
    except RuntimeError as error:
        raise typer.BadParameter(str(error), param_hint="--cublas") from None
    if emulated is not None and emulated.version != (own := device.versions()["cublas"]):
        raise typer.BadParameter(f"loaded cuBLAS {emulated.version}, but CuPy runs {own}", param_hint="--cublas")
    try:
        return Peers(None if gemmul8 is None else load_gemmul8(gemmul8), emulated)
    except (ImportError, OSError, ValueError) as error:
        raise typer.BadParameter(f"{gemmul8}: {error}", param_hint="--gemmul8") from None


def _rows(
    task: str, sizes: tuple[int, ...], device: Device, peers: Peers, seed: int, seconds: float, progress: Progress
) -> Iterator[Row]:
    compared = routines(task, device.xp, device.blas, peers.routines(task)) if task in SQUARE else []
    bar = progress.add_task(task, total=len(sizes) * len(compared) or None)
    rows: Iterable[Row]
    if task == "shapes":
        rows = shape_rows(device, peers, seed, seconds)
    elif task == "choices":
        rows = choice_rows(device, seed, seconds)
    elif task == "stacks":
        rows = stack_rows(device, seed, seconds)
    elif task == "bf16":
        rows = half_rows(device, sizes, seed, seconds)
    elif task == "kernels":
        of_kernels = (kernel_rows(device, n, dtype, seed, seconds) for n in sizes for dtype in SCHEMES)
        rows = chain(tensor_core_rows(device, seed, seconds), chain.from_iterable(of_kernels))
    else:
        squares = map(Shape.square, sizes)
        rows = chain.from_iterable(rows_of(task, task, device, x, compared, seed, seconds) for x in squares)
    for row in rows:
        progress.update(bar, advance=1, description=f"{task}, n = {size(row)}, {row.routine}")
        yield row
    progress.remove_task(bar)


def table(run: Run) -> Table:
    """A run as a table for the terminal."""
    shown = Table(title=f"{', '.join(run.tasks)} on {run.device}")
    kernels = run.tasks == ("kernels",)
    speed, scale = unit(run.rows)
    headings = ("dtype", "TB/s", "of copy") if kernels else (speed, "error", "rms", "proven bound")
    for heading in ("n", "routine", "seconds", *headings):
        shown.add_column(heading, justify="left" if heading == "routine" else "right")
    previous = run.rows[0]
    for row in run.rows:
        if size(row) != size(previous):
            shown.add_section()
        if kernels:
            rate = f"{row.bytes / row.seconds * 1e-12:.2f}" if row.bytes else f"{row.tflops:.0f} TOPS"
            cells = [row.dtype, rate, f"{row.of_copy:.0%}" if row.of_copy else ""]
        else:
            cells = [f"{(row.tflops or 0) / scale:.1f}", *map(error_of, (row.error, row.rms, row.bound))]
        name, style = label(row, run.versions), "bold" if row.ours else ""
        shown.add_row(size(row), name, f"{row.seconds:.3g}", *cells, style=style)
        previous = row
    return shown


if __name__ == "__main__":
    typer.run(main)
