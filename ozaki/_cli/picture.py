"""Pictures: their files, and the one of the tables of `ozaki demo`."""

from __future__ import annotations

import importlib.util
import io
from math import inf, sqrt
from pathlib import Path
from typing import Any

from ozaki._cli.dgemm import Timed
from ozaki._cli.longley import FULL, Solved
from ozaki._cli.replacing import check_place, written_whole

_SUFFIXES = (".png", ".svg", ".pdf")


def check(path: str) -> None:
    """Raise what `save` would raise about the file; call it before results are computed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError("--plot needs matplotlib: pip install matplotlib")
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"--plot: {path}; expected a name that ends with {', '.join(_SUFFIXES)}")
    check_place(path)


def figure(size: tuple[float, float]) -> Any:
    """An empty figure of that size in inches, which is drawn without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(made)
    return made


def save(drawn: Any, path: str) -> None:
    """Write a figure into a file, in the format that its name ends with.

    Raises
    ------
    OSError
        The message names the file, which is not changed then.
    """
    held = io.BytesIO()
    drawn.savefig(held, dpi=150, format=Path(path).suffix[1:].lower())
    with written_whole(path) as file:
        file.write(held.getbuffer())


def plot(solved: list[Solved], timed: list[Timed], size: int, path: str) -> None:
    """Draw both tables into a file, in the format that its name ends with.

    Raises
    ------
    OSError
        The message names the file, which is not changed then.
    """
    from matplotlib.ticker import NullFormatter

    drawn = figure((11, 4.2))
    left, right = drawn.subplots(1, 2)

    names = [f"{row.method}\n({row.product})" if row.product else row.method for row in solved]
    ours = [row.product not in ("", "float64") for row in solved]
    bars = left.barh(names, [row.digits for row in solved], color=["tab:blue" if x else "tab:gray" for x in ours])
    left.bar_label(bars, fmt="%.1f", padding=3)
    promised = [(row.promised, name) for row, name in zip(solved, names, strict=True) if row.promised is not None]
    left.plot(*zip(*promised, strict=True), "|", color="black", markersize=18, label="promised by the residuals' bound")
    left.legend(loc="lower center", bbox_to_anchor=(0.5, -0.32), fontsize=8, frameon=False)
    left.invert_yaxis()
    left.tick_params(axis="y", labelsize=8)
    left.set(xlim=(0, FULL + 2), xlabel="correct digits", title="Longley regression")

    middle = sqrt(min(row.seconds for row in timed) * max(row.seconds for row in timed))
    for row in timed:
        colour = "tab:gray" if row.name == "native" else "tab:blue"
        right.plot(row.seconds, row.error, "o", color=colour)
        if row.bound < inf:
            right.plot(row.seconds, row.bound, "v", color=colour, markerfacecolor="none")
        side = 1 if row.seconds < middle else -1
        right.annotate(
            f"{row.name}: {row.what}",
            (row.seconds, row.error),
            xytext=(8 * side, 0),
            textcoords="offset points",
            horizontalalignment="left" if side > 0 else "right",
            verticalalignment="center",
            fontsize=8,
        )
    right.plot([], [], "ko", label="largest error")
    right.plot([], [], "kv", markerfacecolor="none", label="proven bound")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, -0.32), fontsize=8, frameon=False, ncols=2)
    right.set(xscale="log", yscale="log", xlabel="seconds", ylabel="componentwise error", title=f"float64, n = {size}")
    right.margins(x=0.2)
    right.xaxis.set_minor_formatter(NullFormatter())
    save(drawn, path)
