"""Pictures of result rows; `python -m benchmarks.plots FILE.json ...` draws result files into their folders."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator
from PIL import Image

from benchmarks.cublas_peer import ROUTINE
from benchmarks.labels import label
from benchmarks.results import Row, Run, largest, read, size, unit
from ozaki.records.formats import is_complex

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

OURS, PEER, NATIVE = "tab:blue", "tab:orange", "tab:gray"
MARKERS = "osD^vP"
DPI = 130


def plot_file(path: Path) -> Path:
    """Draw a result file into a PNG of its folder."""
    picture = path.with_suffix(".png")
    plot_run(read(path), picture)
    return picture


def plot_run(run: Run, path: Path) -> None:
    """Draw a run into a file: plots of error over time and speed over n, or bars where products are not square."""
    if run.tasks in (("kernels",), ("shapes",), ("choices",), ("stacks",), ("bf16",)):
        figure = Figure(figsize=(8, 0.5 + 0.3 * len(run.rows)), layout="constrained")
        draw = draw_kernels if run.tasks == ("kernels",) else draw_shapes
        draw(figure.subplots(), run)
    else:
        figure = Figure(figsize=(10.5, 5.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_time_error(left, run)
        draw_speed(right, run)
    figure.suptitle(f"{run.device}, {', '.join(run.tasks)}")
    save(figure, path)


def plot_time_error(runs: Sequence[Run], path: Path) -> None:
    """Draw error over time into a file, with one panel for each run; all runs are of one device."""
    figure = Figure(figsize=(5.25 * len(runs), 5.2), layout="constrained")
    for axes, run in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
        draw_time_error(axes, run)
    figure.suptitle(runs[0].device)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = BytesIO()
    figure.savefig(picture, dpi=DPI)
    Image.open(picture).convert("RGB").quantize(64).save(path, optimize=True)  # a quarter of the size


def colour(row: Row) -> str:
    if row.ours:
        return OURS
    return PEER if row.routine.startswith("GEMMul8") or row.routine == ROUTINE else NATIVE


def markers(rows: Iterable[Row]) -> dict[str, str]:
    """A marker for each routine."""
    names = dict.fromkeys(row.routine for row in rows)
    return {name: MARKERS[i % len(MARKERS)] for i, name in enumerate(names)}


def draw_time_error(axes: Axes, run: Run) -> None:
    """Draw the largest error of each routine over its time at the largest n, with the proven bound above it."""
    rows = largest(run.rows)
    shapes = markers(rows)
    for row in rows:
        if row.error is None:
            continue
        time = 1e3 * row.seconds
        name = label(row, run.versions)
        axes.plot(time, row.error, shapes[row.routine], color=colour(row), label=name, linestyle="none")
        if row.bound is not None:
            axes.plot([time] * 2, [row.error, row.bound], ":", color=colour(row), linewidth=1)
            axes.plot(time, row.bound, "_", color=colour(row), markersize=12)
    axes.set(xscale="log", yscale="log", xlabel="milliseconds", ylabel="componentwise error")
    plain_numbers(axes.xaxis)
    axes.margins(x=0.15, y=0.1)
    axes.set_title(f"{rows[0].dtype}, n = {rows[0].n}", fontsize=10)
    axes.grid(alpha=0.3)
    bars = Line2D([], [], color="black", marker="_", markersize=12, linestyle=":", linewidth=1, label="proven bound")
    legend_below(axes, [*axes.get_legend_handles_labels()[0], bars])


def draw_speed(axes: Axes, run: Run) -> None:
    """Draw the speed of each routine over n."""
    sizes = sorted({row.n for row in run.rows})
    name_of_unit, scale = unit(run.rows)
    for routine, shape in markers(run.rows).items():
        own = [row for row in run.rows if row.routine == routine]
        speeds = [(row.tflops or 0) / scale for row in own]
        name = label(replace(own[0], ran=None), run.versions)  # without `ran`, which may change with n
        axes.plot([row.n for row in own], speeds, f"{shape}-", color=colour(own[0]), label=name)
    operations = "8 n³" if is_complex(run.rows[0].dtype) else "2 n³"
    axes.set(xscale="log", yscale="log", xlabel="n", ylabel=f"{name_of_unit} ({operations} / time)")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    plain_numbers(axes.yaxis)
    axes.grid(alpha=0.3)
    legend_below(axes, axes.get_legend_handles_labels()[0])


def legend_below(axes: Axes, handles: Sequence[Artist]) -> None:
    """Draw the legend below the axes, where it covers nothing that is drawn."""
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=7)


def plain_numbers(axis: Axis) -> None:
    """Put the ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_locator(NullLocator())


def draw_kernels(axes: Axes, run: Run) -> None:
    """Draw the terabytes per second of each kernel that is bound by memory."""
    rows = [row for row in run.rows if row.bytes]
    names = [f"{row.routine}, {row.dtype}, n = {row.n}" for row in rows]
    speeds = [(row.bytes or 0) / row.seconds * 1e-12 for row in rows]
    bars = axes.barh(names, speeds, color=[colour(row) for row in rows])
    shares = ["" if row.of_copy is None else f"{row.of_copy:.0%} of copy" for row in rows]
    axes.bar_label(bars, labels=shares, padding=2)
    axes.invert_yaxis()
    axes.set(xlabel="TB/s", xlim=(0, 1.25 * max(speeds, default=1.0)))


def draw_shapes(axes: Axes, run: Run) -> None:
    """Draw the speed of each routine for each shape."""
    rows = run.rows
    several = len({row.dtype for row in rows}) > 1
    names = [f"{size(row)}, {f'{row.dtype}, ' if several else ''}{label(row, run.versions)}" for row in rows]
    bars = axes.barh(names, [row.tflops or 0 for row in rows], color=[colour(row) for row in rows])
    axes.bar_label(bars, fmt="%.3g", padding=2)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(xlabel="TFLOP/s")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(plot_file(Path(name)))
