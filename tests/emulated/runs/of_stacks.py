"""Facts of stacks of small matrices, which one launch finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import repeated as kept
from ozaki.backends.cupy.products import Repetition
from ozaki.backends.cupy.steps.proof import Wanted
from ozaki.backends.cupy.steps.stack_facts import stack_facts, takes
from ozaki.backends.numpy import _proof as on_host
from ozaki.backends.numpy._describe import describe as described_on_host
from ozaki.bounds.native import Extent
from ozaki.planning.facts import Ratio, WorstRatio
from ozaki.schemes import ComplexResidues, Digits, Residues
from runs.device import Part, seen
from runs.operands import same

KINDS = ("ordinary", "ordinary", "wide", "graded", "small", "large", "integers", "sparse", "empty")


def rows_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """A stack of rows (batch, rows, k) of a kind drawn for all, with single rows and elements of other kinds."""
    real = np.dtype(dtype).char.lower()
    finfo = np.finfo(real)

    def part(kind: str, shape: tuple[int, ...]) -> np.ndarray:
        x = rng.standard_normal(shape)
        match kind:
            case "wide":
                x = np.ldexp(x, rng.integers(-40, 40, shape))
            case "graded":
                x = np.ldexp(x, -np.arange(shape[-1]) // 3)
            case "small":  # subnormal for the most part
                x = np.ldexp(x, finfo.minexp - finfo.nmant // 2)
            case "large":
                x = np.ldexp(x / (abs(x).max(initial=1) * 2), finfo.maxexp)
            case "integers":
                x = rng.integers(-7, 8, shape).astype(float)
            case "sparse":
                x = x * (rng.random(shape) < 0.2)
            case "empty":
                x = x * 0
        with np.errstate(all="ignore"):
            x = x.astype(real)
        x[rng.random(shape) < rng.choice([0, 0, 1e-2])] = rng.choice([0.0, np.nan, np.inf, -np.inf])
        return x

    def whole(kind: str, shape: tuple[int, ...]) -> np.ndarray:
        x = part(kind, shape)
        return x if np.dtype(dtype).kind == "f" else (x + part(kind, shape) * np.dtype(dtype).type(1j)).astype(dtype)

    with np.errstate(all="ignore"):
        x = whole(str(rng.choice(KINDS)), shape)
        for _ in range(rng.integers(0, 4)):
            x[rng.integers(shape[0]), rng.integers(shape[1])] = whole(str(rng.choice(KINDS)), shape[2:])
    return x


def laid_out(rng: np.random.Generator, x: Any) -> Any:
    """The same elements with other strides: gaps, turned axes, negative steps."""
    order = rng.permutation(3)
    steps = rng.choice([1, 1, 1, 2, -1], 3)
    shape = [x.shape[axis] * abs(int(step)) + int(rng.integers(3)) for axis, step in zip(order, steps, strict=True)]
    big = cp.zeros(tuple(shape), x.dtype)
    view = big[tuple(slice(None, None, int(step)) for step in steps)]
    view = view[tuple(slice(0, x.shape[axis]) for axis in order)].transpose(tuple(int(i) for i in np.argsort(order)))
    view[...] = x
    return view


def _sizes(drawn: np.random.Generator) -> tuple[int, int, int, int]:
    """Batch, m, k, n: of few elements, since threads are emulated."""

    def up_to(most: int) -> int:
        return int(drawn.integers(1, most + 1))

    def one_of(*some: int) -> int:
        return int(drawn.choice(some))

    match drawn.integers(5):
        case 0:
            return up_to(30), up_to(20), up_to(20), up_to(20)
        case 1:
            return up_to(4), up_to(80), up_to(80), up_to(80)
        case 2:
            return up_to(2), one_of(1, 16, 130, 256), one_of(1, 16, 130, 256), one_of(1, 16, 130, 256)
        case 3:
            return up_to(40), 16, 16, 16
    return 2, one_of(1, 31, 64, 100), one_of(1, 31, 64, 100), one_of(1, 31, 64, 100)


def found_of_stacks(rng: np.random.Generator) -> None:
    """The facts of random stacks are those that NumPy finds, whatever a block has of them."""
    for _ in range(30):
        batch, m, k, n = _sizes(rng)
        dtype = str(rng.choice(["f8", "f8", "f4", "c16", "c8"]))
        one_a, one_b = rng.random(2) < (0.15, 0.15)
        a, b = rows_of(rng, (1 if one_a else batch, m, k), dtype), rows_of(rng, (1 if one_b else batch, n, k), dtype)
        part = Part()
        device = replace(part.device, multiprocessors=int(rng.choice([1, 1, 2, 132])))
        given = [cp.asarray(x) for x in (a, b)]
        left, right = (part.given(laid_out(rng, x)) for x in given)
        x, y = (described_on_host(each) for each in (a, b))
        with np.errstate(all="ignore"):
            lower = on_host.lower_bound(x, y, "narrow")
        spans = x.spans[0], y.spans[0]
        schemes: list[Any] = [Residues(14), Residues(9), Digits(3), Digits(7)]
        if dtype in ("c16", "c8"):
            schemes = [ComplexResidues(15), ComplexResidues(8), Digits(5)]
        wanted, expected = [], []
        for _ in range(rng.choice([0, 1, 1, 2, 2])):
            scheme, rows = schemes[rng.integers(len(schemes))], int(rng.choice([m, m, max(m // 2, 1)]))
            wanted.append(Wanted(scheme, rows, scheme.dropped(x.k, spans)))
            with np.errstate(all="ignore"):
                worst = on_host.worst_ratio(lower, x, y, spans, scheme, rows)
            expected.append(Ratio(worst, spans, min(x.spans[1], y.spans[1])))
        facts = stack_facts(part.b, device, left, right, wanted)
        part.run()
        case = (a.shape, b.shape, dtype, wanted)
        assert [part.value(each) for each in facts.ratios] == expected, case
        assert part.value(facts.spans) == spans, case
        assert part.value(facts.extents) == (Extent.of(x.on_host), Extent.of(y.on_host)), case


def products_of_stacks(rng: np.random.Generator) -> None:
    """Products whose count is left open: the plan of NumPy, its bits, and one launch for the facts, also repeated."""
    for dtype, accuracy, shape in (
        ("f8", "fp64", (12, 16, 16, 16)),
        ("f4", "fp32", (5, 33, 20, 17)),
        ("c16", "fp64", (3, 9, 30, 11)),
        ("f8", "fp64", (2, 64, 64, 64)),
    ):
        batch, m, k, n = shape
        options: dict[str, Any] = {"accuracy": accuracy, "reproducible": True}
        kept.forget()
        for i in range(4):
            a = rng.standard_normal((batch, m, k)).astype(dtype)
            b = rng.standard_normal((batch, k, n)).astype(dtype)
            if i == 3:  # what is not ordinary: another count, or another level
                a[0, 0] = np.ldexp(1.0, -np.arange(k))
            x, y = cp.asarray(a), cp.asarray(b)
            with seen() as calls:
                c = ozaki.matmul(x, y, **options)
            same(ozaki.matmul(a, b, **options), c)
            if i == 3:
                of_device, of_numpy = ozaki.plan(x, y, **options), ozaki.plan(a, b, **options)
                assert (of_device.scheme, of_device.bound) == (of_numpy.scheme, of_numpy.bound)
                continue
            assert calls.repeated == (i > 0)
            assert calls.names.count("stack_facts") == 1 and calls.names.count("arrive") == 1, calls.names
            for name in ("magnitudes", "error_terms", "worst_ratio", "copy to host"):
                assert name not in calls.names, calls.names
    # Without a reproducible product, and for exact ones.
    a, b = rng.standard_normal((6, 8, 9)), rng.integers(-9, 9, (6, 9, 7)).astype(float)
    for options in ({"accuracy": "fp64"}, {"accuracy": "exact"}, {"accuracy": 1e-9}):
        with seen() as calls:
            c = ozaki.matmul(cp.asarray(a), cp.asarray(b), **options)
        assert calls.names.count("stack_facts") == 1, (options, calls.names)
        if options != {"accuracy": "fp64"}:  # by NumPy's own product
            same(ozaki.matmul(a, b, **options), c)
    kept.forget()


def launches_of_stacks(rng: np.random.Generator) -> None:
    """Of 65536 products of 16 x 16 x 16 one launch finds the facts, in a grid that any device has."""
    kept.forget()
    a, b = (cp.asarray(rng.standard_normal((3, 16, 16))) for _ in "ab")
    ozaki.matmul(a, b, accuracy="fp64", reproducible=True)
    (of_three,) = kept._kept.values()
    assert isinstance(of_three, kept._Seen)
    repetition = of_three.repetition
    assert [type(need) for need in repetition.facts.needs] == [WorstRatio]

    def more(view: Any) -> Any:
        arrays, rows = ([of._replace(shape=(65536, *of.shape[1:])) for of in x or ()] for x in (view.arrays, view.rows))
        return view._replace(arrays=tuple(arrays), rows=tuple(rows) or None)

    views = replace(repetition.views, left=more(repetition.views.left), right=more(repetition.views.right))
    large: Repetition = replace(repetition, views=views, out=more(repetition.out))
    names = [step.name for step in large.program().steps]
    assert names[:3] == ["clear", "stack_facts", "arrive"], names
    assert takes(views.left.rows[0], views.right.rows[0])  # type: ignore[index]
    assert max(step.kernel.grid[0] for step in large.program().steps if step.name == "stack_facts") <= 3 * 132  # type: ignore[attr-defined]
    kept.forget()
