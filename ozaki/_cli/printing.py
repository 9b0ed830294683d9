"""Printing tables and JSON, and showing progress on the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import ozaki
from ozaki._cli.dgemm import Timed
from ozaki._cli.files import Matrix
from ozaki._cli.longley import Solved
from ozaki.records.report import rounded_up

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


def print_longley(solved: list[Solved]) -> None:
    table = Table(
        "method", "residuals", "digits", "promised", title="Longley regression: correct digits of the worst coefficient"
    )
    for row in solved:
        promised = "" if row.promised is None else f"{row.promised:.1f}"
        table.add_row(row.method, row.product, f"{row.digits:.1f}", promised)
    out.print(table)
    out.print(
        "Digits are counted against the exact solution, which rounds to NIST's certified values. Promised: what the\n"
        "error bound of the residuals allows at worst.\n",
        soft_wrap=True,
    )


def error_of(x: float, exponent: int = 0) -> str:
    """Return a measured error x 2**exponent as text, rounded up; "inf" for an infinite one, as of a wrong Inf."""
    return "inf" if x == math.inf else rounded_up(x, exponent)


def format_of(x: Matrix) -> str:
    """Return the name of an array's format, as "float64", "mp212" or "complex mp212"."""
    if not isinstance(x, ozaki.MPArray):
        return str(x.dtype)
    return f"complex mp{x.bits}" if x.is_complex else f"mp{x.bits}"


def print_dgemm(timed: list[Timed], size: int, device: str) -> None:
    table = Table(
        "accuracy",
        "ran",
        "error",
        "proven",
        "rms error",
        "ms",
        title=f"float64, {size} x {size}, on the {device.upper()}",
    )
    for row in timed:
        errors = error_of(row.error), rounded_up(row.bound), error_of(row.rms)
        table.add_row(row.name, row.what, *errors, f"{1000 * row.seconds:.1f}")
    out.print(table)
    out.print("Componentwise errors against exact entries, 16 rows by 200 columns. The report of fp64:\n")
    (report,) = (row.report for row in timed if row.name == "fp64")
    out.print(report, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), allow_nan=False))


def plain(value: Any) -> Any:
    """Return the value with None in place of Inf and NaN, which JSON lacks."""
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Steps:
    """The steps of a command, shown by a progress bar, or by nothing without one; call it to complete a step.

    Parameters
    ----------
    bar, count : the bar, and how many steps there are; None for no bar
    """

    def __init__(self, bar: Progress | None, count: int) -> None:
        self._bar = bar
        if bar is not None:
            self._task = bar.add_task("", total=count)
            self._product: TaskID | None = None

    def __call__(self, text: str) -> None:
        """Complete a step; `text` says what comes next."""
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=text)
            if self._product is not None:
                self._bar.remove_task(self._product)
                self._product = None

    def of_product(self, done: int, total: int, unit: str) -> None:
        """Show how far a product is, as `ozaki.matmul` tells its `progress`."""
        if self._bar is not None:
            if self._product is None:
                self._product = self._bar.add_task("", total=total)
            self._bar.update(self._product, completed=done, total=total, description=f"{unit} of the product")


_DELAY = 1.0
"""Seconds after which a progress bar appears: what is done sooner needs none."""


@contextmanager
def progress(silent: bool, steps: int) -> Iterator[Steps]:
    """Show a progress bar after a second, if standard error is a terminal; yields the steps that it shows."""
    if silent or not err.is_terminal:
        yield Steps(None, steps)
        return
    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    bar = Progress(*columns, console=err, transient=True)
    appears = Timer(_DELAY, bar.start)
    appears.daemon = True
    appears.start()
    try:
        yield Steps(bar, steps)
    finally:
        appears.cancel()
        appears.join()  # else the bar could appear after it was stopped
        bar.stop()
