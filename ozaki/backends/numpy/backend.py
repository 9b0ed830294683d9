"""The backend of arrays in host memory, by NumPy; see `ozaki.backends.Backend` for what each function has to do."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.numpy import _machine
from ozaki.backends.numpy._describe import ROW_BYTES, describe
from ozaki.backends.numpy._describe import describing_bytes as describing_bytes
from ozaki.backends.numpy._execute import Slices
from ozaki.backends.numpy._execute import split as _split
from ozaki.backends.numpy._proof import facts_program
from ozaki.backends.numpy._row_columns import Columns, columns_of
from ozaki.backends.numpy._row_digits import row_digit_steps
from ozaki.backends.numpy._scaled import scaled_alone
from ozaki.backends.numpy._sharing import overlap as overlap
from ozaki.backends.numpy._sharing import same_view as views_are_same
from ozaki.backends.numpy._words import WordSlices, word_program
from ozaki.backends.numpy.engines import compiled_for, engine_of
from ozaki.backends.numpy.engines.row_digits import engine_of_rows
from ozaki.backends.numpy.program import COMPUTING_APART, DESCRIBING, Views, numbered, product_program
from ozaki.backends.numpy.work import Work
from ozaki.bounds.levels import levels
from ozaki.interchange.plain import plain
from ozaki.multiprecision.arithmetic import broadcast_to as broadcast_numbers
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.question import Machine
from ozaki.process import environment
from ozaki.records.formats import DTYPES
from ozaki.records.plan import Plan, slices_depend_on
from ozaki.records.shapes import Side
from ozaki.schemes import ComplexResidues, Scheme, Words
from ozaki.schemes.row_digits import RowDigits

name = "numpy"
work = Work
checks_complex_slices = True
reads_halves = False
engines: tuple[str, ...] = ("float64", "int8", "int8-simulated")
keep = None


asarray = plain
"""The argument of a name, or an array that holds its elements (`backends.Backend.asarray`)."""


def owns(x: Any) -> bool:
    """Whether x is an array of NumPy."""
    return isinstance(x, np.ndarray)


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    """A new array for a result, its elements undefined; of multiprecision numbers zeros."""
    return np.empty(shape, dtype) if dtype in DTYPES else results.empty(shape, dtype, np)


def contiguous(x: npt.NDArray[Any]) -> bool:
    """Whether x is C-contiguous, so that a result can be computed in it."""
    return x.flags.c_contiguous


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """A view of x with its batch repeated."""
    return broadcast_numbers(x, shape) if isinstance(x, Numbers) else np.broadcast_to(x, shape)


def same_view(x: Any, y: Any) -> bool:
    """Whether two arrays are the same elements of the same memory in the same order."""
    return isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and views_are_same(x, y)


def machine() -> Machine:
    """The host, as planning asks about it."""
    return _machine


def native_obstacle(dtype: str) -> str | None:
    """The floating-point setting that makes the native product no IEEE product; None if there is none.

    BLAS computes in threads of its own, whose rounding and subnormals this library does not set to IEEE 754's.
    """
    obstacle = environment.obstacle()
    return f"native product ruled out: {obstacle}" if obstacle else None


def engine_name(plan: Plan, combined: bool = False, in_steps: bool = False) -> str:
    """The engine that multiplies by this plan, as reports name it; of expressions and prepared operands, too."""
    if plan.scheme is None:
        return "NumPy"
    if isinstance(plan.scheme, RowDigits):
        return f"NumPy, {engine_of_rows(plan.scheme, plan.scheme.fewest, max(plan.shape[1], 1)).label}"
    if isinstance(plan.scheme, Words):
        return f"NumPy, model of {plan.scheme.core.name} tensor cores"
    reals = plan.shape[1] * min(plan.parts)
    return f"NumPy, {engine_of(plan.scheme, reals, plan.engine).label}"


def splits_complex(scheme: Scheme | Words | None, engine: str, inner_scaling: bool) -> bool:
    """Whether complex rows are split: for complex residues, but not into the slices of "int8-simulated".

    Where the compiled code has the slices of parts alone, the four products of these take half the time of two by BLAS.
    Rows that are scaled along k have one factor for both parts of an element, so they are split as they are.
    """
    if not isinstance(scheme, ComplexResidues) or engine == "int8-simulated":
        return False
    if inner_scaling or compiled_for(scheme.slices, 2, engine) is not None:
        return True
    return compiled_for(scheme, 2, engine) is None


def steps(plan: Plan) -> str:
    """The steps of a plan, a line each: its programs, for operands that are two arrays of floats.

    Of a plan that promises an accuracy of other operands, too, also how that is proven.
    """
    (m, k, n), batch, scheme = plan.shape, prod(plan.batch), plan.scheme
    if scheme is None:
        return numbered("numpy.matmul         a, b -> c")
    if 0 in (batch, m, k, n):
        return numbered(*DESCRIBING)
    if isinstance(scheme, RowDigits):
        return numbered(*DESCRIBING, *row_digit_steps(scheme))
    if isinstance(scheme, Words):
        return str(word_program(scheme, (batch, m, n), k, plan.workspace_limit))
    reals, limit = k * min(plan.parts), plan.workspace_limit
    proof: tuple[str, ...] = ()
    if limit is not None:
        limit -= ROW_BYTES * batch * (m + n)  # which descriptions take
    proven = plan.strict is not None and not (plan.a_priori or plan.undecided_apart)
    if proven and plan.target.measure == "componentwise":
        proof = facts_program(levels(reals)[0], (batch, m, k), (batch, n, k), limit).steps
    program = product_program(scheme, plan.engine, Views(batch, m, reals, n), limit)
    apart = (COMPUTING_APART,) if plan.undecided_apart else ()
    return numbered(*DESCRIBING, *proof, *program.steps, *apart)


def same_slices(plan: Plan, other: Plan) -> bool:
    """Whether slices for one plan serve another one: nothing else decides how its engine splits."""
    return slices_depend_on(plan) == slices_depend_on(other)


def split(rows: npt.NDArray[Any], side: Side, plan: Plan) -> Slices | WordSlices | Columns:
    """The slices of an operand, shape (batch, rows, k), to be used in many products."""
    if isinstance(plan.scheme, RowDigits):
        return columns_of(plan.scheme, rows, split=True)
    return _split(describe(scaled_alone(rows) if plan.inner_scaling else rows), side, plan)
