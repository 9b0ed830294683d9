"""Entries of multiprecision products against exact integers: `python -m benchmarks.sampled`.

For each precision at least 10,000 entries of products of uniform, graded, cancelling and sparse operands, of odd shapes
with inner dimensions up to 100,000, are compared with the bound that the report states, in exact integers. The numbers
of entries, and the largest share of a bound that an error took, go to benchmarks/results/sampled/.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import ozaki
from benchmarks import row_files
from benchmarks.__main__ import Where
from benchmarks.devices import Cpu, device_of
from benchmarks.measure import WrongAnswerError
from benchmarks.results import RESULTS, git_commit, slug
from ozaki.multiprecision.limbs import LIMB_BITS, limbs_of

BITS = 53, 64, 106, 113, 212, 500, 1024, 3000

KINDS = "uniform", "graded", "cancelling", "sparse"

SHAPES = (61, 101, 43), (37, 2049, 71), (33, 20_001, 35), (19, 100_000, 17)

MOST_PRODUCTS = 3_000_000
"""Most products of elements that are added exactly for a pair of operands: of long rows fewer entries are compared."""

MOST_LIMBS = 2**24
"""Most limbs of an operand: longer inner dimensions are left out where elements have so many."""

FOLDER = RESULTS / "sampled"


def main(
    device: Annotated[Where, typer.Option(help="auto: the GPU where there is one.")] = Where.auto,
    entries: Annotated[int, typer.Option(min=1, help="Least number of entries of each precision.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the operands.")] = 0,
    output: Annotated[
        Path, typer.Option(help="Folder for the JSON file.", show_default="benchmarks/results/sampled")
    ] = FOLDER,
    commit: Annotated[str, typer.Option(help="Of the code.", show_default="what git says")] = "",
) -> None:
    """Compare, write what was found, and end with an error if a bound is broken."""
    where, now = device_of(device.value), datetime.now(UTC)
    on_host = isinstance(where, Cpu)
    rows = [compared(bits, entries, np.random.default_rng([seed, bits]), on_host) for bits in BITS]
    name = "cpu" if on_host else slug(where.name)
    result = {"date": now.isoformat(timespec="seconds"), "commit": commit or git_commit(), "seed": seed, "rows": rows}
    path = output / f"{now:%Y-%m-%d-%H%M}-{name}.json"
    row_files.write(path, result)
    print(path)


def compared(bits: int, entries: int, rng: np.random.Generator, on_host: bool) -> dict[str, Any]:
    """The number of entries of a precision that were compared, and the largest share of a bound that an error took.

    Raises
    ------
    WrongAnswerError
        If an error is larger than its bound.
    """
    begin, count, worst = time.perf_counter(), 0, Fraction(0)
    while count < entries:
        for (m, k, n), kind in cases(bits):
            a, b = operands(rng, m, k, n, bits, kind)
            x, y = (a, b) if on_host else (ozaki.ascupy(a), ozaki.ascupy(b))
            c, report = ozaki.matmul(x, y, accuracy=bits, return_report=True)
            some = rng.permutation(m * n)[: max(MOST_PRODUCTS // k, 1)]
            worst = max(worst, share_of_bound(a, b, ozaki.asnumpy(c), report, some))
            count += len(some)
    if worst > 1:
        raise WrongAnswerError(f"{bits} bits: an error is {float(worst):.3g} times its bound")
    row = {"bits": bits, "entries": count, "share": float(worst), "seconds": round(time.perf_counter() - begin, 1)}
    print(row, flush=True)
    return row


def cases(bits: int) -> Iterator[tuple[tuple[int, int, int], str]]:
    """Shapes (m, k, n) and kinds of operands of a precision."""
    for shape in SHAPES:
        if max(shape[0], shape[2]) * shape[1] * limbs_of(bits) <= MOST_LIMBS:
            for kind in KINDS:
                yield shape, kind


def operands(rng: np.random.Generator, m: int, k: int, n: int, bits: int, kind: str) -> tuple[Any, Any]:
    """Two operands of full significands, m x k and k x n.

    Graded: elements and rows are spread over hundreds of binary orders. Cancelling: the second half of each row of A is
    the negative of the first but for its last limb, and B has two equal halves.
    """
    a, b = drawn(rng, (m, k), bits, kind), drawn(rng, (n, k), bits, kind)
    if kind == "cancelling":
        half = k // 2
        signs, exponents, limbs = a.signs.copy(), a.exponents.copy(), a.limbs.copy()
        signs[:, half : 2 * half], exponents[:, half : 2 * half] = -signs[:, :half], exponents[:, :half]
        limbs[:-1, :, half : 2 * half] = limbs[:-1, :, :half]
        a = ozaki.MPArray(signs, exponents, limbs, bits)
        b = b[:, np.r_[:half, :half, 2 * half : k]]
    return a, b.T


def drawn(rng: np.random.Generator, shape: tuple[int, int], bits: int, kind: str) -> Any:
    """An array of random significands of so many bits, with exponents and zeros of its kind."""
    limbs = rng.integers(0, 2**LIMB_BITS, (limbs_of(bits), *shape), dtype=np.uint32)
    limbs[0] |= np.uint32(2**31)
    limbs[-1] &= np.uint32(2**LIMB_BITS - 2 ** (LIMB_BITS * len(limbs) - bits))
    signs = rng.choice(np.array([-1, 1], np.int8), shape)
    exponents = -rng.geometric(0.5, shape)
    if kind == "graded":
        exponents += rng.integers(-300, 300, shape) + rng.integers(-400, 400, (shape[0], 1))
    if kind == "sparse":
        gone = rng.random(shape) < 0.8
        signs[gone], exponents[gone], limbs[:, gone] = 0, 0, 0
    return ozaki.MPArray(signs, exponents, limbs, bits)


def share_of_bound(a: Any, b: Any, c: Any, report: Any, some: Any) -> Fraction:
    """The largest abs(c_ij - C_ij) / (bound (abs(A) abs(B))_ij) of some entries, by number, in exact integers."""
    left, right, found = (integers(x) for x in (a, b.T, c))
    bound = Fraction(report.bound) * Fraction(2) ** report.exponent
    worst = Fraction(0)
    for i, j in (divmod(int(number), c.shape[1]) for number in some):
        (row, of_row), (column, of_column), (entries, of_entry) = left[i], right[j], found[i]
        products = row * column
        error = abs(Fraction(int(entries[j])) * Fraction(2) ** (of_entry - of_row - of_column) - int(products.sum()))
        if error:
            size = int(np.abs(products).sum())
            worst = max(worst, error / (bound * size) if size else Fraction(2))
    return worst


def integers(x: Any) -> list[tuple[Any, int]]:
    """The rows of a matrix as object arrays of integers, times a power of two each."""
    rows = []
    for row, powers in zip(*x.to_ints(), strict=True):
        pairs = [(int(v), int(e)) for v, e in zip(row, powers, strict=True)]
        least = min((e for v, e in pairs if v), default=0)
        rows.append((np.array([v << e - least if v else 0 for v, e in pairs], object), least))
    return rows


if __name__ == "__main__":
    typer.run(main)
