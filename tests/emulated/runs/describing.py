"""Descriptions of rows, and the magnitudes that proofs multiply."""

from __future__ import annotations

import itertools
from unittest import mock

import cupy as cp
import numpy as np

from ozaki.backends.cupy.steps.describing import describe, find_largest
from ozaki.backends.cupy.steps.magnitudes import RESULT, MagnitudeLayout
from ozaki.backends.cupy.steps.magnitudes import magnitudes as take_magnitudes
from ozaki.backends.cupy.steps.sample import sample
from ozaki.backends.numpy import _describe as on_host
from ozaki.backends.numpy import _proof as proof_on_host
from ozaki.bounds.description import FIELDS, SAMPLED
from ozaki.bounds.levels import EVERY, SAMPLE
from runs.device import Part
from runs.operands import hard, in_tiles, matrix


def descriptions(rng: np.random.Generator) -> None:
    """Rows, columns, strides, graded rows, NaN and Inf."""
    for dtype in ("f4", "f8"):
        for shape in ((3, 9900), (70, 130), (9, 33)):  # the first has more segments than warps finish at once
            x = matrix(rng, shape, dtype, 20)
            x[0] = np.ldexp(x[0], -np.arange(shape[1]) // 9)
            x[1, ::3] = 0
            x[2, 5], x[2, 7] = np.nan, -np.inf
            for v in (x, np.asfortranarray(x), x[:, ::-1], x[:, 1:]):
                part, host = Part(), on_host.describe(v[None]).fields
                found = part.fields(describe(part.b, part.given(cp.asarray(v)[None])))
                for field, h, d in zip(FIELDS, host, found, strict=True):
                    np.testing.assert_array_equal(h, d, err_msg=f"{field} {dtype} {shape}")


def samples(rng: np.random.Generator) -> None:
    """What samples show of rows: zero rows, rows that are zero in the sample alone, subnormal rows, only zero rows."""
    k = SAMPLED + int(rng.integers(1, 200))
    for batch, m, n, wide in ((1, 40, 9000, 3), (3, 9, 1, 30), (3, 9, 8, 4), (1, 5, 4, 30)):
        a, b = (matrix(rng, (batch, rows, k), "f4", wide) for rows in (m, n))
        a[:, 3], b[:, 0] = 0, np.ldexp(b[:, 0], -130 - rng.integers(20))
        a[0, 4] *= np.arange(k) != 7
        if n == 8:
            a[1, 2, 5], b[0, 3, ::9] = np.nan, np.inf
        if n == 4:
            a[0, 2, :SAMPLED], b[:] = 0, 0
        want = on_host.sample(a, b, (on_host.describe(a), on_host.describe(b)))
        turned = a.swapaxes(1, 2).copy().swapaxes(1, 2)
        for left, right in ((a, b), (turned, b[:, ::-1].copy()[:, ::-1])):
            given = cp.asarray(left), cp.asarray(right)
            part = Part()
            x, y = (part.given(each) for each in given)
            whole = find_largest(part.b, x), find_largest(part.b, y)
            assert part.value(sample(part.b, x, y, whole)) == want
            for length in (k, 1, int(rng.integers(2, SAMPLED))):
                part = Part()
                x, y = (part.given(each[..., :length]) for each in given)
                assert part.value(sample(part.b, x, y)) == on_host.sample(a[..., :length], b[..., :length])
        assert want[0].every_row_seen == (n != 4) and (n != 4 or want[1] == (np.inf, np.inf, 0, True))


def magnitudes(rng: np.random.Generator) -> None:
    """Magnitudes of both operands, taken at once: in rows, in tiles, and wide ones; views of every kind."""

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
        part = Part()
        left, right = (describe(part.b, part.given(cp.asarray(x))) for x in given)
        with mock.patch.object(MagnitudeLayout, "of", return_value=layout):
            taken = take_magnitudes(part.b, part.device, left, right, "narrow")
        got = part.value(taken.left), part.value(taken.right)
        for x, rows, tile, found in zip(given, layout.rows, layout.tiles, got, strict=True):
            inner = np.arange(x.shape[2])
            inner = inner[inner % EVERY < SAMPLE] if layout.sampled else inner
            want = proof_on_host._magnitudes(on_host.describe(x), layout.bits, inner, np.float64)
            if tile:
                want, found = in_tiles(want, rows, layout.k, tile, 16 * (tile == 192)), found.reshape(len(x), -1)
            else:
                want = np.pad(want, ((0, 0), (0, rows - want.shape[1]), (0, layout.k - want.shape[2])))
            case = f"{x.dtype} {x.shape} {x.strides} {layout}"
            np.testing.assert_array_equal(want, found, err_msg=case)
        assert all((part.raw(place, RESULT.size) == 0).all() for place in taken.results)
