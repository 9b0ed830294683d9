"""`ozaki.linalg` beside the array library's own functions, on a CPU and on a GPU: `python -m benchmarks.linalg`.

Each function takes a matrix of normally distributed numbers, and one of condition number 10^12. Errors are what the
bounds of docs/linalg.md bound, measured against a result of 150 bits, whose own proven error is far smaller. On a CPU
crlin and ozaki-jax are peers, where they are installed: crlin returns intervals, of which the middle counts.

The medians go to benchmarks/results/linalg/, and the newest of each device into docs/linalg.md.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import ozaki
from benchmarks import row_files
from benchmarks.__main__ import Where, sizes_of
from benchmarks.devices import Device, device_of, median_seconds
from benchmarks.readme import replaced
from benchmarks.results import RESULTS, ROOT, git_commit, newest_of_devices, slug

BEGIN, END = "<!-- linalg:begin -->", "<!-- linalg:end -->"

FOLDER = RESULTS / "linalg"
DOCUMENT = ROOT / "docs" / "linalg.md"

BITS = 150
"""Bits of the results that errors are measured against."""

CONDITION = 1e12

Row = dict[str, Any]
Result = dict[str, Any]


class Task(NamedTuple):
    """One function for one matrix.

    Attributes
    ----------
    ours : the function of `ozaki.linalg`, of keywords
    native : the array library's
    error : function of a result of `ours` or `native`, in a tuple: the error
    """

    ours: Callable[..., Any]
    native: Callable[[], Any]
    error: Callable[[Any], float]


def main(
    device: Annotated[Where, typer.Option(help="auto: the GPU where there is one.")] = Where.auto,
    sizes: Annotated[str, typer.Option(help="Rows of the matrices, separated by commas.")] = "",
    output: Annotated[
        Path, typer.Option(help="Folder for the JSON file.", show_default="benchmarks/results/linalg")
    ] = FOLDER,
    seconds: Annotated[float, typer.Option(min=0, help="Least time to measure each function for.")] = 0.5,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
    tables: Annotated[bool, typer.Option("--tables", help="Measure nothing: only write the tables.")] = False,
) -> None:
    """Measure, write the results, and put the tables of the newest results into the document."""
    if not tables:
        where = device_of(device.value)
        chosen = sizes_of(sizes) if sizes else [100, 400] if where.xp is np else [512, 4096]
        now = datetime.now(UTC)
        result = {
            "date": now.isoformat(timespec="seconds"),
            "commit": commit or git_commit(),
            "device": where.name,
            "versions": where.versions() | _peer_versions(where),
            "rows": [row for n in chosen for kind in _KINDS for row in measured(where, n, kind, seconds)],
        }
        path = output / f"{now:%Y-%m-%d-%H%M}-{slug(where.name)}.json"
        row_files.write(path, result)
        print(path)
    if tables or output == FOLDER:
        DOCUMENT.write_text(
            with_tables(DOCUMENT.read_text(encoding="utf-8"), newest_of_devices(FOLDER)), encoding="utf-8"
        )


# Measuring ----------------------------------------------------------------------------------------------------------


_KINDS = "N(0, 1)", "condition 1e12"


def measured(device: Device, n: int, kind: str, seconds: float) -> list[Row]:
    """A row for each function: seconds and errors of both."""
    rows = []
    for name, task in tasks(device.xp, n, kind).items():
        found = task.ours(accuracy="fp64")
        native = task.native()
        row = {
            "function": name,
            "n": n,
            "matrix": kind,
            "ozaki": median_seconds(device, [partial(task.ours, accuracy="fp64")], seconds),
            "native": median_seconds(device, [task.native], seconds),
            "error": task.error(found),
            "bound": found.error_bound,
            "native error": task.error(native if isinstance(native, tuple) else (native,)),
        }
        for peer, function in _peers(device, name, n, kind).items():
            row[peer] = median_seconds(device, [function], seconds)
            found = function()
            row[f"{peer} error"] = None if found is None else task.error((found,))
        print(row, flush=True)
        rows.append(row)
        device.release()
    return rows


def tasks(xp: Any, n: int, kind: str) -> dict[str, Task]:
    """The functions, with their operands."""
    rng = xp.random.default_rng(n)
    ordinary = kind == _KINDS[0]
    spectrum = xp.asarray(np.geomspace(1, 1 / CONDITION, n))

    def conditioned(rows: int, symmetric: bool = False) -> Any:
        left, right = (xp.linalg.qr(rng.standard_normal((size, n)))[0] for size in (rows, n))
        return left * spectrum @ (left if symmetric else right).T

    a = rng.standard_normal((n, n)) if ordinary else conditioned(n)
    tall = rng.standard_normal((2 * n, n)) if ordinary else conditioned(2 * n)
    symmetric = a + a.T if ordinary else conditioned(n, symmetric=True)
    symmetric = (symmetric + symmetric.T) / 2
    positive = a @ a.T / n + xp.eye(n) if ordinary else symmetric
    b = rng.standard_normal(n)
    most = rng.standard_normal(2 * n)
    linalg = ozaki.linalg
    return {
        "solve": _compared(linalg.solve, xp.linalg.solve, a, b),
        "inv": _compared(linalg.inv, xp.linalg.inv, a),
        "lstsq": _compared(linalg.lstsq, lambda x, y: xp.linalg.lstsq(x, y, rcond=2.0**-52), tall, most),
        "eigh": _compared(linalg.eigh, xp.linalg.eigh, symmetric, whole=True),
        "eigvalsh": _compared(linalg.eigvalsh, xp.linalg.eigvalsh, symmetric, whole=True),
        "svdvals": _compared(linalg.svdvals, partial(xp.linalg.svd, compute_uv=False), a, whole=True),
        "cholesky": Task(
            partial(linalg.cholesky, positive),
            partial(xp.linalg.cholesky, positive),
            lambda found: _of_factors(positive, found[0], found[0].T),
        ),
        "qr": Task(partial(linalg.qr, a), partial(xp.linalg.qr, a), lambda found: _of_factors(a, *found[:2])),
    }


def _compared(ours: Any, native: Any, *operands: Any, whole: bool = False) -> Task:
    """A task whose first result is compared with one of `BITS` bits.

    The error is relative to the largest element of a column, or, with `whole`, of all.
    """
    exact = ours(*operands, accuracy=BITS, dtype="mp")[0]
    largest = abs(exact.astype("float64")).max(axis=None if whole else 0)

    def error(found: Any) -> float:
        off = abs((ozaki.mparray(found[0]) - exact).astype("float64"))
        return float((off / largest).max())

    return Task(partial(ours, *operands), partial(native, *operands), error)


def _of_factors(a: Any, x: Any, y: Any) -> float:
    """The row-column error of a factorisation (docs/linalg.md, L4)."""
    off = abs(ozaki.gemm(-1, x, y, 1, a, accuracy="dd"))
    return float((off / ((x * x).sum(axis=1) ** 0.5)[:, None] / (y * y).sum(axis=0) ** 0.5).max())


PEERS = "crlin", "ozaki-jax"


def _peers(device: Device, name: str, n: int, kind: str) -> dict[str, Callable[[], Any]]:
    """The functions of peers that are installed, and have it, for the same operands: they return one array."""
    installed = _peer_versions(device)
    found: dict[str, Callable[[], Any]] = {}
    task = tasks(np, n, kind)[name] if installed else None
    if "crlin" in installed and name in ("solve", "lstsq", "eigvalsh"):
        import crlin

        function = {"solve": crlin.solve, "lstsq": crlin.lstsq, "eigvalsh": crlin.eig_sym}[name]
        found["crlin"] = partial(_middle, function, crlin.NotVerified, *task.native.args)  # type: ignore[union-attr]
    if "ozaki-jax" in installed and name in ("solve", "inv", "lstsq"):
        import jax
        import ozaki_jax

        jax.config.update("jax_enable_x64", True)
        found["ozaki-jax"] = partial(getattr(ozaki_jax, name), *task.native.args)  # type: ignore[union-attr]
    return found


def _middle(function: Callable[..., Any], refused: type[Exception], *operands: Any) -> Any:
    """The middle of the intervals that a function of crlin returns; None if it verifies none."""
    try:
        low, high = function(*operands)[:2]
    except refused:
        return None
    return low + (high - low) / 2


def _peer_versions(device: Device) -> dict[str, str]:
    if device.xp is not np:
        return {}
    modules = {name: name.replace("-", "_") for name in PEERS}
    return {name: version(name) for name, module in modules.items() if importlib.util.find_spec(module) is not None}


# Tables -------------------------------------------------------------------------------------------------------------


def with_tables(text: str, results: list[Result]) -> str:
    """The document with the tables between its markers replaced."""
    return replaced(text, "\n".join(map(table, results)), BEGIN, END)


def table(result: Result) -> str:
    """Times and errors on a device, a line for each function, size and matrix."""
    names = result["versions"]
    native = f"CuPy {names['cupy']}" if names.get("cupy") else f"NumPy {names['numpy']}"
    peers = [peer for peer in PEERS if peer in names]
    lines = [
        ["function", "matrix", "n", native, "ozaki", *(f"{peer} {names[peer]}" for peer in peers)],
        ["---", "---", *["---:"] * (3 + len(peers))],
    ]
    for row in result["rows"]:
        ours = f"{_time(row['ozaki'])}, {row['error']:.1e} (proven {row['bound']:.1e})"
        cells = [f"{_time(row['native'])}, {row['native error']:.1e}", ours]
        cells += [_of_peer(row, peer) for peer in peers]
        lines.append([f"`{row['function']}`", row["matrix"], str(row["n"]), *cells])
    head = f"**{result['device']}**: time, and error; medians.\n"
    return "\n".join([head, *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"


def _of_peer(row: Row, peer: str) -> str:
    if peer not in row:
        return ""
    error = row[f"{peer} error"]
    return f"{_time(row[peer])}, {'refused' if error is None else f'{error:.1e}'}"


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


if __name__ == "__main__":
    typer.run(main)
