"""Products of processes on one machine beside `ozaki.matmul` in one: `python -m benchmarks.distributed`.

Processes talk by gloo of PyTorch, each with one thread. Where they are more than the cores, or others use these, the
time that a process computes says more than the time that passes: both are taken, the least of all turns. Bytes are
compared with the model of benchmarks/gpu_model.py, and bits with those of one process. Results go to
benchmarks/results/distributed/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import ozaki
from benchmarks import row_files
from benchmarks.devices import cpu_model
from benchmarks.gpu_model import RESIDUES, Shape, received
from benchmarks.measure import WrongAnswerError
from benchmarks.results import RESULTS, ROOT, git_commit, slug
from ozaki.distributed import BlockNonCyclic, Slab, matmul, share_of
from ozaki.distributed.sharing import shared_out

FOLDER = RESULTS / "distributed"

COUNTS = (1, 2, 4)
TURNS, CALLS, LIMIT = 3, 3, 100
"""Turns of all numbers of processes, calls in a turn, and seconds that a turn of one may take."""

METHOD: dict[str, Any] = {"scheme": "residues", "slices": RESIDUES}

Row = dict[str, Any]


class Found(NamedTuple):
    """What a process found: seconds that passed and that it computed, bytes of messages that came, and bits.

    Attributes
    ----------
    hash : SHA-256 of the whole product, on rank 0
    """

    seconds: float
    computing: float
    received: int
    hash: str


def main(
    n: Annotated[
        int, typer.Option(min=8, help="Rows and columns; half as many rows a process, where they grow.")
    ] = 2000,
    turns: Annotated[int, typer.Option(min=1)] = TURNS,
    output: Annotated[
        Path, typer.Option(help="Folder for the JSON file.", show_default="benchmarks/results/distributed")
    ] = FOLDER,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
) -> None:
    """Measure, and write the results."""
    rows = []
    for kind in ("same product", "rows grow"):
        rows += of_kind(kind, n, turns)
    now = datetime.now(UTC)
    device = f"{cpu_model()}, {os.cpu_count()} cores"
    result = {
        "date": now.isoformat(timespec="seconds"),
        "commit": commit or git_commit(),
        "device": device,
        "versions": {"ozaki": ozaki.__version__, "numpy": version("numpy"), "torch": version("torch")},
        "residues": RESIDUES,
        "rows": rows,
    }
    path = output / f"{now:%Y-%m-%d-%H%M}-{slug(device)}.json"
    row_files.write(path, result)
    print(path)


def of_kind(kind: str, n: int, turns: int) -> list[Row]:
    """Rows for all numbers of processes: of one product, or of products whose rows grow with the processes."""
    shapes = {count: (n if kind == "same product" else n // 2 * count, n, n) for count in COUNTS}
    found: dict[int, list[list[Found]]] = {count: [] for count in COUNTS}
    for _ in range(turns):
        for count, shape in shapes.items():
            found[count].append(started(count, shape))
    one: Row | None = None
    rows = []
    for count, shape in shapes.items():
        row = row_of(kind, shape, found[count])
        one = one or row
        work = shape[0] / shapes[COUNTS[0]][0]
        row |= {f"{key}_times_one": round(work * one[key] / row[key], 3) for key in ("seconds", "computing")}
        if kind == "same product" and row["hash"] != one["hash"]:
            raise WrongAnswerError(f"{count} processes: other bits than one")
        rows.append(row)
        print(row, flush=True)
    return rows


def row_of(kind: str, shape: Shape, turns: Sequence[Sequence[Found]]) -> Row:
    """The slowest process of the fastest turn, and its bytes beside those of the model."""
    count = len(turns[0])
    sharing = shared_out(shape, count)
    expected = [received(sharing, rank, count).near for rank in range(count)]
    return {
        "kind": kind,
        "processes": count,
        "m": shape[0],
        "k": shape[1],
        "n": shape[2],
        "grid": list(sharing.grid.shape),
        "layers": sharing.layers,
        "seconds": min(max(each.seconds for each in turn) for turn in turns),
        "computing": min(max(each.computing for each in turn) for turn in turns),
        "received": [each.received for each in turns[0]],
        "model": expected,
        "hash": turns[0][0].hash,
    }


def started(count: int, shape: Shape) -> list[Found]:
    """What so many new processes find, by rank.

    Raises
    ------
    RuntimeError
        If one of them fails.
    """
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "OZAKI_NUM_THREADS"), "1")
    environment = {**os.environ, **one_thread, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.distributed", "process", f"{folder}/store", f"{rank}", f"{count}",
                 *map(str, shape)],
                env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True,
            )
            for rank in range(count)
        ]  # fmt: skip
        try:
            lines = [each.communicate(timeout=LIMIT)[0] for each in processes]
        finally:
            for each in processes:
                each.kill()
    if any(each.returncode for each in processes):
        raise RuntimeError(f"{count} processes: ended with {[each.returncode for each in processes]}")
    return [Found(*json.loads(line)) for line in lines]


def process(store: str, rank: int, count: int, shape: Shape) -> Found:
    """What one process does: the product by `ozaki.matmul` alone, or with the others."""
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if count == 1:
        seconds, computing, c = least(lambda: ozaki.matmul(a, b, reproducible=True, **METHOD))
        return Found(seconds, computing, 0, hash_of(c))
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    x, y = share_of(a, Slab.X), share_of(b, Slab.Y)
    sharing = shared_out(shape, count)
    # Each keeps what it rounds, so that only operands move.
    kept = BlockNonCyclic(sharing.grid) if sharing.layers == 1 else Slab.X
    seconds, computing, (c, report) = least(lambda: matmul(x, y, kept, return_report=True, **METHOD))
    whole = c.gather()
    dist.destroy_process_group()
    return Found(seconds, computing, report.processes[rank].received, hash_of(whole) if rank == 0 else "")


def least(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """The least seconds that passed and that this process computed, of several calls, and the last one's result."""
    passed, computed = [], []
    for _ in range(CALLS):
        began, computing = perf_counter(), process_time()
        found = call()
        passed.append(perf_counter() - began)
        computed.append(process_time() - computing)
    return min(passed), min(computed), found


def hash_of(c: Any) -> str:
    return sha256(np.ascontiguousarray(c).tobytes()).hexdigest()


if __name__ == "__main__":
    if sys.argv[1:2] == ["process"]:
        place, number, size, *sizes = sys.argv[2:]
        rows, inner, cols = map(int, sizes)
        print(json.dumps(process(place, int(number), int(size), (rows, inner, cols))))
    else:
        typer.run(main)
