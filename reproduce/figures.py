"""What a script makes of a published table or figure: series of points, and what was published beside them.

A file is {"schema": 1, "date", "commit", "device", "versions": {...}, "seed", "scale", "figures": [...], "where"};
without "where" it is from a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks import row_files
from benchmarks.results import ROOT, SCHEMA

FOLDER = ROOT / "reproduce" / "results"

Series = dict[str, list[tuple[float, float]]]
"""y over x for each name."""


class Where(StrEnum):
    """What ran: NumPy with tensor cores in software, or a GPU with its own."""

    cpu = "cpu"
    gpu = "gpu"


@dataclass(frozen=True)
class Claim:
    """What was published, what came out here, and whether the two agree."""

    published: str
    ours: str
    holds: bool


@dataclass(frozen=True)
class Figure:
    """One reproduced table or figure.

    Attributes
    ----------
    name : as in the paper, "Figure 5"
    title, x, y : of the plot and its axes; no plot without an x
    series : y over x for each name
    claims : published statements, checked against the series
    differs : where and why ours differs from the published figure
    log : axes that are logarithmic, "x", "y" or "xy"
    panels : of a plot of several, each of the series whose names begin with its own and a colon
    """

    name: str
    title: str
    x: str
    y: str
    series: Series
    claims: tuple[Claim, ...]
    differs: str = ""
    log: str = "xy"
    panels: tuple[str, ...] = ()

    def of_panel(self, panel: str) -> Series:
        """The series of a panel, by their own names."""
        before = f"{panel}: "
        return {name.removeprefix(before): y for name, y in self.series.items() if name.startswith(before)}

    def at(self, name: str, x: float) -> float:
        """The y of a series at that x."""
        return dict(self.series[name])[x]

    def last(self, name: str) -> float:
        """The y of a series at its largest x."""
        return max(self.series[name])[1]


@dataclass(frozen=True)
class SeedRun:
    """All figures of one seed, from one run."""

    date: str
    commit: str
    device: str
    versions: dict[str, str]
    seed: str
    scale: str
    figures: tuple[Figure, ...] = field(default=())
    where: Where = Where.cpu

    @property
    def stem(self) -> str:
        """Of the names of its files."""
        return self.seed if self.where is Where.cpu else f"{self.seed}-{self.where}"

    def write(self, folder: Path = FOLDER) -> Path:
        """Write the JSON file, and return its path."""
        path = folder / f"{self.stem}.json"
        row_files.write(path, {"schema": SCHEMA, **asdict(self)})
        return path


def read(path: Path) -> SeedRun:
    """Read a file that `SeedRun.write` wrote.

    Raises
    ------
    ValueError
        Where it follows another schema.
    """
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content.pop("schema") != SCHEMA:
        raise ValueError(f"{path}: schema; expected {SCHEMA}")
    figures = tuple(_figure(figure) for figure in content.pop("figures"))
    where = Where(content.pop("where", Where.cpu))
    return SeedRun(**content, figures=figures, where=where)


def _figure(content: dict[str, Any]) -> Figure:
    series = {name: [(x, y) for x, y in points] for name, points in content.pop("series").items()}
    claims = tuple(Claim(**claim) for claim in content.pop("claims"))
    panels = tuple(content.pop("panels", ()))
    return Figure(**content, series=series, claims=claims, panels=panels)


def times(x: float, y: float) -> str:
    """The ratio of two errors, as "12 times"."""
    return f"{x / y:.2g} times"


def between(ratios: Iterable[float]) -> str:
    """The least and the largest of some ratios, as "0.5 to 12 times"."""
    ordered = sorted(ratios)
    return f"{ordered[0]:.2g} to {ordered[-1]:.2g} times"


def lasting(holds: Mapping[int, bool]) -> int | None:
    """The size from which on something holds; None if it does not at the largest."""
    sizes = sorted(holds)
    return next((n for i, n in enumerate(sizes) if all(holds[other] for other in sizes[i:])), None)


def since(what: str, holds: Mapping[int, bool], size: str = "n") -> str:
    """The same in words: "faster from n = 1024 on"."""
    first = lasting(holds)
    if first is None:
        return f"not {what} at {size} = {max(holds)}"
    return f"{what} from {size} = {first} on" if first > min(holds) else f"{what} at all sizes"


def grows(points: Sequence[tuple[float, float]]) -> float:
    """The exponent p of y ~ x**p between the middle and the end of a series."""
    from math import log

    points = sorted(points)
    (x0, y0), (x1, y1) = points[len(points) // 2], points[-1]
    return log(y1 / y0) / log(x1 / x0)
