"""The result files: what a run writes, and how it is read back.

A file is {"schema": 1, "date", "commit", "device", "versions": {...}, "rows": [...]}; the attributes of `Row` are the
keys of a row, and those with a default are left out where there is nothing to say.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

from benchmarks import row_files

SCHEMA = 1

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

MEASURED_CODE = ("ozaki", "kernels")
"""Folders in which uncommitted changes mark the commit of a run as "-dirty"."""


@dataclass(frozen=True)
class Shape:
    """The shape of a product, (m x k) (k x n), and what its operands are.

    Attributes
    ----------
    batch : number of products
    turned : A lies in memory as k x m
    data : "normal", N(0, 1), or "graded", the same with columns of A times powers of two from 2**-8 to 2**8
    """

    m: int
    k: int
    n: int
    batch: int = 1
    turned: bool = False
    data: str = "normal"

    def __str__(self) -> str:
        """Return n for a square product, all sizes for another one, and the data if it is not normal."""
        data = "" if self.data == "normal" else f", {self.data}"
        if self.batch == 1 and self.m == self.k == self.n:
            return str(self.n) + data
        return (f"{self.batch} x " if self.batch > 1 else "") + f"({self.m} x {self.k}) ({self.k} x {self.n})" + data

    @classmethod
    def square(cls, n: int) -> Shape:
        return cls(n, n, n)


@dataclass(frozen=True)
class Row:
    """One routine at one size.

    Attributes
    ----------
    task : "float64", "float32", "complex128", "complex64", "shapes", "choices", "stacks",
        "bf16", "kernels"
    routine : such as "ozaki residues 14", "cublas dgemm", "GEMMul8 15"; benchmarks/labels.py has its name in tables
    ours : whether it is a routine of this library
    m, n, k : sizes of the product (m x k) (k x n)
    dtype : dtype of operands and result
    data : how the operands were drawn: "normal" or "graded" (`Shape`), or "bytes"
    seconds : median of the seconds of one call
    tflops : 2 m n k batch / seconds, 8 of complex operands, in 10**12; for a kernel that multiplies slices, times the
        number of products
    error : largest componentwise error over exactly computed entries; None where nothing is multiplied
    bound : proven componentwise bound for these operands; None without one
    products : number of slice products
    rms : root mean square of the errors over the same entries
    ran : the slices that the default chose, such as "14 residues"
    sm_mhz : mean clock of the GPU meanwhile, in MHz
    power_limited : part of the time in which the power limit held the clock down
    bytes : the least number of bytes that a kernel has to move
    of_copy : bytes / seconds, divided by that of a copy on the device
    batch : number of products in one call, if more than one
    """

    task: str
    routine: str
    ours: bool
    m: int
    n: int
    k: int
    dtype: str
    data: str
    seconds: float
    tflops: float | None
    error: float | None
    bound: float | None
    products: int
    rms: float | None = None
    ran: str | None = None
    sm_mhz: float | None = None
    power_limited: float | None = None
    bytes: int | None = None
    of_copy: float | None = None
    batch: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None or key in _REQUIRED}


_TYPES = get_type_hints(Row)
_REQUIRED = {field.name for field in fields(Row) if field.default is MISSING}


@dataclass(frozen=True)
class Run:
    """One run of the benchmarks on one device.

    Attributes
    ----------
    date : ISO 8601, UTC, to the second
    commit : full hash, followed by "-dirty" if the library has uncommitted changes; "unknown" outside a repository
    device : name of the GPU, or of the CPU with its threads
    versions : versions of the software that decides bits and speed, every library with rows of its own included
    rows : the rows, size by size; the routines of one size were timed in turn
    """

    date: str
    commit: str
    device: str
    versions: dict[str, str]
    rows: tuple[Row, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.task for row in self.rows))

    @property
    def filename(self) -> str:
        """The name of the file, from date, device and tasks: "2026-01-31-0930-nvidia-h200-float64.json"."""
        minute = self.date[:16].replace("T", "-").replace(":", "")
        return f"{minute}-{slug(self.device)}-{'-'.join(self.tasks)}.json"

    def write(self, folder: Path) -> Path:
        """Write the file, and return its path."""
        path = folder / self.filename
        row_files.write(path, {"schema": SCHEMA, **asdict(self), "rows": [row.as_json() for row in self.rows]})
        return path


def read(path: Path) -> Run:
    """Read a result file.

    Raises
    ------
    ValueError
        If it does not follow the schema; the message names file and key.
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_all(folder: Path = RESULTS) -> list[Run]:
    """Read every result file of a folder, oldest first."""
    return sorted((read(path) for path in folder.glob("*.json")), key=lambda run: run.date)


def parse(content: Any) -> Run:
    """Build a `Run` from the content of a result file, or raise a ValueError that names the wrong key."""
    _check_keys("run", content, {"schema", "date", "commit", "device", "versions", "rows"})
    if content["schema"] != SCHEMA:
        raise ValueError(f"schema: {content['schema']!r}; expected {SCHEMA}")
    for key in ("date", "commit", "device"):
        if not (isinstance(content[key], str) and content[key]):
            raise ValueError(f"{key}: {content[key]!r}; expected a text")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", content["date"]):
        raise ValueError(f"date: {content['date']!r}; expected ISO 8601 in UTC, as 2026-01-31T09:30:00+00:00")
    versions = content["versions"]
    if not (isinstance(versions, dict) and all(isinstance(value, str) for value in versions.values())):
        raise ValueError(f"versions: {versions!r}; expected texts by name")
    if not (isinstance(content["rows"], list) and content["rows"]):
        raise ValueError("rows: expected a list of at least one row")
    rows = tuple(_parse_row(f"rows[{i}]", row) for i, row in enumerate(content["rows"]))
    if "gemmul8" not in versions and any(row.routine.startswith("GEMMul8") for row in rows):
        raise ValueError("versions: rows of GEMMul8, but no 'gemmul8', its version")
    return Run(content["date"], content["commit"], content["device"], versions, rows)


def _parse_row(where: str, content: Any) -> Row:
    _check_keys(where, content, _REQUIRED, set(_TYPES) - _REQUIRED)
    for key, value in content.items():
        if not isinstance(value, _TYPES[key]) or (isinstance(value, bool) and _TYPES[key] is not bool):
            raise ValueError(f"{where}.{key}: {value!r}; expected {_TYPES[key]}")
        if isinstance(value, float) and not (isfinite(value) and value >= 0):
            raise ValueError(f"{where}.{key}: {value!r}; expected a finite number, not negative")
    return Row(**content)


def _check_keys(where: str, content: Any, required: set[str], optional: set[str] | None = None) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"{where}: {type(content).__name__}; expected an object")
    missing, unknown = required - content.keys(), content.keys() - required - (optional or set())
    if missing or unknown:
        raise ValueError(f"{where}: missing keys {sorted(missing)}, unknown keys {sorted(unknown)}")


def newest(runs: Iterable[Run], task: str) -> dict[str, Run]:
    """The newest run of a task on each device."""
    ordered = sorted((run for run in runs if task in run.tasks), key=lambda run: run.date)
    return {run.device: run for run in ordered}


def newest_of_devices(folder: Path) -> list[dict[str, Any]]:
    """The newest result of each device among the JSON files of a folder, whose names begin with dates, by device."""
    results = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json")))
    found: dict[str, dict[str, Any]] = {result["device"]: result for result in results}
    return [found[device] for device in sorted(found)]


def largest(rows: Sequence[Row]) -> list[Row]:
    """The rows of the largest n."""
    n = max(row.n for row in rows)
    return [row for row in rows if row.n == n]


def unit(rows: Sequence[Row]) -> tuple[str, float]:
    """The unit of speed that suits these rows, and how many TFLOP/s it is."""
    return ("TFLOP/s", 1.0) if max(row.tflops or 0 for row in rows) >= 1 else ("GFLOP/s", 1e-3)


def error_of(value: float | None) -> str:
    """An error or a bound as a text; "none" for None."""
    return "none" if value is None else f"{value:.1e}"


def size(row: Row) -> str:
    """The sizes of a row as a text."""
    return str(Shape(row.m, row.k, row.n, row.batch or 1, data=row.data))


def slug(text: str) -> str:
    """A text as part of a file name: lower case, letters and digits joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def git_commit() -> str:
    """The commit of this working tree, as `Run.commit` has it."""
    try:
        revision = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", *MEASURED_CODE)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return revision + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
