"""A product by slices or words on NumPy, panel by panel, through float64 BLAS (docs/definitions.md, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._plan import Plan
from ozaki._workspace import too_few_bytes
from ozaki.backends.numpy import _words
from ozaki.backends.numpy._describe import OBJECTS, Described
from ozaki.backends.numpy._nonfinite import patch
from ozaki.backends.numpy._slices import Slices, slices_of
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy._unrounded import Unrounded
from ozaki.backends.numpy._words import WordSlices
from ozaki.backends.numpy.engines import Engine, engine_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes import Scheme, Words, is_exact, scaling_of

_PANEL = 2048
"""Most rows and columns of a panel of the result; bounds the workspace."""

_MOST_BYTES = 2**31
"""Most bytes of workspace of a panel, if no limit is given, unless a panel of 256 x 256 takes more."""


def execute(
    scheme: Scheme | Words,
    int8: bool,
    left: Described | Slices | WordSlices,
    right: Described | Slices | WordSlices,
    out: npt.NDArray[Any] | Numbers,
    limit: int | None,
) -> int:
    """Compute out, shape (batch, m, n), by slices or words; return the bytes of workspace.

    They are at most `limit`, unless that is None. `int8` says whether float64 BLAS multiplies the slices that a GPU
    does, in place of fewer and wider ones.

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
    """
    if isinstance(scheme, Words):
        assert not isinstance(left, Slices) and not isinstance(right, Slices) and not isinstance(out, Numbers)
        used = _words.execute(scheme, left, right, out, limit)
    else:
        assert not isinstance(left, WordSlices) and not isinstance(right, WordSlices)
        used = _exact(scheme, int8, left, right, out, limit)
    operands = [x if isinstance(x, Described) else x.described for x in (left, right)]
    flags = [x.on_host.nonfinite for x in operands]
    if any(f.any() for f in flags):
        assert not isinstance(out, Numbers)
        patch(operands[0].x, operands[1].x, flags, out)
    return used


def _exact(
    scheme: Scheme,
    int8: bool,
    left: Described | Slices,
    right: Described | Slices,
    out: npt.NDArray[Any] | Numbers,
    limit: int | None,
) -> int:
    """Compute out by a scheme with exact slice products, NaN and Inf counted as zero; return the bytes of workspace."""
    of_left = left.described if isinstance(left, Slices) else left
    engine = engine_of(scheme, of_left.k, int8)
    batch, m, n = out.shape
    stack = batch, m, n
    panel = panel_of(engine, stack, limit)
    mu, nu = (x.mu if isinstance(x, Slices) else _exponents(x, scheme) for x in (left, right))
    for b, rows in _panels(stack, panel):
        for c in range(0, n, panel):
            cols = slice(c, min(c + panel, n))
            unrounded, at_left, at_right = Unrounded(engine), _matrices_of(left, b), _matrices_of(right, b)
            for h in range(0, engine.k, engine.slab):
                part = slice(h, min(h + engine.slab, engine.k))
                unrounded.add(
                    slices_of(left, mu, engine, "left", at_left, rows, part),
                    slices_of(right, nu, engine, "right", at_right, cols, part),
                )
            unrounded.round_into(out[b, rows, cols], mu[at_left, rows], nu[at_right, cols])
    return _workspace(engine, stack, panel)


def _panels(stack: tuple[int, int, int], panel: int) -> Iterator[tuple[slice, slice]]:
    """Cut (batch, m) into pairs of slices; a panel takes several matrices of a batch if they are small."""
    batch, m, _ = stack
    together = _together(stack, panel)
    for b in range(0, batch, together):
        for r in range(0, m, panel):
            yield slice(b, min(b + together, batch)), slice(r, min(r + panel, m))


def _matrices_of(operand: Described | Slices, b: slice) -> slice:
    """The matrices of an operand for matrices b of the result: the same ones, or its only one."""
    described = operand.described if isinstance(operand, Slices) else operand
    return slice(0, 1) if described.x.shape[0] == 1 else b


def _workspace(engine: Engine, stack: tuple[int, int, int], panel: int) -> int:
    """Bytes that are held while a panel of at most panel x panel entries is computed."""
    together = _together(stack, panel)
    rows, cols = together * min(stack[1], panel), together * min(stack[2], panel)
    entries, elements = rows * cols // together, (rows + cols) * engine.slab
    matrices = engine.planes * (entries + elements) + engine.sums * entries
    tile_elements = max(
        engine.split_copies * min(TILE, max(rows, cols) * engine.slab),
        engine.rounding_copies * min(TILE // 4, entries),
        min(TILE, entries),  # scratch of `ResidueEngine.add`
    )
    return 8 * (matrices + tile_elements) + OBJECTS


def _together(stack: tuple[int, int, int], panel: int) -> int:
    """Number of matrices of a batch that are computed together: as many as fill a panel."""
    batch, m, n = stack
    return max(1, min(batch, panel * panel // (m * n), 2 * panel // (m + n))) if max(m, n) <= panel else 1


def panel_of(engine: Engine, stack: tuple[int, int, int], limit: int | None) -> int:
    """Most rows and columns of a panel whose workspace keeps within `limit` bytes; None for no limit."""
    panel = _PANEL
    while limit is None and panel > 256 and _workspace(engine, stack, panel) > _MOST_BYTES:
        panel //= 2
    while limit is not None and (needed := _workspace(engine, stack, panel)) > limit:
        if panel <= 16:
            too_few_bytes(limit, needed)
        panel //= 2
    return panel


def split(operand: Described, side: str, plan: Plan) -> Slices | WordSlices:
    """The slices of a whole operand, as a plan multiplies them."""
    assert plan.scheme is not None
    if isinstance(plan.scheme, Words):
        return _words.split(operand, plan.scheme)
    assert is_exact(plan.scheme)
    engine = engine_of(plan.scheme, operand.k, plan.engine == "int8")
    mu = _exponents(operand, plan.scheme)
    return Slices(operand, slices_of(operand, mu, engine, side, slice(None), slice(None), slice(None)), mu)


def _exponents(operand: Described, scheme: Scheme) -> npt.NDArray[np.int64]:
    """The shared exponents mu of the rows, shape (batch, rows)."""
    mu = operand.on_host.exponents(scaling_of(scheme, operand.k))
    return mu if operand.tops is None else mu - operand.tops
