"""Pictures of reproduced figures."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure as Canvas

from benchmarks.plots import MARKERS, save
from benchmarks.seeds.figures import Figure


def plot(figure: Figure, path: Path) -> None:
    """Draw a figure's series into a PNG file."""
    canvas = Canvas(figsize=(6.2, 4.2), layout="constrained")
    axes = canvas.subplots()
    for i, (name, points) in enumerate(figure.series.items()):
        style = "--" if "theory" in name else "-"
        xs, ys = zip(*sorted(points), strict=True)
        axes.plot(xs, ys, MARKERS[i % len(MARKERS)] + style, label=name, markersize=3, linewidth=1)
    axes.set(xlabel=figure.x, ylabel=figure.y)
    if "x" in figure.log:
        axes.set_xscale("log")
    if "y" in figure.log:
        axes.set_yscale("log")
    axes.set_title(f"{figure.name}: {figure.title}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6)
    save(canvas, path)
