"""NumPy's functions that multiply matrices, by their names: their arguments, and their results out of products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ozaki.call.operands import holds_complex
from ozaki.functions.contracting import Multiply, einsum_by, shape_of_einsum, tensordot_by
from ozaki.records.shapes import shapes


class Call(NamedTuple):
    """The arguments of a function.

    Attributes
    ----------
    operands : positional ones, as `run` takes them
    arrays : the operands that are arrays
    options : for `run`
    out : where the result goes, or None
    """

    operands: tuple[Any, ...]
    arrays: tuple[Any, ...]
    options: dict[str, Any]
    out: Any

    def of(self, name: str, arrays: list[Any]) -> Call:
        """The same call of the function of that name with other arrays."""
        operands = {"einsum": (self.operands[0], *arrays), "multi_dot": (arrays,)}.get(name, tuple(arrays))
        return self._replace(operands=operands, arrays=tuple(arrays))


def call_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """A call's arguments; None if there are some that are not known here."""
    try:
        call: Call = _ARGUMENTS[name](*args, **kwargs)
    except TypeError:
        return None
    is_tuple = name == "matmul" and isinstance(call.out, tuple) and len(call.out) == 1  # as ufuncs take it
    return call._replace(out=call.out[0]) if is_tuple else call


def _of_two(a: Any, b: Any, out: Any = None) -> Call:
    return Call((a, b), (a, b), {}, out)


def _of_tensordot(a: Any, b: Any, axes: Any = 2) -> Call:
    return Call((a, b), (a, b), {"axes": axes}, None)


def _of_einsum(subscripts: Any, *operands: Any, out: Any = None, optimize: bool | str = False) -> Call:
    if not isinstance(subscripts, str) or optimize not in (True, False, "greedy", "optimal"):
        raise TypeError
    return Call((subscripts, *operands), operands, {}, out)


def _of_multi_dot(arrays: Any, *, out: Any = None) -> Call:
    chain = tuple(arrays)
    return Call((chain,), chain, {}, out)


_ARGUMENTS: dict[str, Callable[..., Call]] = {
    "matmul": _of_two,
    "dot": _of_two,
    "vdot": lambda a, b: _of_two(a, b),
    "inner": lambda a, b: _of_two(a, b),
    "tensordot": _of_tensordot,
    "einsum": _of_einsum,
    "multi_dot": _of_multi_dot,
}


def run(name: str, call: Call, multiply: Multiply) -> Any:
    """The result of a function of that name, out of products by `multiply`; `call.out` is not written."""
    return _RUN[name](multiply, *call.operands, **call.options)


def shape_of(name: str, call: Call) -> tuple[int, ...]:
    """The shape of the result of a function that takes `out`.

    Raises
    ------
    ValueError
        If the operands do not fit.
    """
    first, last = call.arrays[0].shape, call.arrays[-1].shape
    if name == "matmul":
        return shapes(first, last).result
    if name == "einsum":
        return shape_of_einsum(call.operands[0], call.arrays)
    return (*first[:-1], *last[:-2], *last[-1:]) if len(last) > 1 else tuple(first[:-1])  # of dot and multi_dot


# What runs in place of a function: called with a function that multiplies, and the operands --------------------------


def _product(multiply: Multiply, a: Any, b: Any) -> Any:
    return multiply(a, b)


def _dot(multiply: Multiply, a: Any, b: Any) -> Any:
    return multiply(a, b) if b.ndim < 3 else tensordot_by(a, b, (-1, -2), multiply)


def _vdot(multiply: Multiply, a: Any, b: Any) -> Any:
    return multiply((a.conj() if holds_complex(a) else a).reshape(-1), b.reshape(-1))


def _inner(multiply: Multiply, a: Any, b: Any) -> Any:
    return tensordot_by(a, b, (-1, -1), multiply)


def _tensordot(multiply: Multiply, a: Any, b: Any, axes: Any) -> Any:
    return tensordot_by(a, b, axes, multiply)


def _einsum(multiply: Multiply, subscripts: str, *operands: Any) -> Any:
    return einsum_by(subscripts, operands, multiply)


def _multi_dot(multiply: Multiply, arrays: Any) -> Any:
    """A chain of matrices, the first and last of which may be vectors, in the order of the fewest multiplications.

    Cormen, Leiserson, Rivest and Stein, "Introduction to Algorithms", section on matrix-chain multiplication.
    """
    chain = [*arrays]
    for place, x in enumerate(chain):
        if x.ndim != 2 and not (x.ndim == 1 and place in (0, len(chain) - 1)):
            raise np.linalg.LinAlgError(f"arrays: item {place} has {x.ndim} dimensions; expected a matrix")
    sizes = [chain[0].shape[0] if chain[0].ndim > 1 else 1, *(x.shape[0] for x in chain[1:])]
    sizes.append(chain[-1].shape[-1] if chain[-1].ndim > 1 else 1)
    count = len(chain)
    costs, cuts = np.zeros((count, count)), np.zeros((count, count), int)
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            of_cut = [costs[i, at] + costs[at + 1, j] + sizes[i] * sizes[at + 1] * sizes[j + 1] for at in range(i, j)]
            cuts[i, j] = i + int(np.argmin(of_cut))
            costs[i, j] = min(of_cut)

    return _product_of(multiply, chain, cuts, 0, count - 1)


def _product_of(multiply: Multiply, chain: list[Any], cuts: Any, i: int, j: int) -> Any:
    """The product of the matrices i to j of a chain, which is cut after the matrix `cuts[i, j]`, and so on."""
    if i == j:
        return chain[i]
    at = cuts[i, j]
    return multiply(_product_of(multiply, chain, cuts, i, at), _product_of(multiply, chain, cuts, at + 1, j))


_RUN: dict[str, Callable[..., Any]] = {
    "matmul": _product,
    "dot": _dot,
    "vdot": _vdot,
    "inner": _inner,
    "tensordot": _tensordot,
    "einsum": _einsum,
    "multi_dot": _multi_dot,
}
