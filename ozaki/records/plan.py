"""The plan of a product: which scheme, how many slices, and what is proven."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from ozaki.records.accuracy import Accuracy
from ozaki.records.combination import Combination
from ozaki.records.formats import HALVES, part_of
from ozaki.records.options import Options
from ozaki.records.report import power_of_two, priced, rounded_up, several
from ozaki.records.shapes import COMPLEX, REAL, Parts, Shapes, length_of, real_stack
from ozaki.schemes import ComplexResidues, Scheme, Words, slice_products


@dataclass(frozen=True)
class Candidate:
    """One candidate that planning weighed: the native product, or a scheme with its count of slices.

    Attributes
    ----------
    name
        "native product", "14 residues", "2 words (halfhalf)".
    seconds
        The time that it is expected to take; None if unknown.
    bound
        What it proves in the plan's measure, in units of 2**exponent, the rounding to the output included (inf:
        nothing), unless it over- or underflows; None if planning did not have to find out.
    chosen
        Whether the plan is this candidate.
    verdict
        "chosen", or why it is not.
    exponent
        0, unless the bound may be below the range of a float.
    products
        Number of its slice products; 1 for the native product.
    """

    name: str
    seconds: float | None
    bound: float | None
    chosen: bool
    verdict: str
    exponent: int = 0
    products: int = 1

    def __str__(self) -> str:
        time = "time not known"
        if self.seconds is not None:
            time = f"{1e3 * self.seconds:.3g} ms" if self.seconds < 0.9995 else f"{self.seconds:.3g} s"
        proves = ""
        if self.bound is not None:
            bound = rounded_up(self.bound, self.exponent)
            proves = "proves nothing" if self.bound == inf else f"proves {bound}"
        products = several(self.products, "product")
        return f"{self.name:<22}{products:>13}{time:>16}   {proves:<16} {self.verdict}".rstrip()


@dataclass(frozen=True)
class Plan:
    """How a product will be computed; plain data, equal on every backend, usable as often as wanted.

    Attributes
    ----------
    shape
        (m, k, n).
    batch
        Leading dimensions of the result.
    dtype
        The format of the result: "float32", "complex128", or, of multiprecision numbers of 106 bits, "mp106".
    scheme : Scheme, Words or None
        Digits, Residues or Words, with `name`, `count` of slices and `products`, or None for the native product.
    target : Accuracy
        The accuracy asked for; where a count of slices or the native product was asked for instead, the default
        accuracy, whose measure `bound` is in.
    bound
        What is proven in the target's measure, in units of 2**target.exponent, the rounding to `dtype` included (inf:
        nothing is). The bound of a plan made from operands holds for these operands; that of an a-priori plan, for all
        operands (of a native one, for those where no partial sum over- or underflows).
    unrounded_bound
        What is proven before the rounding to `dtype`, as `bound` else: 0 if the product is exact. That of a native
        product, which is rounded on the way, is `bound`.
    a_priori
        Whether the plan was made without data.
    engine
        Engine asked for, "auto" for the backend's choice.
    workspace_limit
        Bytes, or None.
    why
        The reason for the scheme, as a report shows it.
    strict
        Whether products of other operands are refused where the target is not proven for them; None if the plan
        promises no target: an a-priori plan, whose bound holds for all operands, or one for a scheme or a number of
        slices that was given without an accuracy.
    parts
        Real parts of an element of A and of B: 2 of complex ones.
    inner_scaling
        Whether A S and S^-1 B are sliced in place of A and B, S a diagonal of powers of two that the operands decide
        (docs/definitions.md, 10). The product is the same; rows that are graded along k need fewer slices.
    undecided_apart
        Whether entries that their error leaves undecided when they are rounded are computed apart, by exact inner
        products (docs/bounds.md, B14): then every entry is the exact one, rounded once, for any operands.
    candidates : tuple of Candidate
        What planning weighed, the fastest first; empty unless `ozaki.plan` made the plan from operands.
    """

    shape: tuple[int, int, int]
    batch: tuple[int, ...]
    dtype: str
    scheme: Scheme | Words | None
    target: Accuracy
    bound: float
    unrounded_bound: float
    a_priori: bool
    engine: str = "auto"
    workspace_limit: int | None = None
    why: str = ""
    strict: bool | None = None
    parts: Parts = REAL
    inner_scaling: bool = False
    undecided_apart: bool = False
    candidates: tuple[Candidate, ...] = field(default=(), compare=False, repr=False)

    @property
    def of_real(self) -> Plan:
        """The plan of the real product whose entries are all parts of those of this product."""
        if self.parts == REAL:
            return self
        m, k, n = self.shape
        _, m, n = real_stack((1, m, n), self.parts)
        return replace(self, shape=(m, length_of(k, self.parts), n), dtype=part_of(self.dtype), parts=REAL)

    @property
    def of_complex_slices(self) -> Plan:
        """The plan of the product by slices of complex rows, of a plan of complex residues.

        Shape and parts stay those of complex elements, of which a row has shape[1].
        """
        assert isinstance(self.scheme, ComplexResidues) and self.parts == COMPLEX
        return replace(self, scheme=self.scheme.slices)

    @property
    def native(self) -> bool:
        """Whether the array library's own product runs."""
        return self.scheme is None

    @property
    def reproducible(self) -> bool:
        """Whether every backend gives the same bits."""
        return self.scheme is not None and self.scheme.exact

    def rounds_once(self, combination: Combination) -> bool:
        """Whether this plan rounds alpha A B + beta C once: exact slices do."""
        return self.reproducible and combination.rounds_once

    @property
    def slices(self) -> int:
        """Number of slices of each operand; 0 for the native product."""
        return 0 if self.scheme is None else self.scheme.count

    @property
    def products(self) -> int:
        """Number of slice products; 1 for the native product.

        Of complex residues those of complex slices, also where a backend multiplies real rows of parts instead.
        """
        return slice_products(self.scheme)

    def __str__(self) -> str:
        m, k, n = self.shape
        stack = "".join(f"{b} x " for b in self.batch)
        what = "the native product"
        if self.scheme is not None:
            what = priced(self.slices, self.scheme.name, self.products)
            what += ", with inner scaling" if self.inner_scaling else ""
            what += ", undecided entries apart" if self.undecided_apart else ""
        bound = rounded_up(self.bound, self.target.exponent)
        proven = "no bound" if self.bound == inf else f"{self.target.measure} error <= {bound}"
        if 0 < self.bound < inf and not self.native:
            proven += f" ({power_of_two(self.unrounded_bound, self.target.exponent)} before the rounding)"
        origin = "for any operands" if self.a_priori else "for these operands"
        return f"{stack}({m} x {k}) ({k} x {n}), {self.dtype}: {what}\n{proven}, {origin}" + (
            f"\n{self.why}" if self.why else ""
        )


def plan_of(
    sizes: Shapes,
    dtype: str,
    scheme: Scheme | Words | None,
    target: Accuracy,
    bound: float,
    unrounded_bound: float,
    options: Options,
    why: str,
    *,
    a_priori: bool,
    inner_scaling: bool = False,
    undecided_apart: bool = False,
) -> Plan:
    """The plan of a product of these shapes; what a plan holds of the caller's options is read here alone."""
    return Plan(
        sizes.shape, sizes.batch, dtype, scheme, target, bound, unrounded_bound, a_priori, options.engine,
        options.workspace_limit, why, parts=sizes.parts, inner_scaling=inner_scaling,
        undecided_apart=undecided_apart,
    )  # fmt: skip


def slices_depend_on(plan: Plan) -> tuple[object, ...]:
    """All that a plan holds on which slices of operands depend, whatever multiplies them.

    What else they depend on a backend picks by the rest of a plan: `backends.Backend.same_slices` compares both.
    """
    # Digits of columns, in products rounded to 16 bits, do not depend on the number of rows beside them.
    shape = plan.shape[1:] if plan.dtype in HALVES else plan.shape
    return plan.scheme, plan.engine, shape, plan.parts, plan.inner_scaling


class Chosen(NamedTuple):
    """A plan that is to run, and its bound as far as that is known for the operands.

    Attributes
    ----------
    plan : the plan
    bound : in units of 2**plan.target.exponent, with the rounding to `plan.dtype`; inf: nothing is proven; None: it was
        not found out
    """

    plan: Plan
    bound: float | None
