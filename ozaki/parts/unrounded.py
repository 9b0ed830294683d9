"""The un-rounded product of parts: exact integers, which are added and rounded once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ozaki.backends.numpy import backend
from ozaki.backends.parts import empty_at, parts_at
from ozaki.bounds.of_scheme import rows_bound
from ozaki.call.format_checks import format_of_parts
from ozaki.parts.rows import Rows, as_rows
from ozaki.planning.asking import question_of
from ozaki.planning.checks import check_engine, check_options
from ozaki.planning.choose import choose
from ozaki.planning.facts import Facts, InnerRange, Need, RowsBound, Spans, settle
from ozaki.planning.for_shapes import plan_for_shapes
from ozaki.process.environment import default_environment
from ozaki.process.placement import on_gpu, where_they_lie
from ozaki.records.formats import HALVES, is_complex
from ozaki.records.options import Options, ProductOptions, takes
from ozaki.records.plan import Plan
from ozaki.records.shapes import COMPLEX, REAL, length_of, shapes
from ozaki.schemes import ComplexResidues


class Unrounded:
    """The exact product of the images of some rows of A and columns of B, over the inner indices added so far.

    It is A B in fixed point: integers in units that the rows' exponents give. Nothing was rounded yet but each element,
    once, to its image. `ozaki.parts.multiply` makes one, in host memory or on the GPU on which its operands lie; those
    of the same plan and rows that lie there may be added. It may be pickled: what lay on a GPU arrives on CuPy's
    current device.

    Attributes
    ----------
    shape : (m, n)
    plan : Plan
        Whose slices were multiplied.
    """

    def __init__(
        self,
        plan: Plan,
        product: Any,
        touched: Any,
        shape: tuple[int, int],
        indices: int,
    ) -> None:
        self.plan, self.shape = plan, shape
        self._product, self._touched, self._indices = product, touched, indices

    def __getstate__(self) -> dict[str, Any]:
        """All but the engine, which holds a compiled library."""
        of = self._product
        product = of.mu, of.nu, of.sums, of.terms, type(of.engine).__name__
        return {**self.__dict__, "_product": product}

    def __setstate__(self, state: dict[str, Any]) -> None:
        mu, nu, sums, terms, name = state["_product"]
        parts = parts_at(mu)
        engine = _engine_of(state["plan"], parts)
        if type(engine).__name__ != name:
            raise RuntimeError(
                f"engine: {name} there, {type(engine).__name__} here, whose sums are other integers; name one that all "
                "have in the plan, as engine='float64'"
            )
        self.__dict__.update(state, _product=parts.PartialProduct(engine, mu, nu))
        if sums is not None:
            self._product.add(sums, terms)

    @property
    def arrays(self) -> list[Any]:
        """Arrays that may be added to those of other parts, element by element, by whatever adds exactly (MPI.SUM).

        They are the memory of the product itself: what is added in place, as MPI.IN_PLACE does, is in the product. The
        first one is int32, int64 or float64 and holds integers: residues modulo each number, or digits. The others, of
        rows and columns with NaN or Inf, are float64. Parts of the same plan and rows have arrays of the same shapes,
        all in host memory or all on GPUs, where they are arrays of CuPy and hold other integers.
        """
        with self._there():
            return [self._product.wide_sums(), *self._touched.totals]

    def add(self, other: Unrounded) -> Unrounded:
        """Add another part of k, of the same plan, rows and columns; returns this one.

        Raises
        ------
        TypeError, ValueError
            If it is none, one of another plan or shape, or has indices that were added before.
        """
        if not isinstance(other, Unrounded):
            raise TypeError(f"other: {type(other).__name__}; expected an Unrounded, as ozaki.parts.multiply returns it")
        if self.plan != other.plan or self.shape != other.shape:
            raise ValueError(
                f"other: {other.shape} by {other.plan.scheme}; expected {self.shape} by {self.plan.scheme}"
            )
        if self._place != other._place:
            raise ValueError(f"other: {other._place}; expected a part {self._place}, as this one")
        with self._there(), np.errstate(invalid="ignore"):  # Inf - Inf is NaN, as in the product
            self._add(other)
        return self

    def _add(self, other: Unrounded) -> None:
        """Add another part that lies where this one does.

        Raises
        ------
        ValueError
        """
        mine_of, of_other = self._product, other._product
        if not ((mine_of.mu == of_other.mu).all() and (mine_of.nu == of_other.nu).all()):
            raise ValueError("other: of rows or columns with other exponents; expected a part of the same ones")
        if [total.shape for total in self._touched.totals] != [total.shape for total in other._touched.totals]:
            raise ValueError("other: of other rows or columns with NaN or Inf; expected a part of the same ones")
        if self._indices + other._indices > self.plan.shape[1]:
            raise ValueError(
                f"other: {other._indices} inner indices beside {self._indices} of {self.plan.shape[1]}; expected each "
                "to be added once"
            )
        self._indices += other._indices
        if of_other.sums is not None:
            mine_of.add(of_other.copy().sums if mine_of.sums is None else of_other.sums, of_other.terms)
        for total, more in zip(self._touched.totals, other._touched.totals, strict=True):
            total += more

    @default_environment
    def round(self) -> Any:
        """The product, each entry rounded once to the format of the plan; what was added stays.

        It is an array of NumPy, or one of CuPy on the GPU on which the product lies.
        """
        with np.errstate(all="ignore"), self._there():
            out = empty_at(self._product.mu, self.shape, self.plan.dtype)
            self._product.copy().round_into(out)
            if self._touched.some:
                self._touched.write(out)
        return out

    @property
    def _place(self) -> str:
        """Where it lies, for messages."""
        mu = self._product.mu
        return f"on GPU {mu.data.device_id}" if on_gpu(mu) else "in host memory"

    def _there(self) -> AbstractContextManager[Any]:
        """A context in which its GPU is CuPy's current one."""
        return where_they_lie((("the product", self._product.mu),))


@default_environment
def multiply(a: Any, b: Any, left: Rows, right: Rows, plan: Plan) -> Unrounded:
    """Multiply a part of the inner dimension, without rounding.

    Parameters
    ----------
    a : array of NumPy or CuPy, shape (m, indices), float32, float64, complex64 or complex128
    b : array of the same library, shape (indices, n), real or complex as a
        Both at the same inner indices, which need not be neighbours; of CuPy on one GPU.
    left, right : Rows
        The descriptions of the rows of A and the columns of B that a and b have a part of: `rows[slice]` of a tile.
    plan : Plan
        Of residues or digits, for the whole product's inner dimension, as `ozaki.plan` makes it for two shapes, or
        `ozaki.parts.plan`: the same for all parts.

    Returns
    -------
    Unrounded

    Raises
    ------
    TypeError, ValueError
        For parts that do not fit one another, the rows or the plan.
    NotImplementedError
        For a plan of digits of complex operands, and on a GPU for slices that it does not multiply in parts.

    Notes
    -----
    The rounded sum of all parts has the bits of `ozaki.matmul` of the whole matrices by this plan, and its bound. On
    GPUs they are the same; a plan's engine has to be "auto" there, or one of CuPy's.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> from ozaki import parts
    >>> a, b = np.random.default_rng(0).standard_normal((2, 6, 6))
    >>> cuts = slice(0, 2), slice(2, 6)
    >>> both = [[(x[:, at], "left") for at in cuts] if x is a else [(x[at], "right") for at in cuts] for x in (a, b)]
    >>> merged = [np.maximum(*(parts.extremes(*part) for part in of)) for of in both]
    >>> added = [sum(parts.sums(*part, top, 6) for part in of) for of, top in zip(both, merged)]
    >>> left, right = (parts.describe(top, sums, 6, "float64") for top, sums in zip(merged, added))
    >>> plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme="residues", slices=14)
    >>> first, second = (parts.multiply(a[:, at], b[at], left, right, plan) for at in cuts)
    >>> np.array_equal(second.add(first).round(), ozaki.matmul(a, b, plan=plan))
    True
    """
    x, y = as_rows("a", a, "left"), as_rows("b", b, "right")
    _check(x, y, left, right, plan)
    scheme: Any = plan.scheme
    rows, cols = left.description, right.description
    with np.errstate(all="ignore"), where_they_lie((("a", a), ("b", b))):
        if on_gpu(x):
            _check_on_gpu(plan)
        product, touched = parts_at(x).begin(scheme, plan.engine, rows, cols, plan.parts == COMPLEX)
        product.add_product(x, y, (not rows.nonfinite.any(), not cols.nonfinite.any()))
        if touched.some:
            touched.add(x[0], y[0])
    return Unrounded(plan, product, touched, (len(left), len(right)), x.shape[2])


def _engine_of(plan: Plan, parts: Any) -> Any:
    """What multiplies the slices of a plan, and rounds their sums, by a module of parts."""
    scheme: Any = parts.sliced(plan.scheme)
    return parts.engine_for(scheme, length_of(plan.shape[1], plan.parts), plan.engine)


def _check(x: Any, y: Any, left: Rows, right: Rows, plan: Plan) -> None:
    """Refuse parts that do not fit.

    Raises
    ------
    TypeError, ValueError
    """
    _check_rows(left, right)
    if on_gpu(x) != on_gpu(y):
        places = ["on a GPU" if on_gpu(each) else "in host memory" for each in (x, y)]
        raise ValueError(f"b: {places[1]}, but a {places[0]}; expected both in one place")
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: {type(plan).__name__}; expected a Plan, as ozaki.plan returns it")
    for name, rows, of in (("a", x, left), ("b", y, right)):
        if rows.shape[1] != len(of):
            raise ValueError(f"{name}: {rows.shape[1]} rows or columns; expected {len(of)}, those of its Rows")
        if str(rows.dtype) != of.dtype:
            raise TypeError(f"{name}: dtype {rows.dtype}; expected {of.dtype}, that of its Rows")
    if x.shape[2] != y.shape[2]:
        raise ValueError(f"b: {y.shape[2]} inner indices; expected {x.shape[2]}, those of a")
    if x.shape[2] > left.k:
        raise ValueError(f"a: {x.shape[2]} inner indices; expected no more than {left.k}, the whole product's")
    others = plan.inner_scaling or plan.undecided_apart or plan.batch or plan.dtype in HALVES
    if plan.scheme is None or not plan.scheme.exact or others:
        raise ValueError("plan: expected one of residues or digits alone, of two matrices, with inner_scaling=False")
    if left.k != plan.shape[1]:
        raise ValueError(f"plan: for inner dimension {plan.shape[1]}; expected {left.k}, that of left and right")
    if plan.parts == COMPLEX and not isinstance(plan.scheme, ComplexResidues):
        raise NotImplementedError("plan: digits of complex operands are not multiplied in parts; use residues")
    if (plan.parts == COMPLEX) != (x.dtype.kind == "c") or (plan.parts == COMPLEX) != (y.dtype.kind == "c"):
        raise TypeError(f"plan: for {plan.dtype}; expected one for {x.dtype} and {y.dtype}")


def _check_on_gpu(plan: Plan) -> None:
    """Refuse a plan whose slices the current device does not multiply in parts.

    Raises
    ------
    ValueError, NotImplementedError
    """
    from ozaki.backends.cupy import backend as cupy
    from ozaki.backends.cupy import parts

    scheme: Any = plan.scheme
    check_engine(plan.engine, cupy)
    if (obstacle := parts.obstacle(scheme, plan.engine)) is not None:
        raise NotImplementedError(
            f"plan: {obstacle}, whose parts are not multiplied on GPUs; move them with cupy.asnumpy"
        )


def _check_rows(left: Any, right: Any) -> None:
    """Refuse what is no description of rows, and those of different inner dimensions.

    Raises
    ------
    TypeError, ValueError
    """
    for name, of in (("left", left), ("right", right)):
        if not isinstance(of, Rows):
            raise TypeError(f"{name}: {type(of).__name__}; expected Rows, as ozaki.parts.describe returns them")
    if left.k != right.k:
        raise ValueError(f"right: for inner dimension {right.k}; expected {left.k}, that of left")


_NO_NATIVE = "native product ruled out: what it has of parts does not add up exactly"


@takes(ProductOptions)
def plan(left: Rows, right: Rows, **options: Unpack[ProductOptions]) -> Plan:
    """The plan that `ozaki.plan` makes of the whole matrices, from descriptions alone.

    Parameters
    ----------
    left, right : Rows
        Of all rows of A and all columns of B, both real or both complex.
    **options
        As for `ozaki.plan`; of a count of slices without an accuracy, as for its plan of two shapes. An accuracy has to
        be one that descriptions prove: in the row-column or normwise measure, or "exact". A componentwise one takes
        products of magnitudes: `ozaki.distributed.matmul` merges these, too. The native product, words,
        verify=True, inner_scaling=True and workspace_limit are not for parts.

    Returns
    -------
    Plan
        The same for all parts, since it depends on what is merged alone, wherever they lie: GPUs take it, too.

    Raises
    ------
    ValueError, TypeError
        For an accuracy that descriptions do not prove, an option that is not for parts, or rows that do not fit.
    NotImplementedError
        For an engine or a scheme that does not run here.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> from ozaki import parts
    >>> def rows(x, side):
    ...     top = parts.extremes(x, side)
    ...     return parts.describe(top, parts.sums(x, side, top, 6), 6, "float64")
    >>> a, b = np.random.default_rng(0).standard_normal((2, 6, 6))
    >>> parts.plan(rows(a, "left"), rows(b, "right"), accuracy=ozaki.Accuracy("row-column", 1e-9)).slices
    9
    """
    asked = Options.of("plan", options)
    check_options(asked, backend)
    for name in ("verify", "inner_scaling", "workspace_limit"):
        if getattr(asked, name):
            raise ValueError(f"{name}: {getattr(asked, name)!r}; not for products in parts: leave it out")
    if asked.scheme == "native":
        raise ValueError("scheme: 'native'; expected 'auto', 'residues' or 'digits', whose parts add up exactly")
    _check_rows(left, right)
    dtype = format_of_parts(asked.dtype, (left.dtype, right.dtype))
    sizes = shapes((len(left), left.k), (right.k, len(right)))
    sizes = replace(sizes, parts=COMPLEX if is_complex(dtype) else REAL)
    if asked.slices is not None and asked.accuracy is None:
        return plan_for_shapes(sizes, dtype, asked._replace(reproducible=True))
    question = question_of(
        sizes, dtype, asked._replace(reproducible=True, inner_scaling=False), backend.machine(),
        for_operands=True, expression=True, parts_obstacle=_NO_NATIVE,
    )  # fmt: skip
    description = left.description, right.description
    spans = tuple(int((of.top - of.bottom).max(initial=0)) for of in description)

    def measure(need: Need, _facts: Facts) -> Any:
        match need:
            case Spans():
                return spans
            case RowsBound(scheme, of, exponent):
                return rows_bound(*description, scheme, of, (spans[0], spans[1]), exponent)
            case InnerRange():
                return 0
        raise ValueError(
            "accuracy: not proven by descriptions alone, as no componentwise or relative one is (shorthands and the "
            "default are componentwise); expected Accuracy('row-column', ...), Accuracy('normwise', ...) or 'exact'"
        )

    made, _ = settle(lambda facts: choose(question, facts), measure, Facts())
    return made
