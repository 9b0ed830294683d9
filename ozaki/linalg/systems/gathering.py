"""Results of a stack put together: those that were found at once, and the ones that were found matrix by matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ozaki.call.operands import holds_complex
from ozaki.driver.watching import reached, step
from ozaki.linalg.common.arrays import array_library, on_host
from ozaki.linalg.common.results import Bounded
from ozaki.linalg.common.targets import Target
from ozaki.linalg.systems.solution import Solution, in_format
from ozaki.linalg.systems.stacks import Solved
from ozaki.multiprecision.numbers import Numbers
from ozaki.multiprecision.objects import mparray

Index = tuple[int, ...]

T = TypeVar("T")
Result = TypeVar("Result", bound=Any)


def gathered(solved: Solved | None, batch: Index, one: Callable[[Index], Solution]) -> Solution:
    """The solution for a matrix, or those for a stack with the leading axes `batch`, of which none is empty.

    Parameters
    ----------
    solved : what was found at once, if anything was tried
    one : finds the solution for the matrix at an index; x has the shape (n, columns)

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, OverflowError
        From `one`; of a stack the message ends with the index.
    """
    if solved is None:
        found = one_by_one(batch, one)
        if not batch:
            return found[0]
        x, bounds = (stacked(each, batch) for each in ([f.x for f in found], [f.error_bounds for f in found]))
        return _solution(x, bounds, len(batch), max(each.iterations for each in found))
    x, bounds, meet, iterations = solved.x, on_host(solved.error_bounds), on_host(solved.reached), solved.steps
    step("correction %d, in float64: enough for %d of %d matrices", iterations, np.count_nonzero(meet), meet.size)
    if not meet.all():
        bounds = bounds.copy()
        for index in map(tuple, np.argwhere(~meet).tolist()):
            with named_in_stack(index):
                single = one(index)
            if not batch:
                return single
            x[index], bounds[index], iterations = single.x, single.error_bounds, max(iterations, single.iterations)
    return _solution(x, bounds, len(batch), iterations)


def one_by_one(batch: Index, one: Callable[[Index], T]) -> list[T]:
    """What a function finds of each matrix of a stack with the leading axes `batch`, in row-major order.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, TypeError, OverflowError
        From `one`; of a stack the message ends with the index.
    """
    found = []
    for index in np.ndindex(batch):
        with named_in_stack(index):
            found.append(one(index))
    return found


def of_each(one: Callable[..., Result], *operands: Any) -> Result:
    """What a function finds of one matrix, or of each matrix of stacks, one after the other, put together.

    Parameters
    ----------
    one : a function of as many matrices, which returns a named tuple
    operands : matrices, or stacks of them, whose leading axes broadcast

    Returns
    -------
    Result
        Of one matrix what the function returns. Of a stack the same kind of tuple: arrays have the leading axes of the
        stack, also `error_bounds` that are no item of the tuple, and in place of numbers there are NumPy arrays with
        these axes alone, but `iterations` is the largest. What else there is, as None, is that of the first matrix. Of
        a stack without matrices, shapes and dtypes are those that the function finds for the identity.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, TypeError, OverflowError
        From the function; of a stack the message ends with the index.
    """
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in operands))
    if not batch:
        return one(*operands)
    if 0 in batch:
        return _together([one(*map(_identity, operands))], batch)
    return _together(one_by_one(batch, lambda index: one(*(x[place(x, index)] for x in operands))), batch)


def with_the_rest(found: Result, met: npt.NDArray[np.bool_], one: Callable[[Any], Result], a: Any) -> Result:
    """What was found at once of a matrix, or of a stack, with what `one` finds of each that does not meet the target.

    Parameters
    ----------
    found : as of `of_each`; arrays may change
    met : NumPy array of bools, shape (...): which matrices meet the target
    one, a : as of `of_each`, a function of one operand, and that

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError, TypeError, OverflowError
        From `one`; of a stack the message ends with the index.
    """
    step("found at once: %d of %d matrices", np.count_nonzero(met), met.size)
    iterations = found.iterations if met.any() else 0
    for index in map(tuple, np.argwhere(~met).tolist()):
        with named_in_stack(index):
            single = one(a[index])
        if not index:
            return single
        for name in _names(found) - {"iterations"}:
            if hasattr(each := getattr(found, name), "shape"):
                each[index] = getattr(single, name)
        iterations = max(iterations, single.iterations)
    completed: Result = found._replace(iterations=iterations)
    return completed


def logged(found: Result, a: Any, x: Any, measure: str) -> Result:
    """`reached`, where x has a number or a vector for each matrix of a, not a matrix.

    Of a stack these are logged and recorded as matrices of one column, so that axes before these are leading ones.
    """
    axes = np.ndim(found.error_bound)
    missing = axes + 2 - x.ndim if axes else 0
    return reached(found, a.shape, x[(..., *[None] * missing)] if missing else x, measure)


def _identity(like: Any) -> Any:
    """A matrix with ones on its diagonal, of the shape and the dtype of those of a stack."""
    xp = array_library(like)
    if isinstance(like, Numbers):
        return mparray(xp.eye(*like.shape[-2:], dtype="complex128" if like.is_complex else "float64"))
    return xp.eye(*like.shape[-2:], dtype=like.dtype)


def _together(found: list[Result], batch: Index) -> Result:
    """As `of_each`, of results in row-major order; of a stack without matrices one that has the kinds and shapes."""
    first = found[0]

    def joined(name: str) -> Any:
        each = [getattr(one, name) for one in found]
        if name == "iterations":
            return 0 if 0 in batch else max(each)
        if isinstance(each[0], int | float):
            return np.array(each)[: prod(batch)].reshape(batch)
        return stacked(each, batch) if hasattr(each[0], "shape") else each[0]

    together: Result = first._replace(**{name: joined(name) for name in _names(first)})
    return together


def _names(found: Any) -> set[str]:
    """The items of a result, and its error bounds that are no item."""
    return {*found._fields, *(("error_bounds",) if isinstance(found, Bounded) else ())}


def stacked(each: list[Any], batch: Index) -> Any:
    """Arrays of one shape as a stack with the leading axes `batch`; where one of these is 0, `each` has one, too."""
    numbers = isinstance(each[0], Numbers)  # which NumPy's functions take
    found = (np if numbers else array_library(each[0])).stack(each)
    return found[: prod(batch)].reshape(batch + each[0].shape)


@contextmanager
def named_in_stack(index: Index) -> Iterator[None]:
    """Errors about a matrix of a stack say which one it is."""
    try:
        yield
    except (np.linalg.LinAlgError, ValueError, TypeError, OverflowError) as error:
        if not index:
            raise
        raise type(error)(f"{error} (matrix {[*index]} of the stack)") from None


def _solution(x: Any, bounds: Any, axes: int, iterations: int) -> Solution:
    """A solution whose first axes are those of a stack; its bound is the largest one of each matrix."""
    largest = bounds.max(axis=tuple(range(axes, bounds.ndim)))
    return Solution.of(x, largest if axes else float(largest), iterations, error_bounds=bounds)


def place(x: Any, index: Index) -> Index:
    """Where a stack x has the matrix that broadcasting puts at an index."""
    sizes = x.shape[:-2]
    return tuple(i if size > 1 else 0 for i, size in zip(index[len(index) - len(sizes) :], sizes, strict=True))


def without_elements(shape: Index, target: Target, *operands: Any) -> Solution:
    """The solution with this shape, which has no element: complex if an operand is, and in their library."""
    batch, of_bounds = shape[:-2], shape if target.measure == "relative" else (*shape[:-2], shape[-1])
    bound = np.zeros(batch) if batch else 0.0
    x = array_library(operands[0]).zeros(shape, complex if any(map(holds_complex, operands)) else float)
    return Solution.of(in_format(x, target.dtype), bound, 0, error_bounds=np.zeros(of_bounds))


def returned(found: Solution, a: Any, target: Target, b: Any = None) -> Solution:
    """A solution as the caller gets it, logged and recorded; of one right-hand side b without an axis of columns."""
    reached(found, a.shape, found.x, target.measure)
    if b is None or b.ndim > 1:
        return found
    bounds = found.error_bounds[..., 0] if target.measure == "relative" else found.error_bounds
    return found._replace(x=found.x[..., 0], error_bounds=bounds)
