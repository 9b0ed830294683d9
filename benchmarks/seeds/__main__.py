"""The command line: `python -m benchmarks.seeds`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.devices import Cpu
from benchmarks.results import git_commit
from benchmarks.seeds import multiword, recovering, slides, two_stage
from benchmarks.seeds.figures import FOLDER, Figure, SeedRun

SEEDS = {seed.SEED: seed for seed in (recovering, multiword, two_stage, slides)}


class Scale(StrEnum):
    small = "small"
    cpu = "cpu"
    full = "full"


def main(
    seed: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(SEEDS)}; may be repeated.")] = None,
    scale: Annotated[Scale, typer.Option(help="small: seconds; cpu: minutes; full: the papers' sizes.")] = Scale.cpu,
    output: Annotated[Path, typer.Option(help="Folder for the JSON files.")] = FOLDER,
) -> None:
    """Reproduce the papers' tables and figures, print ours beside the published statements, and write JSON."""
    console = Console()
    for name in seed or SEEDS:
        if name not in SEEDS:
            raise typer.BadParameter(f"{name!r}; expected one of {', '.join(SEEDS)}", param_hint="--seed")
        device, date = Cpu(), datetime.now(UTC).isoformat(timespec="seconds")
        figures = []
        for figure in SEEDS[name].figures(scale.value, np.random.default_rng(0)):
            console.print(table(figure))
            figures.append(figure)
        run = SeedRun(date, git_commit(), device.name, device.versions(), name, scale.value, tuple(figures))
        console.print(str(run.write(output)), soft_wrap=True)


def table(figure: Figure) -> Table:
    """The claims of a figure."""
    shown = Table("published", "here", "agrees", title=f"{figure.name}: {figure.title}", title_justify="left")
    for claim in figure.claims:
        shown.add_row(claim.published, claim.ours, "yes" if claim.holds else "[red]no[/red]")
    return shown


if __name__ == "__main__":
    typer.run(main)
