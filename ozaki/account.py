"""Accounts: the products that ozaki computed, with which bounds; of an emulation also what ran natively instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp, inf, ldexp, nextafter
from typing import Any, NamedTuple

from ozaki.locks import Lock
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.formats import MULTIPRECISION
from ozaki.records.report import Report, rounded_up, several
from ozaki.records.shapes import broadcast

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
        "float64", ...; "mp106" of multiprecision numbers of 106 bits.
    count
        How many products, each of the whole stack.
    how
        "14 residues" or "native product"; empty without reports.
    bound
        The largest bound that was proven for one of them, in units of 2**exponent (inf: nothing is); None where it is
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
        return lines_of([self])[0]

    def _columns(self) -> tuple[str, str, str, str]:
        stack = "".join(f"{size} x " for size in self.batch)
        m, k, n = self.shape
        return self.operator, f"{stack}({m} x {k}) ({k} x {n})", self.dtype, self.how


def lines_of(entries: list[Entry]) -> list[str]:
    """Entries in words, each a line, in columns that stand below one another."""
    rows = [entry._columns() for entry in entries]
    columns = zip(_WIDTHS, *rows, strict=True)
    widths = [max([least, *(len(text) + 1 for text in texts)]) for least, *texts in columns]
    lines = []
    for entry, row in zip(entries, rows, strict=True):
        padded = "".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        proven = proven_in_words(entry.measure, entry.bound, entry.exponent)
        lines.append(f"{entry.count:>7}  {padded}{proven}".rstrip())
    return lines


_WIDTHS = 10, 32, 12, 20
"""Least widths of the columns of a line: operator, sizes, dtype, and how it ran."""


class _Products(NamedTuple):
    """How many products there were of one key, and the largest bound of them, in units of 2**exponent."""

    number: int = 0
    bound: float | None = None
    exponent: int = 0

    def with_one(self, ran: Ran) -> _Products:
        """These and one more product."""
        more = self._replace(number=self.number + 1)
        if ran.bound is None or (self.bound is not None and self.size >= _size(ran.bound, ran.exponent)):
            return more
        return more._replace(bound=ran.bound, exponent=ran.exponent)

    @property
    def size(self) -> tuple[bool, bool, int, float]:
        return _size(self.bound or 0.0, self.exponent)


def _size(bound: float, exponent: int) -> tuple[bool, bool, int, float]:
    """What bounds in units of different powers of two are compared by."""
    fraction, power = frexp(bound)
    return bound == inf, bound > 0, power + exponent, fraction


class Account:
    """The products of a program, counted; of all blocks that one emulation was entered for.

    Threads may count and read at the same time: each reading is of one moment.

    Parameters
    ----------
    unseen : str
        What no count here tells of: the closing line of the account. Empty: it has none.

    Attributes
    ----------
    entries : list of Entry
        In the order of the first product of each.
    left : dict of (operator, reason) to a count
        Calls that were left to the array library, which computed them natively: of which operator, and why; a copy.
    traced : dict of operator to a count
        Products that went into a graph that PyTorch traced, whose calls nobody counts; a copy.
    outside : int
        Calls that the array library computed natively while a block was open, since the thread or task that made them
        was in no block.
    """

    def __init__(self, unseen: str = "") -> None:
        self._unseen = unseen
        self._lock = Lock()
        self._products: dict[Any, _Products] = {}
        self._left: dict[tuple[str, str], int] = {}
        self._traced: dict[str, int] = {}
        self._outside = 0

    @property
    def entries(self) -> list[Entry]:
        with self._lock.held:
            products = dict(self._products)
        return [_entry(key, of) for key, of in products.items()]

    @property
    def traced(self) -> dict[str, int]:
        with self._lock.held:
            return dict(self._traced)

    @property
    def left(self) -> dict[tuple[str, str], int]:
        with self._lock.held:
            return dict(self._left)

    @property
    def outside(self) -> int:
        return self._outside

    @property
    def products(self) -> int:
        """How many products ran through `ozaki`."""
        return sum(entry.count for entry in self.entries)

    @property
    def bound(self) -> float | None:
        """The largest bound of all, each in the measure of its product; None without reports.

        One below the range of a float is rounded up.
        """
        with self._lock.held:
            proven = [of for of in self._products.values() if of.bound is not None]
        if not proven:
            return None
        largest = max(proven, key=lambda of: of.size)
        found = ldexp(largest.bound or 0.0, largest.exponent)
        return found if _size(found, 0) >= largest.size else nextafter(found, inf)

    def multiply(self, operator: str, a: Any, b: Any, run: Callable[..., Any], with_report: bool) -> Any:
        """The product of a and b that `run` computes, counted; `with_report` it is asked for a report, too."""
        found, report = run(return_report=with_report), None
        if with_report:
            found, report = found
        self.enter(operator, a, b, found, report)
        return found

    def enter(self, operator: str, a: Any, b: Any, c: Any, report: Report | None) -> None:
        """Count a product c of operands a and b."""
        dtype = f"{MULTIPRECISION}{c.bits}" if isinstance(c, Numbers) else str(c.dtype).removeprefix("torch.")
        ran = Ran("", dtype, "", None)
        if report is not None:
            how = way_of(report.native, report.slices, report.scheme)
            bound = None if report.rounded_once is False else report.bound  # else it is that of A B alone
            ran = Ran(how, dtype, report.measure, bound, report.exponent)
        self.add(operator, tuple(a.shape), tuple(b.shape), ran)

    def add(self, operator: str, left: tuple[int, ...], right: tuple[int, ...], ran: Ran) -> None:
        """Count a result of operands of these shapes; those whose bound is known have an entry of their own."""
        key = operator, left, right, ran.dtype, ran.how, ran.measure, ran.bound is None
        with self._lock.held:
            self._products[key] = self._products.get(key, _Products()).with_one(ran)

    def leave(self, operator: str, reason: str) -> None:
        """Count a call of an operator that is left to the array library, which computes it natively."""
        with self._lock.held:
            self._left[operator, reason] = self._left.get((operator, reason), 0) + 1

    def trace(self, operator: str) -> None:
        """Count a product that is written into a traced graph as one of the library's own."""
        with self._lock.held:
            self._traced[operator] = self._traced.get(operator, 0) + 1

    def pass_by(self) -> None:
        """Count a call in a thread or task that is in no block."""
        with self._lock.held:
            self._outside += 1

    def __str__(self) -> str:
        with self._lock.held:
            products, traced, left = dict(self._products), dict(self._traced), dict(self._left)
            outside = self._outside
        lines = [f"{several(sum(of.number for of in products.values()), 'product')} ran through ozaki"]
        lines += lines_of([_entry(key, of) for key, of in products.items()])
        if traced:
            lines.append(f"{several(sum(traced.values()), 'product')} went into traced graphs")
            lines += [f"{count:>7}  {operator}" for operator, count in traced.items()]
        if left:
            count = sum(left.values())
            lines.append(f"{several(count, 'operator')} {'was' if count == 1 else 'were'} left alone")
            lines += [f"{count:>7}  {operator}: {reason}" for (operator, reason), count in left.items()]
        if outside:
            lines.append(
                f"{several(outside, 'call')} of other threads or tasks ran natively: `emulate` says how to hand them "
                "the block"
            )
        return "\n".join([*lines, f"not seen: {self._unseen}"] if self._unseen else lines)


def _entry(key: Any, of: _Products) -> Entry:
    operator, left, right, dtype, how, measure, _ = key
    m, k = (1, *left)[-2:]
    n = right[-1] if len(right) > 1 else 1
    batch = broadcast(left[:-2], right[:-2])
    return Entry(operator, batch, (m, k, n), dtype, of.number, how, of.bound, measure, of.exponent)


def proven_in_words(measure: str, bound: float | None, exponent: int) -> str:
    """A bound, rounded up, in units of 2**exponent: "componentwise error <= 1.2e-16"; empty if it is not known."""
    if bound is None:
        return ""
    return "no bound" if bound == inf else f"{measure} error <= {rounded_up(bound, exponent)}"


def way_of(native: bool, slices: int, scheme: str) -> str:
    """How a product runs: "native product", "14 residues"."""
    return "native product" if native else f"{slices} {scheme}"
