"""A product by slices or words on NumPy, panel by panel, through float64 BLAS (docs/definitions.md, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.numpy import _words
from ozaki.backends.numpy._describe import OBJECTS, Described
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._nonfinite import patch
from ozaki.backends.numpy._slices import Slices, slices_of
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy._unrounded import COMBINED_SHARE, Unrounded
from ozaki.backends.numpy._words import WordSlices
from ozaki.backends.numpy.engines import Engine, engine_of
from ozaki.backends.numpy.engines.complex_residues import ComplexResidueEngine
from ozaki.backends.numpy.engines.residues import ResidueEngine
from ozaki.call.combination import Combination
from ozaki.driver.memory import Memory, too_few_bytes
from ozaki.driver.progress import SILENT, Progress, Share
from ozaki.multiprecision.limbs import limbs_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words, is_exact, scaling_of

_PANEL = 2048
"""Most rows and columns of a panel of the result; bounds the workspace."""

_MOST_BYTES = 2**31
"""Most bytes of workspace of a panel, if no limit is given, unless one of `_FEW_ROWS` rows and columns takes more."""

_FEW_ROWS = 128
"""Rows and columns that a panel has at least, if no limit is given: with fewer, BLAS is slow."""


def execute(
    scheme: Scheme | Words,
    int8: bool,
    left: Described | Slices | WordSlices,
    right: Described | Slices | WordSlices,
    out: npt.NDArray[Any] | Numbers,
    memory: Memory,
    combination: Combination | None = None,
    itself: bool = False,
    adjoint: bool = False,
    progress: Progress = SILENT,
) -> None:
    """Compute out, shape (batch, m, n), by slices or words.

    What this takes is counted in `memory`. `int8` says whether float64 BLAS multiplies the slices that a GPU
    does, in place of fewer and wider ones. With `combination`, whose addend has the shape of out, slices compute the
    whole expression. `itself` says that both operands are the same rows, so that the product is symmetric; `adjoint`
    that those of the right one are their conjugates, so that it is Hermitian. `progress` is told of each part.

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
    """
    if isinstance(scheme, Words):
        assert not isinstance(left, Slices) and not isinstance(right, Slices) and not isinstance(out, Numbers)
        _words.execute(scheme, left, right, out, memory, progress)
    else:
        assert not isinstance(left, WordSlices) and not isinstance(right, WordSlices)
        _exact(scheme, int8, left, right, out, memory, combination, itself, adjoint, progress)
    operands = [x if isinstance(x, Described) else x.described for x in (left, right)]
    flags = [x.on_host.nonfinite for x in operands]
    if any(f.any() for f in flags):
        assert not isinstance(out, Numbers)
        patch(operands[0].x, operands[1].x, flags, out, memory, combination)


def _exact(
    scheme: Scheme,
    int8: bool,
    left: Described | Slices,
    right: Described | Slices,
    out: npt.NDArray[Any] | Numbers,
    memory: Memory,
    combination: Combination | None,
    itself: bool,
    adjoint: bool,
    progress: Progress,
) -> None:
    """Compute out by a scheme with exact slice products, NaN and Inf counted as zero.

    Of a matrix times its own transpose by residues, both operands have the same slices, and panels above the diagonal
    are the mirror images of those below; so are those of complex products, and conjugates if the product is Hermitian.
    """
    of_left, of_right = _described(left), _described(right)
    engine, side = engine_of(scheme, of_left.k, int8), "left"
    alone = combination is None or combination.c is None
    mirrored = itself and type(engine) is ResidueEngine and alone
    below = mirrored or ((itself or adjoint) and isinstance(engine, ComplexResidueEngine) and alone)
    if mirrored:
        assert isinstance(engine, ResidueEngine)
        engine, side = replace(engine, folded=False), "right"
    batch, m, n = out.shape
    stack = batch, m, n
    combined = 0 if combination is None else _combined(combination, out)
    limbs = max(len(x.numbers.limbs) if x.numbers is not None else 0 for x in (of_left, of_right))
    panel = panel_of(engine, stack, memory.rest, combined, limbs)
    memory.pass_through(_workspace(engine, stack, panel, combined, limbs))
    mu, nu = (x.mu if isinstance(x, Slices) else _exponents(x, scheme) for x in (left, right))
    panels = [*_panels(batch, n, panel.columns, _together(stack, panel))]
    # To round numbers of many bits takes about as long as to multiply their slices.
    rounding = engine.planes if isinstance(out, Numbers) else 1
    steps = (1 + engine.planes) * len(range(0, engine.k, engine.slab)) + rounding  # 1 for splitting
    count = sum(len(range(cols.start if below else 0, m, panel.rows)) for _, cols in panels)
    progress.begin(count * steps, "steps")
    for b, cols in panels:
        at_left, at_right = matrices_of(left, b), matrices_of(right, b)
        kept: Floats | None = None  # frees the slices of the columns before
        if engine.k <= engine.slab:  # one slab: the slices of these columns serve all panels of rows
            kept = slices_of(right, nu, engine, "right", at_right, cols, slice(None))
        for r in range(cols.start if below else 0, m, panel.rows):
            rows, unrounded = slice(r, min(r + panel.rows, m)), Unrounded(engine)
            same = mirrored and rows == cols  # then BLAS multiplies one triangle
            for h in range(0, engine.k, engine.slab):
                part = slice(h, min(h + engine.slab, engine.k))
                of_cols = slices_of(right, nu, engine, "right", at_right, cols, part) if kept is None else kept
                of_rows = of_cols if same else slices_of(left, mu, engine, side, at_left, rows, part)
                progress.step()
                unrounded.add(of_rows, of_cols, progress)
                del of_rows, of_cols  # before those of the next slab are made
            some = None if combination is None else combination.at((b, rows, cols))
            share = Share(progress, rounding)
            if isinstance(engine, ComplexResidueEngine):
                _round_complex(unrounded, out[b, rows, cols], mu[at_left, rows], nu[at_right, cols], some, share)
            else:
                unrounded.round_into(out[b, rows, cols], mu[at_left, rows], nu[at_right, cols], some, same, share)
            if below and rows != cols:
                conjugate = adjoint and isinstance(engine, ComplexResidueEngine)
                _mirror(out[b, rows, cols], out[b, cols, rows], conjugate)


def _round_complex(
    unrounded: Unrounded,
    c: Any,
    mu: npt.NDArray[np.int64],
    nu: npt.NDArray[np.int64],
    combination: Combination | None,
    progress: Share,
) -> None:
    """Round complex entries into c, part by part: the parts are neighbours in memory, as columns are."""
    if combination is not None and combination.c is not None:
        combination = replace(combination, c=_parts(combination.c))
    unrounded.round_into(_parts(c), mu, np.repeat(nu, 2, axis=1), combination, progress=progress)


def _parts(c: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The parts of complex entries, whose rows are contiguous: a view with twice as many columns."""
    return c.view(c.real.dtype)


def _mirror(entries: Any, image: Any, conjugate: bool) -> None:
    """Write the transposes of entries, shape (batch, rows, columns), into image; of a Hermitian product, conjugates."""
    turned = entries.swapaxes(1, 2)
    results.copy(np.conj(turned) + 0 if conjugate else turned, image)  # + 0: an exact zero stays +0


class Panel(NamedTuple):
    """Most rows and columns of the result that are computed at a time."""

    rows: int
    columns: int


def _panels(batch: int, n: int, columns: int, together: int) -> Iterator[tuple[slice, slice]]:
    """Cut (batch, n) into pairs of slices; a panel takes several matrices of a batch if they are small."""
    for b in range(0, batch, together):
        for c in range(0, n, columns):
            yield slice(b, min(b + together, batch)), slice(c, min(c + columns, n))


def matrices_of(operand: Described | Slices, b: slice) -> slice:
    """The matrices of an operand for matrices b of the result: the same ones, or its only one."""
    return slice(0, 1) if _described(operand).x.shape[0] == 1 else b


def _described(x: Described | Slices) -> Described:
    """The description of an operand that is described or split."""
    return x.described if isinstance(x, Slices) else x


def _combined(combination: Combination, out: npt.NDArray[Any] | Numbers) -> int:
    """Arrays as large as a tile that rounding together with an addend takes (`_workspace`).

    These hold the limbs of the result, and those of a term that an addend or a factor makes longer than a float.
    """
    longer = limbs_of(max(combination.bits_of_terms(0))) - 2
    return 24 + 4 * (len(out.limbs) if isinstance(out, Numbers) else 0) + 5 * max(longer, 0)


def _workspace(engine: Engine, stack: tuple[int, int, int], panel: Panel, combined: int, limbs: int = 0) -> int:
    """Bytes that are held while a panel is computed.

    `combined`: if it is rounded together with an addend, the arrays as large as a tile that this takes beside those
    whose number the engine knows; else 0. `limbs`: those of the longest multiprecision operand; 0 without any.
    """
    together = _together(stack, panel)
    rows, cols = together * min(stack[1], panel.rows), together * min(stack[2], panel.columns)
    entries, elements = rows * cols // together, (rows + cols) * engine.slab
    rounded = entries * (2 if isinstance(engine, ComplexResidueEngine) else 1)  # parts
    matrices = engine.planes * (entries + elements) + engine.sums * entries
    tile_elements = max(
        engine.split_copies * min(TILE, max(rows, cols) * engine.slab),
        # Of multiprecision elements their limbs, copied and moved, and the pieces of images twice.
        (2 * engine.split_copies + 2 * limbs + 8) * min(TILE // 4, max(rows, cols) * engine.slab) if limbs else 0,
        engine.rounding_copies * min(TILE // 4, rounded),
        min(TILE, entries),  # scratch of `ResidueEngine.add`
        # Both terms, multiplied, moved and added; their limbs are about as many as those of the product alone.
        (2 * engine.rounding_copies + combined) * min(TILE // COMBINED_SHARE, rounded) if combined else 0,
    )
    return 8 * (matrices + tile_elements) + OBJECTS


def _together(stack: tuple[int, int, int], panel: Panel) -> int:
    """Number of matrices of a batch that are computed together: as many as fill a panel."""
    (batch, m, n), (rows, columns) = stack, panel
    fits = m <= rows and n <= columns
    return max(1, min(batch, rows * columns // (m * n), (rows + columns) // (m + n))) if fits else 1


def panel_of(
    engine: Engine, stack: tuple[int, int, int], limit: int | None, combined: int = 0, limbs: int = 0
) -> Panel:
    """The largest panels whose workspace keeps within `limit` bytes, None for no limit.

    `combined`, `limbs`: as in `_workspace`.

    Without a limit, panels have few rows rather than few columns, because the slices of columns serve all rows.
    """
    rows = columns = _PANEL
    if limit is None:
        while rows > _FEW_ROWS and _workspace(engine, stack, Panel(rows, columns), combined, limbs) > _MOST_BYTES:
            rows //= 2
        while columns > _FEW_ROWS and _workspace(engine, stack, Panel(rows, columns), combined, limbs) > _MOST_BYTES:
            columns //= 2
        return Panel(rows, columns)
    while (needed := _workspace(engine, stack, Panel(rows, columns), combined, limbs)) > limit:
        if rows <= 16:
            too_few_bytes(limit, needed)
        rows = columns = rows // 2
    return Panel(rows, columns)


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
