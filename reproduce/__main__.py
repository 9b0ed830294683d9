"""The command line: `python -m reproduce`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.devices import device_of
from benchmarks.results import git_commit
from reproduce import multiword, recovering, slides, two_stage
from reproduce.figures import FOLDER, Figure, SeedRun, Where

SEEDS = {seed.SEED: seed for seed in (recovering, multiword, two_stage, slides)}


class Scale(StrEnum):
    small = "small"
    cpu = "cpu"
    full = "full"


def main(
    seed: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(SEEDS)}; may be repeated.")] = None,
    scale: Annotated[
        Scale, typer.Option(help="small: seconds; cpu: minutes; full: up to the papers' n and k.")
    ] = Scale.cpu,
    device: Annotated[Where, typer.Option(help="cpu: accuracy, on a model; gpu: what needs one.")] = Where.cpu,
    output: Annotated[Path, typer.Option(help="Folder for the JSON files.")] = FOLDER,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
) -> None:
    """Reproduce the papers' tables and figures, print ours beside the published statements, and write JSON."""
    console = Console()
    unknown = set(seed or ()) - set(SEEDS)
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}; expected one of {', '.join(SEEDS)}", param_hint="--seed")
    try:
        hardware = device_of(device.value)
    except ImportError as error:
        raise typer.BadParameter(f"{error}; install the extra cuda12 or cuda13", param_hint="--device") from None
    for name in seed or SEEDS:
        date, rng = datetime.now(UTC).isoformat(timespec="seconds"), np.random.default_rng(0)
        made = SEEDS[name]
        drawn = (
            made.figures(scale.value, rng) if device is Where.cpu else made.figures_on_gpu(hardware, scale.value, rng)
        )
        figures = []
        for figure in drawn:
            console.print(table(figure))
            figures.append(figure)
        run = SeedRun(
            date, commit or git_commit(), hardware.name, hardware.versions(), name, scale.value, tuple(figures), device
        )  # fmt: skip
        console.print(str(run.write(output)), soft_wrap=True)


def table(figure: Figure) -> Table:
    """The claims of a figure."""
    shown = Table("published", "here", "agrees", title=f"{figure.name}: {figure.title}", title_justify="left")
    for claim in figure.claims:
        shown.add_row(claim.published, claim.ours, "yes" if claim.holds else "[red]no[/red]")
    return shown


if __name__ == "__main__":
    typer.run(main)
