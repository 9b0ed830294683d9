"""Make the tables and figures of the README and of docs/measurements.md from the newest result files.

`python -m benchmarks.readme [--check]`
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from benchmarks.labels import label
from benchmarks.plots import plot_time_error
from benchmarks.results import RESULTS, ROOT, Run, error_of, largest, newest, read_all, slug, unit
from benchmarks.routines import TASKS

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"

COMMAND = "python -m benchmarks.readme"

INTRODUCTION = (
    "Square matrices of N(0, 1) elements. Errors are componentwise, the largest over a sample of exactly computed "
    "entries, and the bounds are proven for these operands, both at the largest n. In brackets is what ozaki chose "
    "there by itself, from the data of every call; its other rows name slices or words. Where no accuracy is "
    "named, it proves no more than is proven of the native product, so the bound may be larger than that of as many "
    "slices by count. [cuBLAS](https://docs.nvidia.com/cuda/cublas/) and "
    "[GEMMul8](https://github.com/RIKEN-RCCS/GEMMul8) are peers, libraries of others, timed in the same run."
)


def main(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if a page is stale.")] = False,
    root: Annotated[Path, typer.Option(help="Folder with README.md and docs/measurements.md.")] = ROOT,
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = RESULTS,
) -> None:
    """Put the newest results of each device into the README, in short, and into docs/measurements.md."""
    devices = by_device(read_all(results))
    pages = {root / "README.md": summary(devices), root / "docs" / "measurements.md": section(devices)}
    old = {path: path.read_text(encoding="utf-8") for path in pages}
    new = {path: replaced(old[path], inside) for path, inside in pages.items()}
    pictures = {root / "docs" / "figures" / figure_name(device): runs for device, runs in devices.items()}
    if check:
        stale = [str(path) for path in pages if new[path] != old[path]]
        stale += [str(path) for path in pictures if not path.exists()]
        if stale:
            typer.echo(f"stale: {', '.join(stale)}; run `{COMMAND}`", err=True)
            raise typer.Exit(1)
        return
    for path, text in new.items():
        path.write_text(text, encoding="utf-8")
    for path, runs in pictures.items():
        plot_time_error(runs, path)


def by_device(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The newest run of each task, by device; devices with most tasks come first, and of these the fastest."""
    devices: dict[str, list[Run]] = {}
    for task in TASKS:
        for device, run in newest(runs, task).items():
            devices.setdefault(device, []).append(run)
    return dict(sorted(devices.items(), key=lambda of: (-len(of[1]), -max(row.tflops or 0 for row in of[1][0].rows))))


def replaced(text: str, inside: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """The text with the part between the markers replaced.

    Raises
    ------
    ValueError
        Unless each marker is there once, in order.
    """
    before, begin, rest = text.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not (begin and end) or begin_mark in rest or end_mark in before + after:
        raise ValueError(f"expected {begin_mark} and, after it, {end_mark}, once each")
    return f"{before}{begin_mark}\n\n{inside}\n{end_mark}{after}"


def summary(devices: dict[str, list[Run]]) -> str:
    """A table in Markdown with a line for each task on each device: the native product beside this library's."""
    lines = [
        ["device", "product", "native", "ozaki", "", "error, native", "error, ozaki", "proven"],
        ["---", "---", "---:", "---:", "---:", "---:", "---:", "---:"],
    ]
    for device, runs in devices.items():
        for run in runs:
            of = {row.routine: row for row in largest(run.rows)}
            ours, native = of.get("ozaki default"), next((row for row in of.values() if not row.ours), None)
            if ours is None or native is None or not (ours.tflops and native.tflops):
                continue
            name, scale = unit([native])
            lines.append([
                device,
                f"{run.tasks[0]}, n = {ours.n}",
                f"{_speed(native.tflops, scale)} {name}",
                f"{_speed(ours.tflops, scale)} {name}",
                f"{ours.tflops / native.tflops:.2g} x",
                error_of(native.error),
                error_of(ours.error),
                error_of(ours.bound),
            ])  # fmt: skip
    return _in_markdown(lines) + "\n" if len(lines) > 2 else "No results yet.\n"


def section(devices: dict[str, list[Run]]) -> str:
    """The text of docs/measurements.md: for each device, a table for each task and a figure."""
    if not devices:
        return "No results yet.\n"
    parts = [_wrapped(INTRODUCTION)]
    for device, runs in devices.items():
        for run in runs:
            parts += [f"**{device}**, {run.tasks[0]}, {unit(run.rows)[0]} (2 n³ / time):", table(run)]
        parts.append(f"![{device}: time against error](figures/{figure_name(device)})")
        parts.append(_wrapped(f"{sources(runs)}."))
    return "\n\n".join(parts) + "\n"


def table(run: Run) -> str:
    """A table in Markdown of one task on one device, a line for each routine."""
    sizes = sorted({row.n for row in run.rows})
    _, scale = unit(run.rows)
    headings = ["routine", "slice products", "error", "proven bound", *(f"n = {n}" for n in sizes)]
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1)]
    for last in largest(run.rows):
        speeds = {row.n: row.tflops for row in run.rows if row.routine == last.routine}
        name = label(last, run.versions)
        lines.append([
            f"**{name}**" if last.ours else name,
            str(last.products) if last.ours or last.products > 1 else "",
            error_of(last.error),
            error_of(last.bound),
            *(_speed(speeds.get(n), scale) for n in sizes),
        ])  # fmt: skip
    return _in_markdown(lines)


def _in_markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def sources(runs: Sequence[Run]) -> str:
    """Links to the result files with the versions of software; files of equal versions share one list."""
    links: dict[str, list[str]] = {}
    for run in runs:
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        links.setdefault(versions, []).append(_link(run))
    return "; ".join(f"{', '.join(files)}: {versions}" for versions, files in links.items())


def figure_name(device: str) -> str:
    return f"{slug(device)}.png"


def _wrapped(text: str) -> str:
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _speed(tflops: float | None, scale: float) -> str:
    if tflops is None:
        return ""
    speed = tflops / scale
    return f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"


def _link(run: Run) -> str:
    path = os.path.relpath(RESULTS / run.filename, ROOT / "docs").replace(os.sep, "/")
    return f"[{run.date[:10]}]({path})"


if __name__ == "__main__":
    typer.run(main)
