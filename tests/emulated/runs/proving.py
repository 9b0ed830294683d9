"""Products of magnitudes, exponents where they have none, and the worst ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.cupy import evidence
from ozaki.backends.cupy.steps.crossings import sampled_products
from ozaki.backends.cupy.steps.describing import describe, find_largest
from ozaki.backends.cupy.steps.proof import Wanted, least_product, lower_bound, worst_ratios
from ozaki.backends.numpy import _proof as on_host
from ozaki.backends.numpy._crossings import foretell, some_rows
from ozaki.backends.numpy._describe import Described as OnHost
from ozaki.backends.numpy._describe import describe as described_on_host
from ozaki.bounds import words as word_bounds
from ozaki.bounds.levels import levels
from ozaki.planning.facts import Ratio
from ozaki.schemes import PRESETS, Digits, Residues, Scheme, Words
from runs.device import Part
from runs.operands import matrix

Compared = tuple[Scheme | Words, int]
"""A scheme, and the rows of A in which its errors are compared."""


class Pair:
    """Rows of both operands (batch, rows, k), described on the host and on the device, and a lower bound on both."""

    def __init__(self, a: np.ndarray, b: np.ndarray, level: Any) -> None:
        self.host: list[OnHost] = [described_on_host(x) for x in (a, b)]
        self.part = Part()
        self.left, self.right = (describe(self.part.b, self.part.given(cp.asarray(x))) for x in (a, b))
        left, right = self.host
        self.on_host = on_host.lower_bound(left, right, level)
        self.lower = lower_bound(self.part.b, self.part.device, self.left, self.right, level)

    @property
    def spans(self) -> tuple[int, int]:
        left, right = self.host
        return left.span, right.span

    def expected(self, of: Compared) -> float:
        """The worst ratio that NumPy finds."""
        left, right = self.host
        with np.errstate(all="ignore"):
            return on_host.worst_ratio(self.on_host, left, right, self.spans, *of)

    def found(self, compared: Sequence[Compared]) -> list[Any]:
        """The worst ratios that the device finds for all of these at once."""
        left, right = self.host
        wanted = []
        for scheme, rows in compared:
            if isinstance(scheme, Words):
                wanted.append(Wanted(word_bounds.error_terms(left.on_host, right.on_host, scheme), rows, 0.0))
            else:
                wanted.append(Wanted(scheme, rows, scheme.dropped(left.k, self.spans)))
        part = self.part
        ratios = worst_ratios(part.b, part.device, self.lower, self.left, self.right, wanted)
        return [part.value(each) for each in ratios]

    def check(self, *compared: Compared) -> None:
        """Assert that the device finds what NumPy finds; for digits and residues also the spans of the operands."""
        left, right = self.host
        for of, found in zip(compared, self.found(compared), strict=True):
            worst = self.expected(of)
            assert found.worst == worst, (found, worst, of, left.x.shape, right.x.shape)
            spans = Ratio(worst, self.spans, min(left.spans[1], right.spans[1]))
            assert isinstance(of[0], Words) or found == spans, (found, spans, of)


def proofs(rng: np.random.Generator) -> None:
    """The worst ratio at each level, also with entries that have no lower bound."""
    a, b = matrix(rng, (2, 40, 300), "f8"), matrix(rng, (1, 30, 300), "f8")
    a[0, :20, :150] = 0
    b[0, :15, 150:] = 0
    for level in ("sampled", "narrow", "wide"):
        pair = Pair(a, b, level)
        for scheme in (Residues(14), Digits(7), Digits(20)):
            for rows in (40, 20):
                pair.check((scheme, rows))
        pair.check((Residues(14), 40), (Digits(7), 20), (Digits(20), 40))


def exponents(rng: np.random.Generator) -> None:
    """Lower bounds from exponents, for entries whose wide magnitudes have no product; views of every kind."""
    for batch_a, batch_b, m, k, n in ((1, 1, 150, 70, 67), (2, 1, 9, 300, 130), (1, 2, 66, 33, 5), (2, 2, 70, 64, 64)):
        a, b = (rng.standard_cauchy((batch, rows, k)) ** 3 for batch, rows in ((batch_a, m), (batch_b, n)))
        a *= rng.random(a.shape) < 0.7
        b[..., k // 3 :] *= rng.random((batch_b, n, 1)) < 0.5  # then part of k has no products for these columns
        a[0, :4] = b[:, 2] = 0
        a[0, :4, 0] = b[:, 2, 2] = 1
        a[0, :4, 1], b[:, 2, 1] = np.ldexp(1.0, [-962, -963, -1014, -1015]), 2.0**-100
        a[0, 4], b[0, 4, 5], a[-1, 5, :7] = 0, np.nan, np.inf
        a[0, 6] = np.ldexp(rng.integers(1, 9, k).astype(float), -1074)
        b = b.astype(rng.choice(["f4", "f8"]))
        step = rng.choice([-1, 1])
        a, b = (np.asarray(x, order=rng.choice(["C", "F"]))[..., ::step] for x in (a, b))
        pair = Pair(a, b, "wide")
        lower, products = pair.on_host, pair.lower.products
        assert np.isinf(lower).any() and (lower[0, :4, 2] == [2.0**-1022, 2.0**-1023, 2.0**-1074, 0]).all()
        assert products is not None
        np.testing.assert_array_equal(lower, pair.part.value(products)[:, :m, :n])
        for scheme in (Residues(14), Digits(7)):
            pair.check((scheme, m))


def fused_proofs(rng: np.random.Generator) -> None:
    """Worst ratios found in the tiles that multiply magnitudes: batches, odd shapes, few rows, words."""
    for batch_a, batch_b, m, k, n in (
        (1, 1, 530, 700, 500),
        (2, 1, 300, 261, 259),
        (1, 2, 260, 1100, 257),
        (2, 2, 257, 256, 384),
    ):
        a, b = matrix(rng, (batch_a, m, k), "f4"), matrix(rng, (batch_b, n, k), "f4")
        a[0, : m // 2, : k // 2] = 0
        b[-1, : n // 3, k // 2 :] = 0
        a[0, 3], b[0, 5, 7], a[0, 9, 1] = 0, np.nan, np.inf
        a = np.asarray(a, order=rng.choice(["C", "F"]))
        for level in ("narrow", "sampled") if k > 1024 else ("narrow",):
            pair = Pair(a, b, level)
            assert pair.lower.products is None
            for of in ((Residues(8), m), (Digits(7), 128), (Digits(30), m), (PRESETS["halfhalf"], m)):
                pair.check(of)
            wanted = (Residues(8), m), (Digits(7), 128), (Digits(30), m - 9)  # one launch finds two ratios
            pair.check(*wanted[:2])
            pair.check(*wanted)


def least_products(rng: np.random.Generator) -> None:
    """The least product of rows that are not all zeros, from whole descriptions and from largest elements alone."""
    for batch_a, batch_b, m, k, n in (
        (1, 1, 40, 300, 30),
        (2, 1, 9, 1100, 13),
        (1, 2, 260, 1100, 257),
        (2, 2, 257, 256, 384),
    ):
        for kind in ("ordinary", "apart", "zeros"):
            a, b = abs(matrix(rng, (batch_a, m, k), "f4", 0)), abs(matrix(rng, (batch_b, n, k), "f4", 0))
            a[0, 3], b[0, 5, 7], a[0, 2, 1], b[-1, 4] = 0, np.nan, np.inf, 0
            if kind == "apart":
                a[-1, 1, 32:], b[-1, 2, :32] = 0, 0
            if kind == "zeros":
                a[:] = 0
            a = np.asarray(a, order=rng.choice(["C", "F"]))
            x, y = (described_on_host(each) for each in (a, b))
            expected = on_host.least_product(on_host.lower_bound(x, y, levels(k)[0]), x, y)
            assert (expected == 0, np.isinf(expected)) == (kind == "apart", kind == "zeros"), (kind, expected)
            for find in (describe, find_largest):
                part = Part()
                left, right = (find(part.b, part.given(cp.asarray(x))) for x in (a, b))
                lower = lower_bound(part.b, part.device, left, right, levels(k)[0])
                assert part.value(least_product(part.b, part.device, lower, left, right)) == expected


def crossings(rng: np.random.Generator) -> None:
    """What some rows say of undecided entries is the same on both backends, of rows as they are and of scaled ones."""
    cases = [
        ((1, 3, 50), (1, 200, 50)),
        ((9, 5, 300), (1, 7, 300)),
        ((2, 60, 700), (2, 1, 700)),
        ((1, 50, 1), (1, 2, 1)),
    ]
    cases += [((1, 49, 9000), (1, 30, 9000))]
    for left, right in cases:
        for dtypes in (("f8", "f8"), ("f4", "f8"), ("f4", "f4")):
            wide = rng.choice([0, 8, 60])
            a, b = (
                (matrix(rng, shape, dtype) * np.exp2(rng.integers(-wide, wide + 1, shape))).astype(dtype)
                for shape, dtype in zip((left, right), dtypes, strict=True)
            )
            a[:, ::3, 0], b[:, 0] = np.nan, 0.0
            if rng.random() < 0.5:
                a, b = (x.swapaxes(1, 2).copy().swapaxes(1, 2) for x in (a, b))
            part = Part()
            x, y = (describe(part.b, part.given(cp.asarray(of))) for of in (a, b))
            found = part.value(sampled_products(part.b, x, y))
            c, d = (some_rows(described_on_host(of)) for of in (a, b))
            for dtype in ("float32", "float64"):
                for count in (18, 25):
                    assert evidence.crossings(found, Residues(count), dtype) == foretell(c, d, Residues(count), dtype)
