"""Multiprecision products on a CPU beside python-flint: `python -m benchmarks.multiprecision`.

Both multiply square matrices with full significands in their own form: `MPArray` with NumPy's BLAS, `arb_mat` in one
thread, as it runs by itself. Writes the medians to benchmarks/results/multiprecision/ and the table in
docs/multiprecision.md.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
import typer

import ozaki
from benchmarks.conversions import median
from benchmarks.devices import Cpu
from benchmarks.results import RESULTS, ROOT, git_commit
from ozaki._accuracy import Accuracy
from ozaki.planning.search import likely_schemes

BEGIN, END = "<!-- multiprecision:begin -->", "<!-- multiprecision:end -->"

FOLDER = RESULTS / "multiprecision"
DOCUMENT = ROOT / "docs" / "multiprecision.md"

BITS = 106, 212, 512, 1024


def main(n: Annotated[int, typer.Option(help="Rows and columns.")] = 1000) -> None:
    """Measure, write the results, and put the table into the document."""
    rng = np.random.default_rng(0)
    rows = [measured(rng, n, bits) for bits in BITS]
    now = datetime.now(UTC)
    result = {
        "date": now.isoformat(timespec="seconds"),
        "commit": git_commit(),
        "device": Cpu().name,
        "versions": {name: version(name) for name in ("numpy", "python-flint")},
        "n": n,
        "rows": rows,
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{now:%Y-%m-%d-%H%M}-cpu.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8"), newest()), encoding="utf-8")


def measured(rng: np.random.Generator, n: int, bits: int) -> dict[str, Any]:
    """Seconds of both libraries for one number of bits."""
    import flint

    count = -(-bits // 53)
    a, b = (
        ozaki.mparray(tuple(rng.standard_normal((n, n)) * 2.0 ** (-54 * w) for w in range(count))) for _ in range(2)
    )
    _, report = ozaki.matmul(a, b, accuracy=bits, return_report=True)
    flint.ctx.prec = bits
    whole = rng.integers(-(2**62), 2**62, (n, n)).tolist()
    x = flint.arb_mat([[flint.arb(value) for value in row] for row in whole]) * flint.arb(3).sqrt()
    row = {
        "bits": bits,
        "products": report.products,
        "ozaki": median(lambda: ozaki.matmul(a, b, accuracy=bits)),
        "arb_mat": median(lambda: x * x),
    }
    print(row, flush=True)
    return row


def newest() -> dict[str, Any]:
    """The newest result file."""
    result: dict[str, Any] = json.loads(max(FOLDER.glob("*.json")).read_text(encoding="utf-8"))
    return result


def with_table(text: str, result: dict[str, Any]) -> str:
    """The document with the table between its markers replaced."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(result)}\n{END}{rest.partition(END)[2]}"


def table(result: dict[str, Any]) -> str:
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


if __name__ == "__main__":
    typer.run(main)
