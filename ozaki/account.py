"""Accounts: the products that ozaki computed, with which bounds; of an emulation also what ran natively instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, ldexp, nextafter
from threading import Lock
from typing import Any, NamedTuple

from ozaki._operands import broadcast
from ozaki._report import Report, rounded_up, several

__all__ = ["Account", "Entry", "Ran"]


class Ran(NamedTuple):
    """How a result was computed, and what is proven of it.

    Attributes
    ----------
    how
        "14 residues", "native product", "2 corrections"; empty where that is unknown.
    dtype
        The format of the result: "float64", "mp106", ...
    measure
        Of the bound.
    bound
        In units of 2**exponent; inf: nothing is proven; None: not known.
    exponent
        0, unless the bound may be below the range of a float.
    """

    how: str
    dtype: str
    measure: str
    bound: float | None
    exponent: int = 0

    @property
    def proven(self) -> str:
        """The bound in words, rounded up; empty if it is not known."""
        if self.bound is None:
            return ""
        bound = rounded_up(self.bound, self.exponent)
        return "no bound" if self.bound == inf else f"{self.measure} error <= {bound}"


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
        The largest bound that was proven for one of them (inf: nothing is), in units of 2**exponent; None where it is
        not known, as without reports.
    measure
        Of the bound.
    exponent
        0, unless the bound may be below the range of a float.
    """

    operator: str
    batch: tuple[int, ...]
    shape: tuple[int, int, int]
    dtype: str
    count: int
    how: str
    bound: float | None
    measure: str
    exponent: int = 0

    def __str__(self) -> str:
        stack = "".join(f"{size} x " for size in self.batch)
        m, k, n = self.shape
        proven = Ran(self.how, self.dtype, self.measure, self.bound, self.exponent).proven
        sizes = f"{stack}({m} x {k}) ({k} x {n})"
        columns = (
            f"{self.operator} ".ljust(10),
            f"{sizes} ".ljust(32),
            f"{self.dtype} ".ljust(12),
            f"{self.how} ".ljust(20),
        )
        return f"{self.count:>7}  {''.join(columns)}{proven}".rstrip()


class Account:
    """The products of a program, counted; of all blocks that one emulation was entered for.

    Attributes
    ----------
    entries : list of Entry
        In the order of the first product of each.
    left : dict of (operator, reason) to a count
        Calls that were left to the array library, which computed them natively: of which operator, and why.
    """

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}
        self._bounds: dict[Any, float] = {}
        self.left: dict[tuple[str, str], int] = {}
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
        return max((_float(bound, key[-1]) for key, bound in self._bounds.items()), default=None)

    def multiply(self, operator: str, a: Any, b: Any, run: Callable[..., Any], with_report: bool) -> Any:
        """The product of a and b that `run` computes, counted; `with_report` it is asked for a report, too."""
        found, report = run(return_report=with_report), None
        if with_report:
            found, report = found
        self.enter(operator, a, b, found, report)
        return found

    def enter(self, operator: str, a: Any, b: Any, c: Any, report: Report | None) -> None:
        """Count a product c of operands a and b."""
        ran = Ran("", str(c.dtype), "", None)
        if report is not None:
            how = way_of(report.native, report.slices, report.scheme)
            ran = Ran(how, str(c.dtype), report.measure, report.bound, report.exponent)
        self.add(operator, tuple(a.shape), tuple(b.shape), ran)

    def add(self, operator: str, left: tuple[int, ...], right: tuple[int, ...], ran: Ran) -> None:
        """Count a product of operands of these shapes."""
        key = operator, left, right, ran.dtype, ran.how, ran.measure, ran.bound is None, ran.exponent
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1
            if ran.bound is not None:
                self._bounds[key] = max(self._bounds.get(key, 0.0), ran.bound)

    def leave(self, operator: str, reason: str) -> None:
        """Count a call of an operator that is left to the array library, which computes it natively."""
        with self._lock:
            self.left[operator, reason] = self.left.get((operator, reason), 0) + 1

    def _entry(self, key: Any) -> Entry:
        operator, left, right, dtype, how, measure, _, exponent = key
        m, k = (1, *left)[-2:]
        n = right[-1] if len(right) > 1 else 1
        name, batch = dtype.removeprefix("torch."), broadcast(left[:-2], right[:-2])
        bound = self._bounds.get(key)
        return Entry(operator, batch, (m, k, n), name, self._counts[key], how, bound, measure, exponent)

    def __str__(self) -> str:
        lines = [f"{several(self.products, 'product')} ran through ozaki", *map(str, self.entries)]
        if self.left:
            left = sum(self.left.values())
            lines.append(f"{several(left, 'operator')} {'was' if left == 1 else 'were'} left alone")
            lines += [f"{count:>7}  {operator}: {reason}" for (operator, reason), count in self.left.items()]
        return "\n".join(lines)


def way_of(native: bool, slices: int, scheme: str) -> str:
    """How a product runs: "native product", "14 residues"."""
    return "native product" if native else f"{slices} {scheme}"


def _float(bound: float, exponent: int) -> float:
    """A bound in units of 2**exponent as a float that is no smaller."""
    found = ldexp(bound, exponent)
    return nextafter(found, inf) if exponent and 0 < bound < inf else found
