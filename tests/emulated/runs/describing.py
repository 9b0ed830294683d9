"""Descriptions of rows, and the magnitudes that proofs multiply."""

from __future__ import annotations

import itertools

import cupy as cp
import numpy as np
from ozaki.backends.cupy._magnitudes import MagnitudeLayout
from ozaki.backends.cupy._tops import tops

from ozaki.backends.cupy import _magnitudes
from ozaki.backends.cupy import backend as _cupy
from ozaki.backends.numpy import _proof as _numpy_proof
from ozaki.backends.numpy import backend as _numpy
from ozaki.bounds.description import FIELDS, SAMPLED
from ozaki.bounds.levels import EVERY, SAMPLE
from runs.operands import hard, in_tiles, matrix


def descriptions(rng: np.random.Generator) -> None:
    """Rows, columns, strides, graded rows, NaN and Inf."""
    for dtype in ("f4", "f8"):
        for shape in ((3, 9900), (70, 130), (9, 33)):  # the first one in more segments than warps finish at once
            x = matrix(rng, shape, dtype, 20)
            x[0] = np.ldexp(x[0], -np.arange(shape[1]) // 9)
            x[1, ::3] = 0
            x[2, 5], x[2, 7] = np.nan, -np.inf
            for v in (x, np.asfortranarray(x), x[:, ::-1], x[:, 1:]):
                host, device = _numpy.describe(v[None]).fields, _cupy.describe(cp.asarray(v)[None]).fields.get()
                for field, h, d in zip(FIELDS, host, device, strict=True):
                    np.testing.assert_array_equal(h, d, err_msg=f"{field} {dtype} {shape}")


def looks(rng: np.random.Generator) -> None:
    """The least numbers of rows: empty ones, such as look empty, subnormal ones; none at all."""
    k = SAMPLED + int(rng.integers(1, 200))
    for batch, m, n, wide in ((1, 40, 9000, 3), (3, 9, 1, 30), (3, 9, 8, 4), (1, 5, 4, 30)):
        a, b = (matrix(rng, (batch, rows, k), "f4", wide) for rows in (m, n))
        a[:, 3], b[:, 0] = 0, np.ldexp(b[:, 0], -130 - rng.integers(20))
        a[0, 4] *= np.arange(k) != 7
        if n == 8:
            a[1, 2, 5], b[0, 3, ::9] = np.nan, np.inf
        if n == 4:
            a[0, 2, :SAMPLED], b[:] = 0, 0
        want = _numpy.look(a, b, (_numpy.describe(a), _numpy.describe(b)))()
        turned = a.swapaxes(1, 2).copy().swapaxes(1, 2)
        for left, right in ((a, b), (turned, b[:, ::-1].copy()[:, ::-1])):
            left, right = cp.asarray(left), cp.asarray(right)
            assert _cupy.look(left, right, (tops(left), tops(right)))() == want
            for some in (k, 1, int(rng.integers(2, SAMPLED))):
                shown = _numpy.look(a[..., :some], b[..., :some])()
                assert _cupy.look(left[..., :some], right[..., :some])() == shown
        assert want[0].told == (n != 4) and (n != 4 or want[1] == (np.inf, np.inf, 0, True))


def magnitudes(rng: np.random.Generator) -> None:
    """Of both operands at once, in rows, in tiles, and wide ones; views of every kind."""

    def view(x: np.ndarray) -> np.ndarray:
        turned = x.swapaxes(1, 2).copy().swapaxes(1, 2)
        views = x[..., :301], turned[..., 3:], turned[1:, ::-1, 1:302], x[:, ::-1, 2:303], x[1:, :, 300::-1]
        return views[rng.integers(len(views))]

    layouts = [
        MagnitudeLayout((rows, cols), k, sampled, tiles)
        for rows, cols, tiles in ((48, 48, (0, 0)), (512, 192, (256, 192)))
        for k, sampled in ((384, False), (128, True))
    ]
    layouts += [MagnitudeLayout((44, 44), 384, bits=bits) for bits in (21, int(rng.integers(8, 21)))]
    for dtypes, layout in itertools.product(itertools.product(("f4", "f8"), repeat=2), layouts):
        given = [view(hard(rng, 304, dtype)) for dtype in dtypes]
        left, right = (_cupy.describe(cp.asarray(x)) for x in given)
        got = _magnitudes.magnitudes(left, right, layout)
        for x, rows, tile, found in zip(given, layout.rows, layout.tiles, got[:2], strict=True):
            inner = np.arange(x.shape[2])
            inner = inner[inner % EVERY < SAMPLE] if layout.sampled else inner
            want = _numpy_proof._magnitudes(_numpy.describe(x), layout.bits, inner, np.float64)
            if tile:
                want, found = in_tiles(want, rows, layout.k, tile, 16 * (tile == 192)), found.reshape(len(x), -1)
            else:
                want = np.pad(want, ((0, 0), (0, rows - want.shape[1]), (0, layout.k - want.shape[2])))
            told = f"{x.dtype} {x.shape} {x.strides} {layout}"
            np.testing.assert_array_equal(want, found, err_msg=told)
