"""The account of an emulation: the products that ozaki computed, with which bounds, and what ran natively instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import Any

from ozaki._operands import broadcast
from ozaki._report import Report, rounded_up, several

__all__ = ["Account", "Entry"]


@dataclass(frozen=True)
class Entry:
    """Products of one operator, shape and dtype that ran alike.

    Attributes
    ----------
    operator
        "mm", "addmm", ...
    batch, shape
        Matrices in a stack (shape of the stack), and (m, k, n) of each.
    dtype
        "float64", ...
    count
        How many products, each of the whole stack.
    how
        "14 residues" or "native product"; empty without reports.
    bound
        The largest bound that was proven for one of them (inf: nothing is); None without reports.
    measure
        Of the bound.
    """

    operator: str
    batch: tuple[int, ...]
    shape: tuple[int, int, int]
    dtype: str
    count: int
    how: str
    bound: float | None
    measure: str

    def __str__(self) -> str:
        stack = "".join(f"{size} x " for size in self.batch)
        m, k, n = self.shape
        proven = ""
        if self.bound is not None:
            proven = "no bound" if self.bound == inf else f"{self.measure} error <= {rounded_up(self.bound)}"
        sizes = f"{stack}({m} x {k}) ({k} x {n})"
        return f"{self.count:>7}  {self.operator:<10}{sizes:<32}{self.dtype:<12}{self.how:<20}{proven}".rstrip()


class Account:
    """The products of a program, counted; of all blocks that one emulation was entered for.

    Attributes
    ----------
    entries : list of Entry
        In the order of the first product of each.
    left : dict of (operator, reason) to a count
        Calls that were left to the array library, which computed them natively: of which operator, and why.
    traced : dict of operator to a count
        Products that went into a graph that PyTorch traced, whose calls nobody counts.
    """

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}
        self._bounds: dict[Any, float] = {}
        self.left: dict[tuple[str, str], int] = {}
        self.traced: dict[str, int] = {}
        self._lock = Lock()

    @property
    def entries(self) -> list[Entry]:
        return [self._entry(key) for key in self._counts]

    @property
    def products(self) -> int:
        """How many products ran through `ozaki`."""
        return sum(self._counts.values())

    @property
    def bound(self) -> float | None:
        """The largest bound of all, each in the measure of its product; None without reports."""
        return max(self._bounds.values(), default=None)

    def multiply(self, operator: str, a: Any, b: Any, run: Callable[..., Any], with_report: bool) -> Any:
        """The product of a and b that `run` computes, counted; `with_report` it is asked for a report, too."""
        found, report = run(return_report=with_report), None
        if with_report:
            found, report = found
        self.enter(operator, a, b, found, report)
        return found

    def enter(self, operator: str, a: Any, b: Any, c: Any, report: Report | None) -> None:
        """Count a product c of operands a and b."""
        how = measure = ""
        if report is not None:
            how = "native product" if report.native else f"{report.slices} {report.scheme}"
            measure = report.measure
        key = operator, tuple(a.shape), tuple(b.shape), c.dtype, how, measure
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            if report is not None:
                self._bounds[key] = max(self._bounds.get(key, 0.0), report.bound)

    def leave(self, operator: str, reason: str) -> None:
        """Count a call of an operator that is left to the array library, which computes it natively."""
        with self._lock:
            self.left[operator, reason] = self.left.get((operator, reason), 0) + 1

    def trace(self, operator: str) -> None:
        """Count a product that is written into a traced graph as one of the library's own."""
        with self._lock:
            self.traced[operator] = self.traced.get(operator, 0) + 1

    def _entry(self, key: Any) -> Entry:
        operator, left, right, dtype, how, measure = key
        m, k = (1, *left)[-2:]
        n = right[-1] if len(right) > 1 else 1
        name, batch = str(dtype).removeprefix("torch."), broadcast(left[:-2], right[:-2])
        return Entry(operator, batch, (m, k, n), name, self._counts[key], how, self._bounds.get(key), measure)

    def __str__(self) -> str:
        lines = [f"{several(self.products, 'product')} ran through ozaki", *map(str, self.entries)]
        if self.traced:
            lines.append(f"{several(sum(self.traced.values()), 'product')} went into traced graphs")
            lines += [f"{count:>7}  {operator}" for operator, count in self.traced.items()]
        if self.left:
            left = sum(self.left.values())
            lines.append(f"{several(left, 'operator')} {'was' if left == 1 else 'were'} left alone")
            lines += [f"{count:>7}  {operator}: {reason}" for (operator, reason), count in self.left.items()]
        return "\n".join(lines)
