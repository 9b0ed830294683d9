"""A product of slices or words: describe, split, multiply (in panels if need be), and insert what NaN and Inf give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.program.arrays import Array, Place
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.steps import one_read
from ozaki.backends.cupy.steps.bounds import terms_of
from ozaki.backends.cupy.steps.describing import describe, find_largest
from ozaki.backends.cupy.steps.engines.choice import matrices_of, panel_of
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.engines.fused_residues import SymmetricResidues
from ozaki.backends.cupy.steps.epilogue import Combine, Round
from ozaki.backends.cupy.steps.faults import flip
from ozaki.backends.cupy.steps.magnitudes import Magnitudes
from ozaki.backends.cupy.steps.nonfinite import patch
from ozaki.backends.cupy.steps.numbers import NumbersArray
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.backends.cupy.steps.projection import Check
from ozaki.backends.cupy.steps.undecided import Undecided, inner_products
from ozaki.records.plan import Plan
from ozaki.records.report import counted
from ozaki.records.shapes import SIDES
from ozaki.schemes import Residues, Scheme, Words
from ozaki.schemes.constants import KernelScheme

UNDECIDED = "undecided"
"""The fact, of the program of a product, that says how many entries were computed apart."""

Given = Array | Described | Slices
"""An operand: its rows alone, shape (batch, rows, k), or with their description, or split."""


def described(x: Described | Slices) -> Described:
    """The description of an operand that is described or split."""
    return x.described if isinstance(x, Slices) else x


def split_in_one_read(
    b: Builder, device: Device, engine: Engine, scheme: Scheme | Words, x: Array, side: str, whole: bool,
    magnitudes: Magnitudes | None = None, lost: Array | None = None, overlaps: bool = False,
) -> Slices:  # fmt: skip
    """Describe and split rows by one kernel, of an engine that `splits_in_one_read`.

    `whole`: with a whole description, else with the largest elements alone. `magnitudes`, `lost`, `overlaps`: as in
    `one_read`.
    """
    layout = engine.layout(scheme, side, *x.shape)
    if isinstance(scheme, Words):
        return one_read.find_and_split(b, device, x, scheme, layout, lost, overlaps)
    assert isinstance(scheme, KernelScheme)
    return one_read.describe_and_split(b, x, side, scheme, layout, whole, magnitudes, overlaps)


def multiply(
    b: Builder, device: Device, engine: Engine, plan: Plan, left: Given, right: Given, epilogue: Round | Combine,
    seed: Place | None = None,
) -> None:  # fmt: skip
    """Add the steps of left right^T, shape (batch, m, n), and of its epilogue.

    Describes and splits operands as far as the caller has not, and frees what it allocates. With `seed`, the place of a
    random number, the product is projected (`projection.Check`).
    """
    assert plan.scheme is not None
    (m, k, n), count = plan.shape, counted(plan.slices, plan.scheme.name)
    b.title = f"{count} of ({m} x {k}) ({k} x {n}), {plan.dtype}, {device.architecture}"
    made: list[Described | Slices] = []
    operands: list[Described | Slices] = []
    whole = isinstance(plan.scheme, Residues)
    in_one_panel = is_in_one_panel(engine, plan, epilogue.shape)
    for x, side in zip((left, right), SIDES, strict=True):
        if isinstance(x, Described | Slices):
            operands.append(x)
            continue
        overlaps = any(isinstance(each, Slices) for each in made)
        found: Described | Slices
        if in_one_panel and engine.splits_in_one_read(plan.scheme, side, x, whole):
            found = split_in_one_read(b, device, engine, plan.scheme, x, side, whole, overlaps=overlaps)
        else:
            found = (describe if whole else find_largest)(b, x)
        made.append(found)
        operands.append(found)
    undecided: Undecided | None = None
    finished = epilogue
    if plan.undecided_apart:
        assert isinstance(epilogue, Round) and isinstance(plan.scheme, Residues)
        terms = terms_of(b, described(operands[0]), described(operands[1]), plan.scheme, 0.0)
        undecided = Undecided.room(b, epilogue.shape, *terms)
        finished = replace(epilogue, undecided=undecided)
    check = None
    if seed is not None:
        of_right = described(operands[1]).x
        check = Check.begin(b, seed, epilogue.shape, k, of_right.shape[0])
        finished = replace(finished, projection=check.projection)
    _multiply_panels(b, engine, plan, operands[0], operands[1], finished, check)
    if check is not None:
        check.end(b)
    if undecided is not None:
        assert isinstance(epilogue.out, Array)
        b.release(*(of.places[0] for of in undecided.terms))
        rows = described(operands[0]).x, described(operands[1]).x
        inner_products(b, device, undecided, *rows, epilogue.out, isinstance(engine, SymmetricResidues))
        arrival = b.to_host("numbers of undecided entries, on the host", undecided.counts, (2,), "q")
        b.read(UNDECIDED, (b.evidence(arrival, _number),), int)
        b.release(undecided.listed, undecided.counts)
    if not isinstance(epilogue.out, NumbersArray):  # which holds no NaN or Inf, so that its operands may not either
        patch(b, described(operands[0]), described(operands[1]), epilogue)
    for each in made:
        release(b, each)


def is_in_one_panel(engine: Engine, plan: Plan, shape: tuple[int, ...]) -> bool:
    """Whether the slices of a product of that shape (batch, m, n) are held all at once."""
    return matrices_of(engine, plan, shape) == shape[0] and panel_of(engine, plan, shape) == shape[1:]


def _number(counts: npt.NDArray[Any]) -> int:
    """How many entries are undecided: those that were found, and mirror images."""
    return int(counts.sum())


def release(b: Builder, x: Described | Slices) -> None:
    """Free the description of an operand, and its slices and exponents if it is split."""
    if isinstance(x, Slices):
        b.release(x.planes, x.mu)
    b.release(described(x).fields)


def _multiply_panels(
    b: Builder, engine: Engine, plan: Plan, left: Described | Slices, right: Described | Slices,
    epilogue: Round | Combine, check: Check | None = None,
) -> None:  # fmt: skip
    """Multiply panel by panel, of some matrices at a time, splitting what is not split; NaN and Inf count as zeros.

    What is split already is held for the whole batch, so that parts of it would save little. An operand with one matrix
    for the whole batch is split once.
    """
    batch, m, n = epilogue.shape
    of_batch = any(isinstance(x, Slices) and x.mu.shape[0] > 1 for x in (left, right))
    most = batch if of_batch else matrices_of(engine, plan, epilogue.shape)
    if most == batch:
        _multiply_matrices(b, engine, plan, left, right, epilogue, check)
        return
    shared = [
        engine.split(b, x, side, plan.scheme)
        if isinstance(x, Described) and x.x.shape[0] == 1 and panel_of(engine, plan, (most, m, n)) == (m, n)
        else None
        for x, side in zip((left, right), SIDES, strict=True)
    ]
    for first in range(0, batch, most):
        some = first, min(first + most, batch)
        parts = [split or _matrices_of(b, x, *some) for split, x in zip(shared, (left, right), strict=True)]
        of_part = None if check is None else check.part(*some)
        _multiply_matrices(b, engine, plan, parts[0], parts[1], epilogue.part(0, *some), of_part)
        for part, x in zip(parts, (left, right), strict=True):
            if isinstance(part, Described) and isinstance(x, Described):
                part.release_rows(b, x)
    for split in shared:
        if split is not None:
            b.release(split.planes, split.mu)


def _matrices_of(b: Builder, x: Described | Slices, first: int, last: int) -> Described | Slices:
    """The rows of matrices first, ..., last - 1 of the batch, or of the only matrix."""
    if isinstance(x, Slices) or x.x.shape[0] == 1:
        return x
    return x.some_rows(b, (first, last), (0, x.x.shape[1]))


def _multiply_matrices(
    b: Builder, engine: Engine, plan: Plan, left: Described | Slices, right: Described | Slices,
    epilogue: Round | Combine, check: Check | None,
) -> None:  # fmt: skip
    """Multiply matrices panel by panel."""
    _, m, n = epilogue.shape
    rows, cols = panel_of(engine, plan, epilogue.shape)
    scheme = plan.scheme
    for c in range(0, n, cols):
        y = _slices_of_rows(b, engine, plan, right, "right", c, min(c + cols, n))
        if check is not None:
            assert isinstance(scheme, Residues)
            _flip(b, y)
            check.right(b, scheme, y, c)
        for r in range(0, m, rows):
            x = _slices_of_rows(b, engine, plan, left, "left", r, min(r + rows, m))
            panel = epilogue.part(1, r, min(r + rows, m)).part(2, c, min(c + cols, n))
            if check is not None:
                _flip(b, x)
            engine.multiply(b, plan.scheme, x, y, panel)
            if check is not None:
                assert isinstance(scheme, Residues)
                if c + cols >= n:  # of all columns of B
                    check.left(b, scheme, x, r)
                check.exponents(b, scheme, x, described(left), r)
            _release_slices(b, x, left)
        if check is not None:
            assert isinstance(scheme, Residues)
            check.exponents(b, scheme, y, described(right), c)
        _release_slices(b, y, right)


def _flip(b: Builder, slices: Slices) -> None:
    """Where a fault comes next: of slices, or of exponents."""
    flip(b, slices.planes)
    flip(b, slices.mu)


def _slices_of_rows(
    b: Builder, engine: Engine, plan: Plan, operand: Described | Slices, side: str, first: int, last: int
) -> Slices:
    """The slices of rows first, ..., last - 1 of an operand; `_release_slices` frees what this allocates."""
    if isinstance(operand, Slices):
        return operand.some_rows(b, first, last)
    some = operand.some_rows(b, (0, operand.x.shape[0]), (first, last))
    slices = engine.split(b, some, side, plan.scheme)
    if some is not operand:
        b.release(some.fields)  # not their tops, which rounding reads
    return slices


def _release_slices(b: Builder, slices: Slices, whole: Described | Slices) -> None:
    """Free what `_slices_of_rows` allocated for rows of `whole`."""
    if isinstance(whole, Slices):
        slices.release_rows(b, whole)
    else:
        b.release(slices.planes, slices.mu)
        slices.described.release_rows(b, whole)
