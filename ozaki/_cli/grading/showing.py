"""Printing grades, and what was measured, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Column, Table

from ozaki._cli.grading.grading import Grade
from ozaki._cli.grading.measuring import Measured
from ozaki._cli.printing import out


def show(found: Sequence[Measured], grades: Sequence[Grade]) -> None:
    """Print a table of all tests, with the number of slices, the error and the time of each way, and the grades."""
    names = [grade.way for grade in grades]
    slices = {name: " or ".join(dict.fromkeys(_kind(one) for one in found if one.way == name)) for name in names}
    table = Table(
        *(Column(name, no_wrap=True) for name in ("test", "n")), title="Errors in units of 2^-52 abs(A) abs(B)"
    )
    for name in names:
        for heading in (f"{name}: {slices[name]}", "error", "ms") if slices[name] else (f"{name}: error", "ms"):
            table.add_column(heading)
    for test, n in dict.fromkeys((one.test, one.n) for one in found):
        cells = [test, str(n)]
        for one in (one for one in found if (one.test, one.n) == (test, n)):
            count = [str(one.slices)] if slices[one.way] else []
            cells += [*count, _error(one), _number(1000 * one.seconds)]
        table.add_row(*cells)
    out.print(table)
    summary = Table("", "grade", "errors grow as", "against float64", "not told from", "failed", title="Grades")
    for grade in grades:
        slopes = _power(grade.slope), _power(grade.slope_against_float64)
        summary.add_row(grade.way, grade.grade, *slopes, grade.algorithm, str(len(grade.failed)))
    out.print(summary)


def _kind(one: Measured) -> str:
    """The name of the slices that ran, as "residues"; "" if there are none."""
    return one.ran.split(" ", 1)[1] if one.slices else ""


def _error(one: Measured) -> str:
    return _number(one.error) + ("" if one.passes else " FAILED")


def _number(x: float) -> str:
    return f"{x:.0f}" if 100 <= x < 1e5 else f"{x:.2g}"


def _power(slope: float | None) -> str:
    return "" if slope is None else f"n^{slope:.2f}"
