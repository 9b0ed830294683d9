"""Products of operands in memory of the host through one GPU: `python -m benchmarks.host_operands`.

Beside them, in the same run, the same product with operands and result on the GPU, and the link alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import ozaki
from benchmarks import row_files
from benchmarks.devices import device_of
from benchmarks.measure import WrongAnswerError
from benchmarks.results import RESULTS, git_commit, slug
from benchmarks.several_devices import METHOD, fastest

FOLDER = RESULTS / "host_operands"

LINK = 2**30
"""Bytes that are copied to time the link."""


def main(
    n: Annotated[int, typer.Option(min=1, help="Rows, inner indices and columns.")] = 40000,
    output: Annotated[
        Path, typer.Option(help="Folder for what was timed.", show_default="benchmarks/results/host_operands")
    ] = FOLDER,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
) -> None:
    """Time products through the first GPU, and write a result file."""
    where, now = device_of("gpu"), datetime.now(UTC)
    result = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit or git_commit(),
        "device": where.name,
        "versions": where.versions(),
        "n": n,
        "rows": [measured(n)],
    }
    path = output / f"{now:%Y-%m-%d-%H%M}-{slug(where.name)}.json"
    row_files.write(path, result)
    print(result["rows"], path)


def measured(n: int) -> dict[str, Any]:
    """Seconds of the product on the GPU, and through it, with those that the link needs at least.

    Raises
    ------
    WrongAnswerError
        If both have other bits.
    """
    import cupy as cp

    a, b, want, there = _on_gpu(cp, n)
    cp.get_default_memory_pool().free_all_blocks()
    out = np.zeros((n, n))
    through = fastest(lambda: _in_blocks(a, b, out), 1)
    found = _sums(cp, out)
    if not all(map(np.array_equal, want, found)):
        raise WrongAnswerError("other bits through the GPU than on it")
    to, back = _link(cp)
    moved = max(2 * a.nbytes / to, out.nbytes / back)
    return {
        "n": n, "on_gpu": there, "to_gpu_bytes_per_s": to, "from_gpu_bytes_per_s": back, "link": moved,
        "through": through, "of_larger": max(there, moved) / through,
    }  # fmt: skip


def _on_gpu(cp: Any, n: int) -> tuple[Any, Any, tuple[Any, Any], float]:
    """Operands in memory of the host, the sums of their product, and its seconds on the GPU by the faster way there."""
    x, y = (cp.random.default_rng(seed).standard_normal((n, n)) for seed in (0, 1))
    c = cp.empty((n, n))
    limit = int(0.95 * cp.cuda.runtime.memGetInfo()[0])
    ways = (lambda: ozaki.matmul(x, y, c, workspace_limit=limit, **METHOD)), lambda: _in_blocks(x, y, c)
    seconds = min(fastest(way, 1) for way in ways)
    return x.get(), y.get(), _sums(cp, c), seconds


def _in_blocks(x: Any, y: Any, out: Any) -> None:
    ozaki.matmul(x, y, out, devices=0, **METHOD)


def _sums(cp: Any, c: Any) -> tuple[Any, Any]:
    """Sums, modulo 2**64, of the bits of rows and of columns."""
    rows, cols = [], np.zeros(c.shape[1], np.uint64)
    for first in range(0, len(c), 4096):
        bits = cp.ascontiguousarray(cp.asarray(c[first : first + 4096])).view(cp.uint64)
        rows.append(bits.sum(axis=1).get())
        cols += bits.sum(axis=0).get()
    return np.concatenate(rows), cols


def _link(cp: Any) -> tuple[float, float]:
    """Bytes a second from pinned memory of the host to the GPU, and back, one after the other."""
    pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(LINK), np.uint8, LINK)
    device = cp.empty(LINK, np.uint8)
    to = fastest(lambda: device.set(pinned), 1)
    back = fastest(lambda: device.get(out=pinned), 1)
    return LINK / to, LINK / back


if __name__ == "__main__":
    typer.run(main)
