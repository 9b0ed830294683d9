"""NumPy: the same image and the same bits, through float64 BLAS (docs/design.md, section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki import _environment
from ozaki._description import Described
from ozaki._masks import unmasked
from ozaki._plan import Plan
from ozaki._workspace import too_few_bytes
from ozaki.backends import Way
from ozaki.backends.numpy import _words
from ozaki.backends.numpy._describe import OBJECTS, TILE
from ozaki.backends.numpy._describe import describe as describe
from ozaki.backends.numpy._describe import describing_workspace as describing_workspace
from ozaki.backends.numpy._describe import look as look
from ozaki.backends.numpy._describe import read as read
from ozaki.backends.numpy._multiply import multiply, recombine
from ozaki.backends.numpy._nonfinite import patch
from ozaki.backends.numpy._proof import least_product as least_product
from ozaki.backends.numpy._proof import narrow_product as narrow_product
from ozaki.backends.numpy._proof import proof_workspace as proof_workspace
from ozaki.backends.numpy._proof import some_rows as some_rows
from ozaki.backends.numpy._proof import wide_product as wide_product
from ozaki.backends.numpy._proof import worst_ratios as worst_ratios
from ozaki.backends.numpy._sharing import overlap as overlap
from ozaki.backends.numpy._slices import Slices, slices_of
from ozaki.backends.numpy._words import WordSlices
from ozaki.schemes import Scheme, Words, scaling_of
from ozaki.schemes.blas import Engine, engine_of
from ozaki.schemes.formats import H100, TensorCore

name = "numpy"
engines: tuple[str, ...] = ("float64", "int8")
waits = False
row_bytes = 256  # 48 for the fields of a description, 8 for an exponent, the rest for error terms and norms

_PANEL = 2048
"""Rows of an output panel at most: bounds the workspace."""


def asarray(x: Any) -> npt.NDArray[Any]:
    return unmasked(x)


def empty(shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    return np.empty(shape, dtype)


def owns(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def check_device(operands: tuple[tuple[str, Any], ...]) -> None:
    """All arrays lie in host memory."""


def contiguous(x: npt.NDArray[Any]) -> bool:
    return x.flags.c_contiguous


def fastest(stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
    """The native product if it will do: one out of slices costs several in float64, one out of words far more."""
    return None if None in ways else ways[0]


def seconds(stack: tuple[int, int, int], k: int, dtype: str, way: Way) -> None:
    """Nothing: processors and BLAS libraries are too many for a table."""


def native_obstacle(dtype: str) -> str | None:
    """BLAS computes in threads of its own, in which rounding and subnormals may be other than IEEE 754's."""
    obstacle = _environment.obstacle()
    return f"native product ruled out: {obstacle}" if obstacle else None


def native(a: Any, b: Any, dtype: str, out: Any) -> int:
    """The native product out = a b, in `dtype`, of matrices or of stacks, whose batches are broadcast.

    Returns the bytes of operands that were converted.
    """
    if a.ndim > 2 and prod(b.shape[:-2]) == 1:  # one product of all rows
        a, b, out = a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:]), out.reshape(-1, b.shape[-1])
    x, y = (of.astype(dtype, copy=False) for of in (a, b))
    np.matmul(x, y, out=out)
    return sum(new.nbytes for new, old in ((x, a), (y, b)) if new is not old)


# Executing a plan ---------------------------------------------------------------------------------------------------


def _engine(plan: Plan) -> Engine:
    assert isinstance(plan.scheme, Scheme)
    return engine_of(plan.scheme, plan.shape[1], plan.engine == "int8")


def engine_name(plan: Plan) -> str:
    if plan.scheme is None:
        return "NumPy"
    if isinstance(plan.scheme, Words):
        return f"NumPy, model of {plan.scheme.core.name} tensor cores"
    return "NumPy, int8 slices" if plan.engine == "int8" else "NumPy, float64 BLAS"


def _workspace(engine: Engine, stack: tuple[int, int, int], panel: int) -> int:
    """Bytes held while a panel is computed."""
    together = _together(stack, panel)
    rows, cols = together * min(stack[1], panel), together * min(stack[2], panel)
    entries, elements = rows * cols // together, (rows + cols) * engine.slab
    matrices = engine.planes * (entries + elements) + engine.sums * entries
    of_tile = max(
        engine.split_copies * min(TILE, max(rows, cols) * engine.slab),
        engine.rounding_copies * min(TILE // 4, entries),
        min(TILE, entries),  # of sums, which are reduced
    )
    return 8 * (matrices + of_tile) + OBJECTS


def _together(stack: tuple[int, int, int], panel: int) -> int:
    """Matrices of a batch that are computed together: as many as fill a panel."""
    batch, m, n = stack
    return max(1, min(batch, panel * panel // (m * n), 2 * panel // (m + n))) if max(m, n) <= panel else 1


def _panel(engine: Engine, stack: tuple[int, int, int], limit: int | None) -> int:
    """Rows of a panel within the caller's limit."""
    panel = _PANEL
    while limit is not None and (needed := _workspace(engine, stack, panel)) > limit:
        if panel <= 16:
            too_few_bytes(limit, needed)
        panel //= 2
    return panel


def split(operand: Described, side: str, plan: Plan) -> Slices | WordSlices:
    """The slices of a whole operand."""
    assert plan.scheme is not None
    if isinstance(plan.scheme, Words):
        return _words.split(operand, plan.scheme)
    engine = _engine(plan)
    mu = _exponents(operand, plan.scheme)
    return Slices(operand, slices_of(operand, mu, engine, side, slice(None), slice(None), slice(None)), mu)


def split_in_one_read(plan: Plan, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
    """Nothing: no read is spared."""


def cut_in_one_read(plan: Plan, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
    """Nothing likewise."""


def _exponents(operand: Described, scheme: Scheme) -> npt.NDArray[np.int64]:
    return operand.on_host.exponents(scaling_of(scheme, operand.k))


def recorded(*_: Any) -> AbstractContextManager[None]:
    """Nothing is noted: the host's time is the product's."""
    return nullcontext()


def axpby(
    alpha: np.floating[Any],
    x: npt.NDArray[Any],
    beta: np.floating[Any],
    y: npt.NDArray[Any] | None,
    out: npt.NDArray[Any],
) -> None:
    np.multiply(x, alpha, out=x)
    if y is not None:
        _add_scaled(x, beta, y)
    if out is not x:
        out[...] = x


def _add_scaled(x: npt.NDArray[Any], beta: np.floating[Any], y: npt.NDArray[Any]) -> None:
    """x += beta y, product and sum rounded, in parts: no array as large as x is held beside it."""
    if x.size <= TILE:
        x += y.astype(x.dtype, copy=False) * beta
        return
    step = len(x) * TILE // x.size
    if step == 0:
        for part, added in zip(x, y, strict=True):
            _add_scaled(part, beta, added)
    else:
        for first in range(0, len(x), step):
            x[first : first + step] += y[first : first + step].astype(x.dtype, copy=False) * beta


def underflows(operand: Described, words: Words) -> int:
    """Elements that underflow in a split into words."""
    return _words.underflows(operand, words)


def core() -> TensorCore:
    """As the presets have it."""
    return H100


def words_obstacle(words: Words) -> str | None:
    """Nothing: every tensor core is modelled."""
    return None


def same_slices(plan: Plan, other: Plan) -> bool:
    """Nothing else decides how slices lie."""
    return True


def product(plan: Plan, x: npt.NDArray[Any], y: npt.NDArray[Any], out: npt.NDArray[Any]) -> int:
    """Compute out = x y^T of rows that nothing is known of; returns the bytes of workspace."""
    describing = max(describing_workspace(of.shape) for of in (x, y))
    return max(describing, execute(plan, describe(x), describe(y), out))


def execute(
    plan: Plan, left: Described | Slices | WordSlices, right: Described | Slices | WordSlices, out: npt.NDArray[Any]
) -> int:
    """Compute out, shape (batch, m, n); returns the bytes of workspace."""
    if isinstance(plan.scheme, Words):
        assert not isinstance(left, Slices) and not isinstance(right, Slices)
        used = _words.execute(plan.scheme, left, right, out, plan.workspace_limit)
    else:
        assert not isinstance(left, WordSlices) and not isinstance(right, WordSlices)
        used = _execute(plan, left, right, out)
    operands = [x if isinstance(x, Described) else x.described for x in (left, right)]
    flags = [x.on_host.nonfinite for x in operands]
    if any(f.any() for f in flags):
        patch(operands[0].x, operands[1].x, flags, out)
    return used


def _execute(plan: Plan, left: Described | Slices, right: Described | Slices, out: npt.NDArray[Any]) -> int:
    """The exact schemes, finite elements only."""
    assert isinstance(plan.scheme, Scheme)
    engine = _engine(plan)
    panel = _panel(engine, out.shape, plan.workspace_limit)
    mu, nu = (x.mu if isinstance(x, Slices) else _exponents(x, plan.scheme) for x in (left, right))
    for b, rows in _panels(out.shape, panel):
        for c in range(0, out.shape[2], panel):
            cols = slice(c, min(c + panel, out.shape[2]))
            sums = multiply(engine, left, right, mu, nu, _at(left, b), _at(right, b), rows, cols)
            recombine(engine, sums, mu[_at(left, b), rows], nu[_at(right, b), cols], out[b, rows, cols])
            del sums  # before those of the next panel
    return _workspace(engine, out.shape, panel)


def _panels(stack: tuple[int, int, int], panel: int) -> Iterator[tuple[slice, slice]]:
    """Cut (batch, m) into panels; small products of a batch go together."""
    batch, m, _ = stack
    together = _together(stack, panel)
    for b in range(0, batch, together):
        for r in range(0, m, panel):
            yield slice(b, min(b + together, batch)), slice(r, min(r + panel, m))


def _at(operand: Described | Slices, b: slice) -> slice:
    """The same batch entries, or the only one."""
    described = operand.described if isinstance(operand, Slices) else operand
    return slice(0, 1) if described.x.shape[0] == 1 else b
