"""Undecided entries: they are listed while products are rounded, and computed apart."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.steps import product
from ozaki.backends.cupy.steps.bounds import terms_of
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines.choice import panel_of
from ozaki.backends.cupy.steps.engines.cublas_residues import CublasResidues
from ozaki.backends.cupy.steps.engines.engine import Engine, units_of, workspace_of
from ozaki.backends.cupy.steps.engines.fused_residues import FusedResidues, SymmetricResidues
from ozaki.backends.cupy.steps.engines.winograd import Winograd
from ozaki.backends.cupy.steps.epilogue import Round
from ozaki.backends.cupy.steps.undecided import Undecided, inner_products
from ozaki.backends.numpy import _describe as on_host
from ozaki.backends.numpy._inner_products import inner_products as on_the_host
from ozaki.bounds.undecided import row_errors
from ozaki.schemes import Residues, scaling_of
from runs.device import Part
from runs.operands import hard, matrix, same


def _exact(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """The correctly rounded inner products of all rows of a and b; NaN and Inf count as zeros."""
    shape = max(len(a), len(b)), a.shape[1], b.shape[1]
    out = np.empty(shape, dtype)
    on_the_host(a, b, np.indices(shape).reshape(3, -1), out)
    return out


def _near(a: np.ndarray, b: np.ndarray, scheme: Residues, factor: int = 2, more: int = 2) -> np.ndarray:
    """Near which exact entries boundaries lie: within `factor` errors and `more` units of the integer Cbar.

    Entries may be listed only where one lies within a little more than twice the error of the exact entry.
    """
    left, right = on_host.describe(a).on_host, on_host.describe(b).on_host
    errors = row_errors(left, right, scheme).of_entries()
    scaling = scaling_of(scheme, left.k)
    units = (left.top - left.bits(scaling))[..., :, None] + (right.top - right.bits(scaling))[..., None, :]
    a, b = (np.nan_to_num(x.astype("f8"), nan=0.0, posinf=0.0, neginf=0.0) for x in (a, b))
    found = np.zeros(errors.shape, bool)
    for i, row, col in itertools.product(*map(range, errors.shape)):
        x, y = a[i if len(a) > 1 else 0, row], b[i if len(b) > 1 else 0, col]
        entry = sum((Fraction(p) * Fraction(q) for p, q in zip(x, y, strict=True)), Fraction(0))
        unit = Fraction(2) ** int(units[i, row, col])
        # What the limbs below three are worth is far below the error.
        reach = (factor * Fraction(errors[i, row, col]) * (1 + Fraction(1, 2**20)) + more) * unit
        found[i, row, col] = errors[i, row, col] > 0 and _float(entry - reach) != _float(entry + reach)
    return found


def _float(x: Fraction) -> tuple[float, bool]:
    """A fraction as a float64, and its sign."""
    try:
        return float(x), x < 0
    except OverflowError:
        return float("inf"), x < 0


def _multiplied(
    engine: Engine, scheme: Residues, a: np.ndarray, b: np.ndarray, dtype: str, capacity: int | None = None
) -> np.ndarray:
    """Which entries a product by an engine lists; compare entries with exact ones, before and after these are put in.

    `capacity`: of the list, in place of as many as there are entries.
    """
    part = Part()
    x, y = (part.given(cp.asarray(of), name) for of, name in ((a, "a"), (b, "b")))
    described = describe(part.b, x), describe(part.b, y)
    terms = terms_of(part.b, *described, scheme, 0.0)
    left, right = (
        engine.split(part.b, of, side, scheme) for of, side in zip(described, ("left", "right"), strict=True)
    )
    shape = max(len(a), len(b)), a.shape[1], b.shape[1]
    out = part.b.array("c", shape, np.dtype(dtype).char)
    undecided = Undecided.room(part.b, shape, *terms)
    entries = int(np.prod(shape))
    undecided = replace(undecided, listed=part.b.array("list", (entries if capacity is None else capacity,), "q"))
    engine.multiply(part.b, scheme, left, right, Round(out, undecided=undecided))
    before, counts = part.value(out).copy(), part.raw(undecided.counts, 16).view(np.int64)
    listed = part.value(undecided.listed)[: counts[0]].copy()
    assert len(set(listed.tolist())) == len(listed) == min(counts[0], undecided.listed.size)
    mirrored = isinstance(engine, SymmetricResidues)
    found = np.zeros(shape, bool)
    found.reshape(-1)[listed] = True
    if mirrored:
        assert not np.triu(found, 1).any() and (len(listed) < counts[0] or np.tril(found, -1).sum() == counts[1])
        found |= found.swapaxes(1, 2)
    if len(listed) == counts[0]:
        assert found.sum() == counts.sum()
        same(_exact(a, b, dtype)[~found], before[~found])
    few = replace(part.device, multiprocessors=1)  # blocks have many entries each
    inner_products(part.b, few if entries % 4 == 0 else part.device, undecided, x, y, out, mirrored)
    same(_exact(a, b, dtype), part.value(out))
    return found


def _engines() -> list[Engine]:
    device = devices.current()
    return [FusedResidues(device), Winograd(device)] if device.family.fused else [CublasResidues(device)]


def listed(rng: np.random.Generator) -> None:
    """All entries that are rounded wrongly are listed, and few others; where there is no room, all are computed."""
    for engine, (slices, dtype) in itertools.product(
        _engines(), ((3, "f8"), (9, "f8"), (14, "f8"), (20, "f8"), (5, "f4"), (8, "f4"))
    ):
        one = isinstance(engine, Winograd)
        if one and slices not in (5, 14, 20):
            continue
        a, b = hard(rng, 70, dtype), hard(rng, 70, dtype)[:, ::-1]
        a[1, 3], b[1, 37] = np.nan_to_num(a[1, 3], posinf=3, neginf=2), np.nan_to_num(b[1, 37], posinf=3, neginf=2)
        b = b.swapaxes(1, 2).copy().swapaxes(1, 2) if rng.random() < 0.5 else b
        pairs = [(a[:1], b[:1, :36])] if one else [(a, b), (a[1:], b[..., :33, :])]
        for x, y in pairs:
            scheme = Residues(slices)
            found = _multiplied(engine, scheme, x, y, dtype)
            if dtype == "f8":
                needed = _near(x, y, scheme)
                assert not (found & ~needed).any(), np.argwhere(found & ~needed)
            _multiplied(engine, scheme, x, y, dtype, int(rng.integers(0, found.sum() + 2)))
    x, y = matrix(rng, (1, 90, 40), "f8"), matrix(rng, (1, 140, 40), "f8")
    for engine in _engines():
        shares = [_multiplied(engine, Residues(slices), x, y, "d").mean() for slices in (14, 17, 20)]
        assert shares[0] > 0.9 and 0.1 > shares[1] > 0 and shares[2] < 0.001, shares
        # As many as have a boundary within the error of the exact entry, which is about Cbar.
        few, scheme = (x[:, :40], y[:, :80]), Residues(16)
        found = _multiplied(engine, scheme, *few, "d")
        about = _near(*few, scheme, 1, 0).sum()
        assert about > 50 and 0.75 < found.sum() / about < 1.33, (found.sum(), about)
        # Exact images: no entry is undecided.
        p, q = (np.rint(np.clip(each, -1, 1) * 1000) for each in (x, y))
        assert not _multiplied(engine, Residues(14), p, q, "d").any()


def small_listed(rng: np.random.Generator) -> None:
    """Entries far below the largest that residues hold, zeros, and some near over- and underflow, beside each other."""
    for engine, (slices, dtype) in itertools.product(
        _engines(), ((17, "f8"), (20, "f8"), (21, "f8"), (22, "f8"), (7, "f4"), (9, "f4"))
    ):
        form = np.finfo(dtype)
        for kind in range(3):
            a, b = (np.exp(3 * rng.standard_normal((1, rows, 60))) * rng.choice([-1, 1], 60) for rows in (40, 70))
            a[:, ::3, :30], b[:, ::2, 30:] = 0, 0
            a[0, 1, 30:], b[0, 4:6, :30] = -a[0, 1, :30], b[0, 4:6, 30:]
            if kind == 1:
                a, b = (np.rint(x * 8) * 2.0 ** rng.integers(-40, 40, (*x.shape[:2], 1)) for x in (a, b))
            elif kind == 2:
                ends = (form.minexp // 2, form.minexp // 2 - 12, form.maxexp // 2 - 4, 0)
                a, b = (np.ldexp(x, rng.choice(ends, (*x.shape[:2], 1))) for x in (a, b))
            _multiplied(engine, Residues(slices), a.astype(dtype), b.astype(dtype), dtype)


def triangles_listed(rng: np.random.Generator) -> None:
    """A matrix times its own transpose: entries below the diagonal stand for those above it."""
    engine = SymmetricResidues.of(devices.current(), "symmetric")
    for slices, dtype in ((14, "f8"), (17, "f8"), (7, "f4")):
        a = matrix(rng, (2, 300, 50), dtype)
        assert _multiplied(engine, Residues(slices), a, a, dtype).any()
        _multiplied(engine, Residues(slices), a, a, dtype, 7)


def products_apart(rng: np.random.Generator) -> None:
    """Whole products, in panels, too, and projected; NaN and Inf, which come last."""
    panels = 0
    for slices, dtype, shape in (
        (15, "f8", ((2, 70, 60), (2, 60, 90))), (18, "f8", ((150, 60), (60, 600))), (7, "f4", ((300, 60), (60, 40))),
        (16, "f8", ((3, 33, 130), (130, 40))),
    ):  # fmt: skip
        a, b = matrix(rng, shape[0], dtype), matrix(rng, shape[1], dtype)
        a[..., 3, 5], b[..., 7, 1], a[..., 9, :], b[..., 2] = np.inf, np.nan, 0, np.ldexp(b[..., 2], -100)
        expected = ozaki.matmul(a, b, accuracy="exact")
        options: dict[str, Any] = {"scheme": "residues", "slices": slices}
        plan = ozaki.plan(cp.asarray(a), cp.asarray(b), **options)
        for engine, limited, seeded in itertools.product(_engines()[:1], (False, True), (False, True)):
            part = Part()
            left, right = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]).swapaxes(1, 2)
            x, y = (part.given(cp.asarray(of), name) for of, name in ((left, "a"), (right, "b")))
            seed = part.given(cp.asarray(np.array([1234567], np.uint64).view(np.int64)), "seed") if seeded else None
            described = describe(part.b, x), describe(part.b, y)
            assert isinstance(plan.scheme, Residues)
            sizes = len(left), left.shape[1], right.shape[1]
            out = part.b.array("c", sizes, np.dtype(dtype).char)
            of = replace(plan, undecided_apart=True)
            if limited:
                needs = partial(workspace_of, engine, plan.scheme, left.shape[2], sizes[0])
                units = units_of(engine, plan.scheme, left.shape[2])
                of = replace(of, workspace_limit=max(needs(*units), needs(*sizes[1:]) // 2))
                panels += panel_of(engine, of, sizes) != sizes[1:]
            of_seed = None if seed is None else seed.at
            product.multiply(part.b, part.device, engine, of, *described, Round(out), of_seed)
            same(expected.reshape(sizes), part.value(out))
    assert panels > 1


def values(rng: np.random.Generator) -> None:
    """Inner products of some entries: strides, stacks, ties, zeros, NaN and Inf, the ends of both formats."""
    for formats, dtype, k in itertools.product(
        itertools.product("fd", repeat=2), "fd", (0, 1, 31, 33, int(rng.integers(64, 300)))
    ):
        a, b = (_rows(rng, k, of) for of in formats)
        for x, y in ((a, b), (a[:1], b[:, ::-1]), (a[:, ::2, ::-1], b[1:, 3:, ::-1])):
            _some(rng, x, y, dtype)
            _some(rng, x.swapaxes(1, 2).copy().swapaxes(1, 2), y, dtype)


def _some(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, dtype: str) -> None:
    """Compare some entries, in an array of other strides, with those of the host."""
    part = Part()
    left, right = part.given(cp.asarray(x), "a"), part.given(cp.asarray(y), "b")
    shape = max(len(x), len(y)), x.shape[1], y.shape[1]
    wanted = rng.random(shape) < rng.choice((0.02, 0.5, 1.0))
    numbers = rng.permutation(np.flatnonzero(wanted))
    more = int(rng.integers(0, 3))  # than there is room for, or less
    listed = part.given(cp.asarray(np.append(numbers, [] if more else [-1]).astype(np.int64)), "list")
    counts = part.given(cp.asarray(np.array([len(numbers) + (more == 2), 0])), "counts")
    if more == 2:
        wanted[:] = True
    whole = np.full((shape[0], shape[2] + 2, 2 * shape[1]), np.nan, dtype)
    c = cp.asarray(whole)
    out = (
        part.given(c[:, 1:-1, ::2], "c").swapped()
        if rng.random() < 0.5
        else part.b.array("c", shape, np.dtype(dtype).char)
    )
    terms = terms_of(part.b, describe(part.b, left), describe(part.b, right), Residues(14), 0.0)  # which are not read
    device = replace(part.device, multiprocessors=int(rng.choice((1, 2, part.device.multiprocessors))))
    inner_products(part.b, device, Undecided(listed, counts.at, *terms, shape), left, right, out)
    part.run()
    got = part.value(out) if out.buffer.kind != "given" else cp.asnumpy(c)[:, 1:-1, ::2].swapaxes(1, 2)
    same(_exact(x, y, dtype)[wanted], got[wanted])


def _rows(rng: np.random.Generator, k: int, dtype: str) -> np.ndarray:
    """Two matrices of rows for hard sums, shape (2, 12, k)."""
    x = matrix(rng, (2, 12, k), dtype, 3)
    form = np.finfo(dtype)
    with np.errstate(all="ignore"):
        x[0, 0], x[0, 1] = 0, rng.integers(-3, 4, k)
        x[0, 2, 1::2] = -x[0, 2, : k // 2 * 2 : 2]  # cancels where the other row is constant
        x[0, 3], x[1, 0] = 1, form.smallest_subnormal * rng.integers(-9, 10, k)
        x[0, 4] = np.ldexp(rng.integers(-9, 10, k).astype(float), form.minexp // 2 + rng.integers(-30, 5, k))
        x[0, 5] = np.ldexp(x[0, 5], form.maxexp // 2 + 1)
        x[0, 6] = np.ldexp(x[0, 6], rng.integers(form.minexp, form.maxexp - 3, k))
        x[0, 7], x[0, 8] = np.nan, form.max
        x[1, 1, ::3], x[1, 2, ::5] = np.inf, np.nan
        if k > 2:  # a half of a unit of float32 or float64, and far less
            x[1, 3], x[1, 4] = 0, 0
            x[1, 3, :3] = 1, 2.0**-24, -(2.0**-70)
            x[1, 4, :3] = -1, 2.0 ** -(53 if dtype == "d" else 24), 2.0**-100
            x[1, 5, :] = 0
            x[1, 5, [0, -1]] = -0.0, 1
        # Products of rows 6 .. 8 and 9 .. 11 cancel but for the last bits of some, so that errors of products are all
        # that is left, and their sum is rounded.
        half = k // 2
        x[1, 6:9, half : 2 * half] = x[1, 6:9, :half]
        x[1, 9:, half : 2 * half] = -np.nextafter(x[1, 9:, :half], rng.choice([-np.inf, 0, np.inf], (3, half)))
        x[1, 6:, 2 * half :] = 0
    return x
