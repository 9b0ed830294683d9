"""Pictures of reproduced figures."""

from __future__ import annotations

from math import ceil
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullLocator

from benchmarks.plots import MARKERS, save
from reproduce.figures import Figure, Series

MOST_TICKS = 7
"""Of the points themselves, that have room below a panel."""


def plot(figure: Figure, path: Path) -> None:
    """Draw a figure's series into a PNG file."""
    if not figure.panels:
        canvas = Canvas(figsize=(6.2, 4.2), layout="constrained")
        axes = canvas.subplots()
        draw(figure, figure.series, axes)
        axes.set_title(f"{figure.name}: {figure.title}", fontsize=10)
        axes.legend(fontsize=6)
    else:
        rows, columns = ceil(len(figure.panels) / 3), min(len(figure.panels), 3)
        if len(figure.panels) == 4:
            rows = columns = 2
        canvas = Canvas(figsize=(3.1 * columns, 2.6 * rows + 0.6), layout="constrained")
        grid = canvas.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
        for panel, axes in zip(figure.panels, grid, strict=True):
            own = figure.of_panel(panel)
            draw(figure, own, axes)
            axes.set_title(panel, fontsize=8)
            sizes = sorted({x for points in own.values() for x, _ in points})
            if len(sizes) <= MOST_TICKS:
                axes.set_xticks(sizes, [f"{x:g}" for x in sizes])
                axes.xaxis.set_minor_locator(NullLocator())
            axes.tick_params(which="both", labelsize=7)
            axes.label_outer()
        canvas.suptitle(f"{figure.name}: {figure.title}", fontsize=10)
        canvas.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=6)
    save(canvas, path)


def draw(figure: Figure, series: Series, axes: Axes) -> None:
    for i, (name, points) in enumerate(series.items()):
        style = "--" if "theory" in name else "-"
        xs, ys = zip(*sorted(points), strict=True)
        axes.plot(xs, ys, MARKERS[i % len(MARKERS)] + style, label=name, markersize=3, linewidth=1)
    axes.set(xlabel=figure.x, ylabel=figure.y)
    if "x" in figure.log:
        axes.set_xscale("log")
    if "y" in figure.log:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
