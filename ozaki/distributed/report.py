"""The report of a product of many processes."""

from __future__ import annotations

from dataclasses import dataclass

from ozaki.distributed.moving import Account
from ozaki.distributed.sharing import Sharing
from ozaki.records.plan import Plan
from ozaki.records.report import bytes_in_words, power_of_two, priced, rounded_up


@dataclass(frozen=True)
class ProcessReport:
    """What one process did in a product.

    Attributes
    ----------
    rank : its number
    tile : first and last row and column of the tile of C that it computed: ((first, end), (first, end))
    inner : the inner indices of its layer: (first, end)
    computed, waited : seconds in which it split, multiplied and rounded, and in which it waited for others
    received, sent : bytes of messages
    """

    rank: int
    tile: tuple[tuple[int, int], tuple[int, int]]
    inner: tuple[int, int]
    computed: float
    waited: float
    received: int
    sent: int

    def __str__(self) -> str:
        (row, row_end), (col, col_end) = self.tile
        return (
            f"process {self.rank}: rows {row} to {row_end}, columns {col} to {col_end}, inner indices {self.inner[0]} "
            f"to {self.inner[1]}; computed {self.computed:.3g} s, waited {self.waited:.3g} s, received "
            f"{bytes_in_words(self.received)}"
        )


def process_report(sharing: Sharing, rank: int, account: Account) -> ProcessReport:
    """The report of a process, from its account of a product."""
    (rows, cols), inner = sharing.tile(rank), sharing.inner(rank)
    tile = (rows.start, rows.stop), (cols.start, cols.stop)
    done = account.computed, account.waited, account.received, account.sent
    return ProcessReport(rank, tile, (inner.start, inner.stop), *done)


@dataclass(frozen=True)
class DistributedReport:
    """The account of a product of many processes; the same on all of them.

    Attributes
    ----------
    plan : the plan that ran: scheme, count, target
    bound : proven error in the measure of `plan.target`, the rounding to the output included, in units of
        2**plan.target.exponent; inf where nothing is proven
    sharing : who computed what
    engine : what multiplied slices
    nonfinite : number of rows of A and columns of B with NaN or Inf; entries that they touch have no bound
    rounded_once : of `gemm`: True, alpha A B + beta C is rounded once; None of a product
    processes : what each process did
    """

    plan: Plan
    bound: float
    sharing: Sharing
    engine: str
    nonfinite: int
    rounded_once: bool | None
    processes: tuple[ProcessReport, ...]

    def __str__(self) -> str:
        plan, grid = self.plan, self.sharing.grid.shape
        assert plan.scheme is not None
        bound = rounded_up(self.bound, plan.target.exponent)
        before = power_of_two(plan.unrounded_bound, plan.target.exponent)
        proven = f"proven: {plan.target.measure} error <= {bound} ({before} before the rounding to the output)"
        lines = [
            f"{priced(plan.slices, plan.scheme.name, plan.products)}, on {self.sharing.size} processes: {grid[0]} x "
            f"{grid[1]} tiles, {self.sharing.layers} of k, by {self.engine}",
            "proven: exact" if self.bound == 0 else "no error bound" if self.bound == float("inf") else proven,
            plan.why,
            *map(str, self.processes),
            "same bits for any number of processes, and on every backend",
        ]
        if self.nonfinite:
            lines.append(f"{self.nonfinite} rows or columns with NaN or Inf: entries there follow IEEE 754, no bound")
        return "\n".join(line for line in lines if line)
