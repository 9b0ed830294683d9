"""Multiprecision products beside python-flint, on a CPU and on a GPU: `python -m benchmarks.multiprecision`.

On a CPU both multiply square matrices with full significands in their own form: `MPArray` with NumPy's BLAS, `arb_mat`
in one thread, as it runs by itself. On a GPU operands and results of `MPArray` stay in its memory; each product is
compared with NumPy's, bit for bit, in some rows and columns. Beside it are the same slice products by cuBLAS, and
`arb_mat` on all cores of the host, at a size of its own.

The medians go to benchmarks/results/multiprecision/, and the newest of each device into docs/multiprecision.md.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import ozaki
from benchmarks import row_files
from benchmarks.__main__ import Where, sizes_of
from benchmarks.conversions import median
from benchmarks.devices import Cpu, Device, cpu_model, device_of, median_seconds
from benchmarks.measure import WrongAnswerError
from benchmarks.readme import replaced
from benchmarks.results import RESULTS, ROOT, git_commit, newest_of_devices, slug
from ozaki.multiprecision.limbs import LIMB_BITS, limbs_of
from ozaki.planning.search import likely_schemes
from ozaki.records.accuracy import Accuracy

BEGIN, END = "<!-- multiprecision:begin -->", "<!-- multiprecision:end -->"

FOLDER = RESULTS / "multiprecision"
DOCUMENT = ROOT / "docs" / "multiprecision.md"

BITS = 106, 212, 512, 1024

HOST_SIZE = 1000
"""Rows and columns of matrices on a CPU."""

SIZES = "4096,8192"
"""Rows and columns of matrices on a GPU."""

Row = dict[str, Any]
Result = dict[str, Any]


def main(
    device: Annotated[Where, typer.Option(help="auto: the GPU where there is one.")] = Where.auto,
    n: Annotated[int, typer.Option(min=2, help="Rows and columns on a CPU.")] = HOST_SIZE,
    sizes: Annotated[str, typer.Option(help="Rows and columns on a GPU, separated by commas.")] = SIZES,
    output: Annotated[
        Path, typer.Option(help="Folder for the JSON file.", show_default="benchmarks/results/multiprecision")
    ] = FOLDER,
    seconds: Annotated[float, typer.Option(min=0, help="Least time to measure each product on a GPU for.")] = 0.5,
    commit: Annotated[str, typer.Option(help="Of the measured code.", show_default="what git says")] = "",
    tables: Annotated[bool, typer.Option("--tables", help="Measure nothing: only write the tables.")] = False,
) -> None:
    """Measure, write the results, and put the tables of the newest results into the document."""
    if not tables:
        where = device_of(device.value)
        measured = on_cpu(n) if isinstance(where, Cpu) else on_gpu(where, sizes_of(sizes), n, seconds)
        now = datetime.now(UTC)
        result = {"date": now.isoformat(timespec="seconds"), "commit": commit or git_commit(), **measured}
        name = "cpu" if isinstance(where, Cpu) else slug(where.name)
        path = output / f"{now:%Y-%m-%d-%H%M}-{name}.json"
        row_files.write(path, result)
        print(path)
    if tables or output == FOLDER:
        DOCUMENT.write_text(
            with_table(DOCUMENT.read_text(encoding="utf-8"), newest_of_devices(FOLDER)), encoding="utf-8"
        )


# On a CPU -----------------------------------------------------------------------------------------------------------


def on_cpu(n: int) -> Result:
    """Seconds of both libraries on this CPU."""
    rng = np.random.default_rng(0)
    rows = [measured_on_cpu(rng, n, bits) for bits in BITS]
    versions = {name: version(name) for name in ("numpy", "python-flint")}
    return {"device": Cpu().name, "versions": versions, "n": n, "rows": rows}


def measured_on_cpu(rng: np.random.Generator, n: int, bits: int) -> Row:
    """Seconds of both libraries for one number of bits."""
    count = -(-bits // 53)
    a, b = (
        ozaki.mparray(tuple(rng.standard_normal((n, n)) * 2.0 ** (-54 * w) for w in range(count))) for _ in range(2)
    )
    _, report = ozaki.matmul(a, b, accuracy=bits, return_report=True)
    row = {
        "bits": bits,
        "products": report.products,
        "ozaki": median(lambda: ozaki.matmul(a, b, accuracy=bits)),
        "arb_mat": seconds_of_flint(rng, n, bits),
    }
    print(row, flush=True)
    return row


def seconds_of_flint(rng: np.random.Generator, n: int, bits: int, threads: int = 1) -> float:
    """Seconds of a product of `arb_mat`, python-flint's matrices of balls."""
    import flint

    flint.ctx.prec, flint.ctx.threads = bits, threads
    whole = rng.integers(-(2**62), 2**62, (n, n)).tolist()
    x = flint.arb_mat([[flint.arb(value) for value in row] for row in whole]) * flint.arb(3).sqrt()
    return median(lambda: x * x)


# On a GPU -----------------------------------------------------------------------------------------------------------


def on_gpu(device: Device, sizes: Sequence[int], of_host: int, seconds: float) -> Result:
    """Seconds on this GPU, and of python-flint, if it is installed, on the cores of its host."""
    rows = [measured_on_gpu(device, n, bits, seconds) for n, bits in product(sizes, BITS)]
    return {"device": device.name, "versions": device.versions(), "rows": rows, "host": host(of_host)}


def measured_on_gpu(device: Device, n: int, bits: int, seconds: float) -> Row:
    """Seconds of one product by the engine that is chosen, and by cuBLAS.

    Raises
    ------
    WrongAnswerError
        If an entry is not that of NumPy; nothing is timed then.
    """
    a, b = drawn(device, n, bits, 2 * n), drawn(device, n, bits, 2 * n + 1)
    plan = ozaki.plan(a, b, accuracy=bits)
    timed = {}
    for name, engine in (("ozaki", "auto"), ("cublas", "cublas")):
        check(partial(ozaki.matmul, a, b, accuracy=bits, engine=engine), a, b, plan)
        device.release()
        timed[name] = median_seconds(device, [partial(ozaki.matmul, a, b, accuracy=bits, engine=engine)], seconds)
        device.release()
    row = {"n": n, "bits": bits, "products": plan.products, **timed}
    print({**row, "tflops": round(tflops(n, row["ozaki"]), 2)}, flush=True)
    del a, b
    device.release()
    return row


def drawn(device: Device, n: int, bits: int, seed: int) -> ozaki.MPArray:
    """A square matrix of random numbers, made in the device's memory.

    Their signs and exponents are those of normally distributed numbers, and their fractions have all bits.
    """
    xp = device.xp
    rng = xp.random.default_rng(seed)
    normal = rng.standard_normal((n, n))
    limbs = xp.empty((limbs_of(bits), n, n), np.uint32)
    for plane in limbs:  # 31 bits and 31 others: CuPy draws no 32 bits
        high, low = (rng.integers(0, 2**31, size=(n, n), dtype=np.uint32) for _ in range(2))
        plane[...] = high << np.uint32(1) ^ low
    limbs[0] |= np.uint32(2**31)
    limbs[-1] &= np.uint32(2**LIMB_BITS - 2 ** (LIMB_BITS * len(limbs) - bits))
    signs = xp.where(normal < 0, -1, 1).astype(np.int8)
    return ozaki.MPArray(signs, xp.frexp(normal)[1].astype(np.int64), limbs, bits)


def check(multiply: Callable[[], ozaki.MPArray], a: ozaki.MPArray, b: ozaki.MPArray, plan: ozaki.Plan) -> None:
    """Compare a product with NumPy's by the same plan, bit for bit, in four rows and columns or so.

    Raises
    ------
    WrongAnswerError
        If an entry differs.
    """
    rows, columns = (slice(size // 7, None, max(size // 4, 1)) for size in (a.shape[0], b.shape[1]))
    found = ozaki.asnumpy(multiply()[rows, columns])
    left, right = ozaki.asnumpy(a[rows]), ozaki.asnumpy(b[:, columns])
    shape = left.shape[0], left.shape[1], right.shape[1]
    expected = ozaki.matmul(left, right, plan=replace(plan, shape=shape, a_priori=True))
    if found.bits != expected.bits or not bool((found == expected).all()):
        raise WrongAnswerError(f"n = {a.shape[0]}, {plan.dtype}: a product differs from NumPy's")


def host(n: int) -> Result | None:
    """Seconds of python-flint on all cores of this machine; None if it is not installed."""
    if importlib.util.find_spec("flint") is None:
        print("python-flint: not installed, not measured")
        return None
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rng = np.random.default_rng(0)
    rows = [{"bits": bits, "arb_mat": seconds_of_flint(rng, n, bits, threads)} for bits in BITS]
    return {
        "device": cpu_model(),
        "threads": threads,
        "versions": {"python-flint": version("python-flint")},
        "n": n,
        "rows": rows,
    }


# Tables -------------------------------------------------------------------------------------------------------------


def is_of_gpu(result: Result) -> bool:
    """Whether results are those of a GPU; those of a CPU have one size."""
    return "n" not in result


def with_table(text: str, results: list[Result]) -> str:
    """The document with the tables between its markers replaced: those of CPUs, then those of GPUs."""
    ordered = sorted(results, key=is_of_gpu)
    tables = "\n".join((table_of_gpu if is_of_gpu(result) else table_of_cpu)(result) for result in ordered)
    return replaced(text, tables, BEGIN, END)


def table_of_cpu(result: Result) -> str:
    """The price list: slice products for k = 4096, and the times measured."""
    n, names = result["n"], result["versions"]
    lines = [
        f"| bits | slice products, k = 4096 | slice products, k = {n} | ozaki | python-flint | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        (usual,) = likely_schemes(Accuracy.of(row["bits"], 4096), 4096, ("residues",))
        lines.append(
            f"| {row['bits']} | {usual.products} | {row['products']} | {row['ozaki']:.2g} s | {row['arb_mat']:.2g} s "
            f"| {row['arb_mat'] / row['ozaki']:.1f} |"
        )
    source = (
        f"\nSeconds for n = {n} on {result['device']}, which NumPy {names['numpy']}'s BLAS uses, and one thread "
        f"of python-flint {names['python-flint']}'s `arb_mat`; medians of three."
    )
    return "\n".join((*lines, source)) + "\n"


def table_of_gpu(result: Result) -> str:
    """The speed of products on a GPU, a line for each size and number of bits, and of `arb_mat` on its host."""
    names, of_host = result["versions"], result["host"]
    peer = f" | `arb_mat`, n = {of_host['n']}" if of_host else ""
    lines = [
        f"| n | bits | slice products | ozaki | slice products by cuBLAS{peer} |",
        "|---|---|---|---|---|" + ("---|" if of_host else ""),
    ]
    seconds = {row["bits"]: row["arb_mat"] for row in of_host["rows"]} if of_host else {}
    for row in result["rows"]:
        n, bits = row["n"], row["bits"]
        cells = [f"{tflops(n, row[name]):.3g}" for name in ("ozaki", "cublas")]
        if of_host:
            cells.append(f"{tflops(of_host['n'], seconds[bits]):.2g}" if bits in seconds else "")
        lines.append(f"| {n} | {bits} | {row['products']} | " + " | ".join(cells) + " |")
    source = (
        f"\nTFLOP/s (2 n³ / time) on {result['device']}, operands and results in its memory, planning included; CuPy "
        f"{names['cupy']}, cuBLAS {names['cublas']}, driver {names['driver']}. Medians; some rows and columns of each "
        "product were compared with NumPy's, bit for bit."
    )
    if of_host:
        source += (
            f" python-flint {of_host['versions']['python-flint']} ran with {of_host['threads']} threads on the host, "
            f"{of_host['device']}; medians of three."
        )
    else:
        source += " python-flint was not installed there."
    return "\n".join((*lines, source)) + "\n"


def tflops(n: int, seconds: float) -> float:
    """The speed of a product of square matrices, in 10**12 operations a second."""
    return 2e-12 * n**3 / seconds


if __name__ == "__main__":
    typer.run(main)
