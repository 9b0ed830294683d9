"""A product by slices or words on NumPy, as its program says (docs/definitions.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki.backends import results
from ozaki.backends.combining import bits_of_terms
from ozaki.backends.numpy import _words
from ozaki.backends.numpy._describe import Described
from ozaki.backends.numpy._inner_products import inner_products, inner_products_bytes
from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._nonfinite import patch
from ozaki.backends.numpy._projection import Projection, projection_bytes
from ozaki.backends.numpy._scaled import ScaledRows, unscaled
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy._undecided import Undecided
from ozaki.backends.numpy._unrounded import Unrounded
from ozaki.backends.numpy._words import WordSlices, word_program
from ozaki.backends.numpy.compiled.calls import can_read
from ozaki.backends.numpy.compiled.memory import SPARE
from ozaki.backends.numpy.compiled.panels import TRIANGLE, Panels
from ozaki.backends.numpy.compiled.wide import can_write
from ozaki.backends.numpy.engines import Engine, compiled_for, engine_of
from ozaki.backends.numpy.program import Program, Views, product_program
from ozaki.multiprecision.limbs import limbs_of
from ozaki.multiprecision.numbers import Numbers
from ozaki.process.threads import threads
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.records.plan import Plan
from ozaki.records.progress import SILENT, Progress, Share
from ozaki.records.shapes import SIDES, tiles_of_rows
from ozaki.records.verification import Projected, Verification
from ozaki.schemes import Scaling, Scheme, Words, is_exact, scaling_of
from ozaki.schemes.blas import PIECE_BITS

Ints = npt.NDArray[np.int64]


_LISTED, _FEWEST = 2**22, 64
"""Entries of which the undecided ones are listed at a time; and the least undecided ones that are computed together."""

_INDICES = 24
"""Bytes of the indices of an entry."""


@dataclass(frozen=True)
class Slices:
    """An operand that is split: its slices, and the shared exponents of its rows.

    Attributes
    ----------
    described : the operand with its description
    engine : what split it; None, if nothing did
    planes : as the engine has them, of which parts are taken as of an array of shape (planes, batch, rows, k)
    mu : exponents of the images, shape (batch, rows)
    """

    described: Described
    engine: Engine | None
    planes: Any
    mu: Ints

    @property
    def x(self) -> npt.NDArray[Any]:
        """The operand, shape (batch, rows, k)."""
        rows: npt.NDArray[Any] = unscaled(self.described.x)
        return rows


def execute(
    scheme: Scheme | Words,
    engine: str,
    left: Described | Slices | WordSlices,
    right: Described | Slices | WordSlices,
    out: npt.NDArray[Any] | Numbers,
    memory: Memory,
    combination: Combination | None = None,
    itself: bool = False,
    adjoint: bool = False,
    progress: Progress = SILENT,
    verification: Verification | None = None,
    undecided: Undecided | None = None,
) -> None:
    """Compute out, shape (batch, m, n), by slices or words.

    What this takes is counted in `memory`. `engine` is the name that the caller gave, or "auto". With `combination`,
    whose addend has the shape of out, slices compute the whole expression. `itself` says that both operands are the
    same rows, so that the product is symmetric; `adjoint` that those of the right one are their conjugates, so that it
    is Hermitian. `progress` is told of each part. With `verification` the product of integers, by slices, is checked.
    With `undecided` the entries that it flags are computed apart.

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
    VerificationError
        If the product is wrong twice.
    """
    of_left, of_right = (x if isinstance(x, Described) else x.described for x in (left, right))
    batch, m, n = out.shape
    held, tile = 0, TILE if memory.limit is None else TILE // 8
    if verification is not None and not isinstance(scheme, Words):
        k = of_left.x.shape[2]
        pieces = scheme.largest.bit_length() // PIECE_BITS + 1
        held = projection_bytes(batch, m, k, n, of_left.k // k, pieces, tile)
        memory.hold(held)
    limit = None if memory.limit is None else memory.rest
    if isinstance(scheme, Words):
        assert not isinstance(left, Slices) and not isinstance(right, Slices) and not isinstance(out, Numbers)
        by_words = word_program(scheme, (batch, m, n), of_left.k, limit)
        memory.pass_through(by_words.nbytes)
        _words.execute(by_words, left, right, out, progress)
    else:
        assert not isinstance(left, WordSlices) and not isinstance(right, WordSlices)
        left, right = (_split_for(scheme, engine, x) for x in (left, right))
        sides = tuple(side for side, x in zip(SIDES, (left, right), strict=True) if isinstance(x, Described))
        limbs = max(0 if x.numbers is None else len(x.numbers.limbs) for x in (of_left, of_right))
        combined, addend = (0, False) if combination is None else combined_views(combination, out)
        views = Views(
            batch, m, of_left.k, n, limbs, combined, addend, itself, adjoint, sides=sides,
            verified=verification is not None,
        )  # fmt: skip
        if compiled_for(scheme, of_left.k, engine) is not None:
            copied = max(0 if x.numbers is not None or can_read(x.x) else x.x.itemsize for x in (of_left, of_right))
            written = 0 if can_write(out) else -(-out.nbytes // max(batch * m * n, 1))
            views = views._replace(copied=copied, written=written, threads=threads())
        program = product_program(scheme, engine, views, limit)
        memory.pass_through(program.nbytes)
        if limit is not None:
            SPARE.clear()
        nonfinite = None
        as_triangle = program.image is not None and m > TRIANGLE
        alone = combination is None and progress is SILENT and verification is None and undecided is None
        if sides == SIDES and not (limbs or as_triangle) and alone:
            nonfinite = _whole(program, of_left.x, of_right.x, out)
        if verification is not None:
            parts = program, left, right, out, combination, progress, tile, undecided
            verification.run(partial(_projected, *parts))
        elif nonfinite is None:
            run(program, left, right, out, combination, progress, undecided=undecided)
        if limit is not None or isinstance(out, Numbers):
            SPARE.clear()  # what the product has used, before others hold what they find, or cut results
        memory.free(held)
        if undecided is not None:
            _apart(unscaled(of_left.x), unscaled(of_right.x), undecided, out, memory)
        if nonfinite == 0:
            return
    if not (of_left.finite and of_right.finite):
        flags = [x.on_host.nonfinite for x in (of_left, of_right)]
        if any(f.any() for f in flags):
            assert not isinstance(out, Numbers)
            SPARE.clear()  # what the product has used
            patch(unscaled(of_left.x), unscaled(of_right.x), flags, out, memory, combination)


def _whole(
    program: Program, x: npt.NDArray[Any] | ScaledRows, y: npt.NDArray[Any] | ScaledRows, out: Any
) -> int | None:
    """Compute out from rows of floats by `Engine.multiply_whole`, in the memory that a program of one slab counts."""
    if len(program.slabs) > 1 or program.views.copied or not isinstance(out, np.ndarray):
        return None
    if isinstance(x, ScaledRows) or isinstance(y, ScaledRows):
        return None
    return program.engine.multiply_whole(x, y, program.scaling, out, program.nbytes)


def _apart(x: npt.NDArray[Any], y: npt.NDArray[Any], undecided: Undecided, out: Any, memory: Memory) -> None:
    """Compute the undecided entries of out by exact inner products of rows x and y, within the limit of workspace."""
    (batch, m, n), rest = out.shape, memory.rest
    listed = _LISTED
    if rest is not None:  # the indices take half of what inner products of the fewest leave
        left = max(rest - inner_products_bytes(x, y, _FEWEST), 0)
        listed = max(min(TILE // 8, left // (2 * _INDICES)), _FEWEST)
    for at in tiles_of_rows(batch, m, n, listed):
        entries = undecided.entries(at)
        memory.pass_through(2 * entries.nbytes)  # while they are listed
        count = step = entries.shape[1]
        while rest is not None and step > _FEWEST and entries.nbytes + inner_products_bytes(x, y, step) > rest:
            step = -(-step // 2)
        for first in range(0, count, max(step, 1)):
            some = entries[:, first : first + step]
            memory.pass_through(entries.nbytes + inner_products_bytes(x, y, some.shape[1]))
            inner_products(x, y, some, out)


def _projected(
    program: Program,
    left: Described | Slices,
    right: Described | Slices,
    out: npt.NDArray[Any] | Numbers,
    combination: Combination | None,
    progress: Progress,
    tile: int,
    undecided: Undecided | None = None,
) -> Projected:
    """Do as `run` does, and compare random projections of the integers with those of both operands.

    `tile` is the number of elements of an operand that are projected at a time.
    """
    batch, m, n = out.shape
    projection = Projection((batch, m, n), program.engine.parts, program.image, tile)
    used = run(program, left, right, out, combination, progress, projection, undecided)
    a, b = (x if isinstance(x, Described) else x.described for x in (left, right))
    exponents = _exponents(a, program.scaling), _exponents(b, program.scaling)
    found = projection.compare(a, b, *exponents, program.engine.scheme)
    same = all(np.array_equal(x, y) for x, y in zip(used, exponents, strict=True))
    return found if same else found._replace(wrong=found.projections)


def run(
    program: Program,
    left: Described | Slices,
    right: Described | Slices,
    out: npt.NDArray[Any] | Numbers,
    combination: Combination | None = None,
    progress: Progress = SILENT,
    projection: Projection | None = None,
    undecided: Undecided | None = None,
) -> tuple[Ints, Ints]:
    """Compute out, shape (batch, m, n), by a program made for it, NaN and Inf counted as zero.

    `projection` collects what it projects, `undecided` flags entries; the exponents of both operands are returned.
    """
    engine, slabs = program.engine, program.slabs
    batch, m, n = out.shape
    mu, nu = (x.mu if isinstance(x, Slices) else _exponents(x, program.scaling) for x in (left, right))
    side = "right" if program.one_split else "left"
    # To round numbers of many bits takes about as long as to multiply their slices.
    rounding = engine.planes if isinstance(out, Numbers) else 1
    told = None if progress is SILENT else progress
    fused = len(slabs) == 1 and combination is None and projection is None
    if told is not None:
        starts = [0 if program.image is None else c for c in range(0, n, program.columns)]
        panels = len(range(0, batch, program.together)) * sum(len(range(r, m, program.rows)) for r in starts)
        told.begin(panels * ((1 + engine.planes) * len(slabs) + rounding), "steps")  # 1 for splitting
    for first in range(0, batch, program.together):
        b = slice(first, min(first + program.together, batch))
        of_left, of_right = matrices_of(left, b), matrices_of(right, b)
        for c in range(0, n, program.columns):
            cols = slice(c, min(c + program.columns, n))
            at_cols = of_right, cols
            kept: Floats | None = None  # frees the slices of the columns before
            if program.keeps_columns:
                kept = slices_of(right, nu, engine, "right", *at_cols, slice(engine.k))
            for r in range(0 if program.image is None else c, m, program.rows):
                rows = slice(r, min(r + program.rows, m))
                on_diagonal = program.image is not None and rows == cols
                diagonal = program.one_split and on_diagonal  # then BLAS multiplies one triangle
                at = b, rows, cols
                flagged = None if undecided is None else undecided.at(at)
                unrounded: Unrounded | None = None
                for h in slabs:
                    hs = slice(h, min(h + engine.slab, engine.k))
                    of_cols = kept if kept is not None else slices_of(right, nu, engine, "right", *at_cols, hs)
                    of_rows = of_cols if diagonal else slices_of(left, mu, engine, side, of_left, rows, hs)
                    if told is not None:
                        told.step()
                    exponents = mu[of_left, rows], nu[at_cols]
                    if fused and engine.multiply_into(of_rows, of_cols, *exponents, out[at], on_diagonal, flagged):
                        if told is not None:
                            told.step(engine.planes + rounding)
                        del of_rows, of_cols  # before those of the next panel are made
                        break
                    part = Unrounded(engine, engine.multiply(of_rows, of_cols, told), *exponents)
                    del of_rows, of_cols  # before those of the next slab are made
                    if unrounded is None:
                        unrounded = part
                    else:
                        unrounded.add(part)
                if unrounded is not None:
                    some = combination if combination is None else combination.at(at)
                    project = None
                    if projection is not None:
                        mirrored = program.image is not None and (diagonal or not on_diagonal)
                        project = projection.of_panel(at, engine.shift, mirrored)
                    share = None if told is None else Share(told, rounding)
                    unrounded.round_into(out[at], some, diagonal, share, project, flagged)
                if program.image is not None:
                    conjugate = program.image == "conjugate"
                    if rows != cols:
                        _mirror(out[at], out[b, cols, rows], conjugate)
                        if undecided is not None:
                            _mirror(undecided.flags[at], undecided.flags[b, cols, rows], conjugate=False)
                    elif unrounded is None:
                        for h in range(r, rows.stop, TRIANGLE):
                            those, beyond = slice(h, h + TRIANGLE), slice(min(h + TRIANGLE, rows.stop), rows.stop)
                            _mirror(out[b, beyond, those], out[b, those, beyond], conjugate)
                            if undecided is not None:
                                flags = undecided.flags
                                _mirror(flags[b, beyond, those], flags[b, those, beyond], conjugate=False)
    return mu, nu


def _mirror(entries: Any, image: Any, conjugate: bool) -> None:
    """Write the transposes of entries, shape (batch, rows, columns), into image; of a Hermitian product, conjugates."""
    turned = entries.swapaxes(1, 2)
    results.copy(np.conj(turned) + 0 if conjugate else turned, image)  # + 0: an exact zero stays +0


def matrices_of(operand: Described | Slices, b: slice) -> slice:
    """The matrices of an operand for matrices b of the result: the same ones, or its only one."""
    return slice(0, 1) if len(operand.x) == 1 else b


def combined_views(combination: Combination, out: npt.NDArray[Any] | Numbers) -> tuple[int, bool]:
    """Arrays as large as a tile that rounding a whole expression takes, and whether it has an addend (`Views`).

    These hold the limbs of the result, and those of a term that an addend or a factor makes longer than a float.
    """
    longer = limbs_of(max(bits_of_terms(combination, 0))) - 2
    arrays = 24 + 4 * (len(out.limbs) if isinstance(out, Numbers) else 0) + 5 * max(longer, 0)
    return arrays, combination.c is not None


def split(operand: Described, side: str, plan: Plan) -> Slices | WordSlices:
    """The slices of a whole operand, as a plan multiplies them."""
    assert plan.scheme is not None
    if isinstance(plan.scheme, Words):
        return _words.split(operand, plan.scheme)
    assert is_exact(plan.scheme)
    engine = engine_of(plan.scheme, operand.k, plan.engine)
    mu = _exponents(operand, scaling_of(plan.scheme, operand.k))
    SPARE.clear()  # which may have much more memory than is wanted
    planes = slices_of(operand, mu, engine, side, slice(None), slice(None), slice(None))
    if isinstance(planes, Panels):
        planes.block.keep()
    return Slices(operand, engine, planes, mu)


def _split_for(scheme: Scheme, engine: str, operand: Described | Slices) -> Described | Slices:
    """The operand; without its slices, if they are those of another engine, taken before the environment chose this."""
    if isinstance(operand, Slices) and operand.engine != engine_of(scheme, operand.described.k, engine):
        return operand.described
    return operand


def _exponents(operand: Described, scaling: Scaling) -> Ints:
    """The shared exponents mu of the rows, shape (batch, rows)."""
    mu = operand.on_host.exponents(scaling)
    return mu if operand.tops is None else mu - operand.tops


def slices_of(
    operand: Described | Slices, mu: Ints, engine: Engine, side: str, b: slice, rows: slice, hs: slice
) -> Any:
    """The slices of some matrices b, rows and inner indices hs of an operand, as its engine has them.

    A split operand returns views of its own; one that is described alone is split by `engine`, with exponents `mu`.
    """
    if isinstance(operand, Slices):
        return operand.planes[:, b, rows, hs]
    if operand.numbers is not None:
        return engine.split_numbers(operand.numbers[b, rows, hs], mu[b, rows], side)
    return engine.split_rows(operand.x[b, rows, hs], mu[b, rows], side, operand.finite)
