"""The library's table of tiles out of the results of benchmarks.tuning: `python -m benchmarks.tiles [--check]`.

All results of the folder count, newer ones over older ones. Where nothing was faster than the library's own choice by
more than 2 per cent, the table has no entry: one counts for all sizes near its own, whose best choice may be another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.candidates import numbers
from benchmarks.results import RESULTS, ROOT, Run, read_all

TABLE = ROOT / "ozaki" / "data" / "tiles.json"

COMMAND = "python -m benchmarks.tiles"

LEAST = 1.02
"""Times as fast as the library's own choice; what is below may be noise."""

Table = dict[str, dict[str, dict[tuple[int, int, int], tuple[int, ...]]]]


def kept(runs: Iterable[Run]) -> Table:
    """For each architecture, method and shape what is better than the library's own choice; oldest runs first."""
    found: Table = {}
    for run in runs:
        rows = {(row.routine, (row.m, row.k, row.n)): row for row in run.rows}
        for (routine, shape), fastest in rows.items():
            method, kind = routine.split(", ")
            if kind != "fastest":
                continue
            of_method = found.setdefault(run.versions["architecture"], {}).setdefault(method, {})
            of_method.pop(shape, None)
            if fastest.seconds * LEAST < rows[f"{method}, own choice", shape].seconds:
                of_method[shape] = numbers(str(fastest.ran))
    tables = {name: {method: shapes for method, shapes in of.items() if shapes} for name, of in found.items()}
    return {name: methods for name, methods in tables.items() if methods}


def written(table: Table) -> str:
    """As the library reads it (ozaki/backends/cupy/engines/_tuned.py), one line for each product."""
    return _within("{}", 0, (_of_architecture(*each) for each in sorted(table.items()))) + "\n"


def _of_architecture(name: str, methods: dict[str, dict[tuple[int, int, int], tuple[int, ...]]]) -> str:
    return f'"{name}": ' + _within("{}", 1, (_of_method(*each) for each in sorted(methods.items())))


def _of_method(name: str, shapes: dict[tuple[int, int, int], tuple[int, ...]]) -> str:
    products = (json.dumps([*shape, *choice]) for shape, choice in sorted(shapes.items()))
    return f'"{name}": ' + _within("[]", 2, products)


def _within(brackets: str, depth: int, lines: Iterable[str]) -> str:
    margin = "\n" + " " * depth
    inside = ",".join(f"{margin} {line}" for line in lines)
    return f"{brackets[0]}{inside}{margin if inside else ''}{brackets[1]}"


def main(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if the table is stale.")] = False,
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = RESULTS,
    output: Annotated[Path, typer.Option(help="File to write.")] = TABLE,
) -> None:
    """Write the table."""
    text = written(kept(run for run in read_all(results) if "tuning" in run.tasks))
    if not check:
        output.write_text(text, encoding="utf-8")
    elif not output.exists() or output.read_text(encoding="utf-8") != text:
        typer.echo(f"stale: {output}; run `{COMMAND}`", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
