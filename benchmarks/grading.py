"""Grades of products by the tests of `ozaki grade`: `python -m benchmarks.grading`.

ozaki's products, the native ones of the machine and, on a GPU, those of other libraries multiply the data of each test,
real and complex. What was measured goes to benchmarks/results/grading/, and the newest of each device into
docs/how_to/grade_a_product.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import row_files
from benchmarks.__main__ import CUBLAS, GEMMUL8, Where, sizes_of
from benchmarks.cublas_peer import EmulatedDgemm, load
from benchmarks.devices import device_of
from benchmarks.peers import load_gemmul8
from benchmarks.readme import replaced
from benchmarks.results import RESULTS, ROOT, git_commit, newest_of_devices, slug
from ozaki._cli.grading.grading import Grade, grades
from ozaki._cli.grading.inputs import inputs
from ozaki._cli.grading.measuring import measured
from ozaki._cli.grading.ways import Way, other, ours, ways
from ozaki._cli.printing import plain

BEGIN, END = "<!-- grading:begin -->", "<!-- grading:end -->"

FOLDER = RESULTS / "grading"
DOCUMENT = ROOT / "docs" / "how_to" / "grade_a_product.md"

SIZES = {"cpu": (16, 32, 64, 128, 256, 512), "gpu": (16, 32, 64, 128, 256, 512, 1024)}
"""Sizes by device; on a GPU those that `test_blas3` and `grade_blas3` take where none are named."""

KINDS = {"float64": False, "complex128": True}
"""Whether elements are complex, by the name of their format."""

MODULI = 14
"""Moduli of GEMMul8, and residues of the way of ours that names a number: what both take for ordinary float64 data."""

Result = dict[str, Any]


def main(
    device: Annotated[Where, typer.Option(help="auto: the GPU where there is one.")] = Where.auto,
    sizes: Annotated[
        str, typer.Option(help="Rows of the matrices, separated by commas.", show_default="by device")
    ] = "",
    seed: Annotated[int, typer.Option(help="Of the random elements.")] = 0,
    gemmul8: Annotated[Path | None, typer.Option(help=GEMMUL8)] = None,
    cublas: Annotated[Path | None, typer.Option(help=CUBLAS)] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the JSON file.", show_default="benchmarks/results/grading")
    ] = FOLDER,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
    tables: Annotated[bool, typer.Option("--tables", help="Measure nothing: only write the tables.")] = False,
) -> None:
    """Grade, write what was measured, and put the tables of the newest results into the document."""
    if not tables:
        library = None if cublas is None else load(cublas)  # before CuPy is imported
        where = device_of(device.value)
        place = "cpu" if where.xp.__name__ == "numpy" else "gpu"
        others = peers(gemmul8, library)
        now = datetime.now(UTC)
        graded, rows = [], []
        for kind, is_complex in KINDS.items():
            compared = [*compared_on(place), *([] if is_complex else others)]
            found = []
            for n in sizes_of(sizes) or SIZES[place]:
                found += [one for given in inputs(n, seed, is_complex) for one in measured(given, compared)]
                print(f"{kind}, n = {n}", flush=True)
            graded += [grade_row(kind, grade) for grade in grades(found)]
            rows += [{"kind": kind, **plain(asdict(one))} for one in found]
        result = {
            "date": now.isoformat(timespec="seconds"),
            "commit": commit or git_commit(),
            "device": where.name,
            "seed": seed,
            "versions": where.versions(),
            "grades": graded,
            "rows": rows,
        }
        path = output / f"{now:%Y-%m-%d-%H%M}-{slug(where.name)}.json"
        row_files.write(path, result)
        print(path)
    if tables or output == FOLDER:
        DOCUMENT.write_text(
            with_tables(DOCUMENT.read_text(encoding="utf-8"), newest_of_devices(FOLDER)), encoding="utf-8"
        )


def compared_on(place: str) -> list[Way]:
    """The library's products, to two accuracies and by a number, and the native ones."""
    named = [
        ours(place, "ozaki, exact", accuracy="exact"),
        ours(place, f"ozaki, {MODULI} residues", scheme="residues", slices=MODULI),
    ]
    first, *native = ways(place, accuracy="fp64", name="ozaki, fp64")
    return [first, *named, *native]


def peers(gemmul8: Path | None, cublas: Any) -> list[Way]:
    """Products of other libraries on a GPU, as far as they are there."""
    found = []
    if cublas is not None:
        emulated = EmulatedDgemm.on_device(cublas)
        found.append(other(f"cuBLAS {emulated.version} emulated", "gpu", _into_new(emulated.multiply), "emulated"))
    if gemmul8 is not None:
        library = load_gemmul8(gemmul8)
        multiply = _into_new(lambda a, b, out: library.matmul(a, b, MODULI, out=out))
        name = f"GEMMul8 {library.version}"
        found.append(other(name, "gpu", multiply, f"{MODULI} moduli", MODULI))
    return found


def _into_new(multiply: Any) -> Any:
    """A function of two operands that calls one of these and of the memory of the result."""

    def product(a: Any, b: Any) -> Any:
        import cupy

        out = cupy.empty((a.shape[0], b.shape[1]), a.dtype)
        multiply(a, b, out)
        return out

    return product


def grade_row(kind: str, grade: Grade) -> dict[str, Any]:
    """A grade as plain values: the tests that were failed are one text."""
    return {"kind": kind, **plain(asdict(grade)), "failed": "; ".join(grade.failed)}


# Tables -------------------------------------------------------------------------------------------------------------


def with_tables(text: str, results: Sequence[Result]) -> str:
    """The document with the tables between its markers replaced."""
    return replaced(text, "\n".join(map(tables_of, results)), BEGIN, END)


def tables_of(result: Result) -> str:
    """The grades on a device and, for each kind of elements, slices, errors and times at the largest size."""
    versions = ", ".join(f"{name} {result['versions'][name]}" for name in ("numpy", "cupy", "cublas", "openblas")
                         if result["versions"].get(name))  # fmt: skip
    parts = [f"**{result['device']}** ({versions}):\n", _table(_grade_lines(result["grades"], result["rows"]), "l")]
    for kind in KINDS:
        rows = [row for row in result["rows"] if row["kind"] == kind]
        if rows:
            n = max(row["n"] for row in rows)
            parts.append(f"{kind}, n = {n}: slices, the largest error in units of 2⁻⁵², and the time:\n")
            parts.append(_table(_test_lines([row for row in rows if row["n"] == n]), "r"))
    return "\n".join(parts)


def _grade_lines(found: Sequence[dict[str, Any]], tests: Sequence[dict[str, Any]]) -> list[list[str]]:
    head = ["elements", "product", "grade", "errors grow as", "against float64 sums", "not told from", "tests failed"]
    lines = []
    for row in found:
        slopes = [_power(row["slope"]), _power(row["slope_against_float64"])]
        of_it = [one for one in tests if (one["kind"], one["way"]) == (row["kind"], row["way"])]
        failed = f"{sum(not one['passes'] for one in of_it)} of {len(of_it)}"
        lines.append([row["kind"], row["way"], row["grade"], *slopes, row["algorithm"], failed])
    return [head, *lines]


def _test_lines(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    names = list(dict.fromkeys(row["way"] for row in found))
    lines = [["test", *names]]
    for test in dict.fromkeys(row["test"] for row in found):
        cells = {row["way"]: _cell(row) for row in found if row["test"] == test}
        lines.append([test, *(cells[name] for name in names)])
    return lines


def _cell(row: dict[str, Any]) -> str:
    """Slices, if any, error and time; an error that JSON has none for is Inf or NaN."""
    error = "not finite" if row["error"] is None else _number(row["error"])
    count = f"{row['slices']}: " if row["slices"] else ""
    return f"{count}{error if row['passes'] else f'**{error}**'}, {_time(row['seconds'])}"


def _table(lines: Sequence[Sequence[str]], side: str) -> str:
    """A table, whose columns after the first are aligned to the left or the right."""
    head, *rest = lines
    rule = ["---", *(["---:" if side == "r" else "---"] * (len(head) - 1))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rest))


def _number(x: float) -> str:
    return f"{x:.2f}" if x < 10 else f"{x:.0f}" if x < 1e5 else f"{x:.1e}"


def _time(seconds: float) -> str:
    return (
        f"{seconds:.2g} s"
        if seconds >= 1
        else f"{1e3 * seconds:.2g} ms"
        if seconds < 0.1
        else f"{1e3 * seconds:.0f} ms"
    )


def _power(slope: float | None) -> str:
    return "" if slope is None else f"n^{slope:.2f}"


if __name__ == "__main__":
    typer.run(main)
