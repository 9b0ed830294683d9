"""Products of magnitudes, exponents where they have none, and the worst ratio."""

from __future__ import annotations

import cupy as cp
import numpy as np
from ozaki.backends.cupy._magnitudes import Magnitudes
from ozaki.backends.cupy._tops import tops

from ozaki.backends.cupy import backend as _cupy
from ozaki.backends.numpy import backend as _numpy
from ozaki.schemes import PRESETS, Digits, Residues
from runs.operands import matrix


def proofs(rng: np.random.Generator) -> None:
    """Sampled products and their worst ratio, where there is no lower bound too."""
    a, b = matrix(rng, (2, 40, 300), "f8"), matrix(rng, (30, 300), "f8")
    a[0, :20, :150] = 0
    b[:15, 150:] = 0
    host = [_numpy.describe(x) for x in (a, b[None])]
    device = [_cupy.describe(cp.asarray(x)) for x in (a, b[None])]
    for level in ("sampled", "narrow", "wide"):
        lower = [
            of.wide_product(*d) if level == "wide" else of.narrow_product(*d, level == "sampled")
            for of, d in ((_numpy, host), (_cupy, device))
        ]
        for scheme in (Residues(14), Digits(7), Digits(20)):
            ways = [(of, x, d) for of, x, d in ((_numpy, lower[0], host), (_cupy, lower[1], device))]
            for rows in (lower[0].shape[1], lower[0].shape[1] // 2):
                expected, found = (of.worst_ratios(x, *d, [(scheme, rows)])[0]() for of, x, d in ways)
                assert expected == found
        wanted = [(Residues(14), 40), (Digits(7), 20), (Digits(20), 40)]  # side by side
        expected, found = ([look() for look in of.worst_ratios(x, *d, wanted)] for of, x, d in ways)
        assert expected == found


def exponents(rng: np.random.Generator) -> None:
    """Where wide magnitudes have no product: heavy tails, sums of zeros, too small for any bound; any views."""
    for batch_a, batch_b, m, k, n in ((1, 1, 150, 70, 67), (2, 1, 9, 300, 130), (1, 2, 66, 33, 5), (2, 2, 70, 64, 64)):
        a, b = (rng.standard_cauchy((batch, rows, k)) ** 3 for batch, rows in ((batch_a, m), (batch_b, n)))
        a *= rng.random(a.shape) < 0.7
        b[..., k // 3 :] *= rng.random((batch_b, n, 1)) < 0.5  # then nothing meets in part of k
        a[0, :4] = b[:, 2] = 0
        a[0, :4, 0] = b[:, 2, 2] = 1
        a[0, :4, 1], b[:, 2, 1] = np.ldexp(1.0, [-962, -963, -1014, -1015]), 2.0**-100
        a[0, 4], b[0, 4, 5], a[-1, 5, :7] = 0, np.nan, np.inf
        a[0, 6] = np.ldexp(rng.integers(1, 9, k).astype(float), -1074)
        b = b.astype(rng.choice(["f4", "f8"]))
        step = rng.choice([-1, 1])
        a, b = (np.asarray(x, order=rng.choice(["C", "F"]))[..., ::step] for x in (a, b))
        host = _numpy.describe(a), _numpy.describe(b)
        device = _cupy.describe(cp.asarray(a)), _cupy.describe(cp.asarray(b))
        lower, found = _numpy.wide_product(*host), _cupy.wide_product(*device)
        assert np.isinf(lower).any() and (lower[0, :4, 2] == [2.0**-1022, 2.0**-1023, 2.0**-1074, 0]).all()
        cp.cuda.Device().synchronize()  # the proof's stream as well
        np.testing.assert_array_equal(lower, found.values[:, :m, :n])
        for scheme in (Residues(14), Digits(7)):
            expected = _numpy.worst_ratios(lower, *host, [(scheme, m)])[0]()
            assert expected == _cupy.worst_ratios(found, *device, [(scheme, m)])[0]()


def fused_proofs(rng: np.random.Generator) -> None:
    """The same out of tiles: wide and narrow ones, batches, odd shapes, a glance, words."""
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
        host = _numpy.describe(a), _numpy.describe(b)
        device = _cupy.describe(cp.asarray(a)), _cupy.describe(cp.asarray(b))
        for sampled in (False, True) if k > 1024 else (False,):
            lower = _numpy.narrow_product(*host, sampled), _cupy.narrow_product(*device, sampled)
            assert isinstance(lower[1], Magnitudes)
            for scheme, rows in ((Residues(8), m), (Digits(7), 128), (Digits(30), m), (PRESETS["halfhalf"], m)):
                found, expected = (
                    module.worst_ratios(x, *d, [(scheme, rows)])[0]()
                    for module, x, d in ((_cupy, lower[1], device), (_numpy, lower[0], host))
                )
                assert found == expected, (found, expected, scheme, rows, (batch_a, batch_b, m, k, n))
            wanted = (Residues(8), m), (Digits(7), 128), (Digits(30), m - 9)  # two of them by one launch
            for some in (wanted[:2], wanted):
                found, expected = (
                    [look() for look in module.worst_ratios(x, *d, some)]
                    for module, x, d in ((_cupy, lower[1], device), (_numpy, lower[0], host))
                )
                assert found == expected, (found, expected, (batch_a, batch_b, m, k, n))


def least_products(rng: np.random.Generator) -> None:
    """The least product of rows that are not all zeros, of descriptions and of largest elements alone."""
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
            expected = _numpy.least_product(*(_numpy.describe(x) for x in (a, b)))()
            assert (expected == 0, np.isinf(expected)) == (kind == "apart", kind == "zeros"), (kind, expected)
            for find in (_cupy.describe, tops):
                assert _cupy.least_product(*(find(cp.asarray(x)) for x in (a, b)))() == expected
