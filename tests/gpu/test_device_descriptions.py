"""NumPy and CuPy give the same bits: descriptions, and the slices that are cut in the same read."""

from __future__ import annotations

import numpy as np
import pytest
from operands import random_matrix, views

from ozaki.backends.numpy import backend as _numpy
from ozaki.bounds.description import FIELDS
from ozaki.schemes import Digits, Residues

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_descriptions(seed):
    from ozaki.backends.cupy import backend as _cupy

    rng = np.random.default_rng(seed)
    shape = tuple(int(v) for v in rng.integers(1, 700, 2))
    if seed % 4 == 0:
        shape = (int(rng.integers(1, 5)), int(rng.integers(1, 200000)))
    if seed % 5 == 0:
        shape = (int(rng.integers(1000, 3000)), int(rng.integers(1, 50)))
    x = random_matrix(rng, shape, rng.choice(["f4", "f8"]), int(rng.choice([0, 3, 40, 500])))
    if seed % 3 == 0:
        x.reshape(-1)[rng.integers(0, x.size, 3)] = [np.nan, np.inf, -np.inf]
    if seed % 7 == 0:
        x = np.rint(x)
    x, y = views(rng, x)
    for u, v in ((x, y), (x.T, y.T)):
        host, device = _numpy.describe(u[None]).fields, _cupy.describe(v[None]).fields.get()
        for field, h, d in zip(FIELDS, host, device, strict=True):
            np.testing.assert_array_equal(h, d, err_msg=f"{field}, seed {seed}, shape {u.shape}")


@pytest.mark.parametrize("shape", [(40, 1000), (3, 40000), (1100, 17000), (70, 3000)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("step", [0.01, 0.5, -0.004])
def test_descriptions_of_graded_rows(shape, dtype, step):
    """Segments of a row lie far below its top, or hold nothing: what was noted for them does not do."""
    from ozaki.backends.cupy import backend as _cupy

    rng = np.random.default_rng(shape[1])
    grade = np.clip(step * np.arange(shape[1]), -100, 100).astype(int)
    x = np.ldexp(rng.standard_normal(shape), -grade).astype(dtype)
    x[:, shape[1] // 3 : shape[1] // 2] = 0
    x[1] = np.ldexp(rng.integers(-7, 8, shape[1]).astype(dtype), -grade // 8)  # multiples of a power of two
    x[2, ::50] = np.nan
    x[0] *= x.dtype.type(2.0 ** (-120 if dtype == "f4" else -1010))  # subnormal numbers too
    for u, v in ((x, cp.asarray(x)), (x, cp.asarray(x.T.copy()).T), (x[:, 1:], cp.asarray(x)[:, 1:])):
        host, device = _numpy.describe(u[None]).fields, _cupy.describe(v[None]).fields.get()
        for field, h, d in zip(FIELDS, host, device, strict=True):
            np.testing.assert_array_equal(h, d, err_msg=field)


@pytest.mark.parametrize("seed", range(20))
def test_least_numbers_of_rows(seed):
    """What a look at some elements, and the largest ones of whole rows, tell of all rows."""
    from ozaki.backends.cupy._tops import tops

    from ozaki.backends.cupy import backend as _cupy

    rng = np.random.default_rng(5000 + seed)
    batch, k = int(rng.integers(1, 4)), int(rng.integers(2, 900))
    most = 3000 if k > 200 else 30000
    wide = int(rng.choice([3, 12, 70]))
    sides = [random_matrix(rng, (batch, int(rng.integers(1, most)), k), "f4", wide) for _ in "ab"]
    sides[0][:, ::9] = 0
    if seed % 4 == 0:
        sides[1][-1, -1, : k - 1] = 0  # a row that looks empty
    if seed % 5 == 0:
        sides[0][:] = 0
    turned = [rng.integers(2) for _ in sides]
    on_device = [cp.asarray(x, order="F" if t else "C") for x, t in zip(sides, turned, strict=True)]
    expected = _numpy.look(*sides, tuple(_numpy.describe(x) for x in sides))()
    assert _cupy.look(*on_device, tuple(tops(x) for x in on_device))() == expected
    some = int(rng.integers(1, k))
    shown = _numpy.look(*(x[..., :some] for x in sides))()
    assert _cupy.look(*(x[..., :some] for x in on_device))() == shown


@pytest.mark.parametrize("seed", range(60))
def test_one_read(seed):
    """Blocks that hold whole rows find and cut what two kernels do."""
    from ozaki.backends.cupy._tops import tops
    from ozaki.backends.cupy.engines import _hopper

    from ozaki.backends.cupy import _describe_split, _magnitudes, _split
    from ozaki.backends.cupy import backend as _cupy

    if cp.cuda.Device().compute_capability != "90":
        pytest.skip("clusters are those of Hopper")
    rng = np.random.default_rng(3000 + seed)
    scheme = (Residues(14), Residues(7), Digits(3), Digits(7), Digits(5, 7), Residues(20))[seed % 6]
    sums = isinstance(scheme, Residues) or seed % 4 == 0
    dtype = rng.choice(["f4", "f8"])
    longest = 6144 if dtype == "f8" else 8192 if sums else 12288
    batch, rows, k = int(rng.integers(1, 4)), int(rng.integers(1, 700)), int(rng.integers(1, longest + 1))
    x = random_matrix(rng, (batch, rows, k), dtype, int(rng.choice([0, 3, 40, 100 if dtype == "f4" else 800])))
    x[:, ::5] = rng.integers(-9, 10, x[:, ::5].shape)  # sums of these are exact
    if seed % 3 == 0:
        x.reshape(-1)[rng.integers(0, x.size, 5)] = [np.nan, np.inf, -np.inf, np.nan, np.inf]
    _, x = views(rng, x)
    for side in ("left", "right"):
        layout = _hopper.layout(scheme, side, *x.shape)
        expected = _split.split((_cupy.describe if sums else tops)(x), side, scheme, layout)
        room = None
        if sums:
            room = _magnitudes.room(x, x, _magnitudes.MagnitudeLayout.in_tiles(rows, rows, k, bool(rng.integers(2))))
            room.left.fill(85), room.right.fill(85)
        got = _describe_split.describe_and_split(x, side, scheme, layout, sums, room).begin()
        for i, field in enumerate(FIELDS):
            if sums or field in ("top", "nonfinite"):
                assert bool((expected.described.fields[i] == got.described.fields[i]).all()), (field, seed)
        assert bool((expected.mu == got.mu).all())
        ones = _cupy.describe(cp.ones((batch, layout.filled, layout.k), "f4"))
        slices = _split.split(ones, side, scheme, _hopper.layout(scheme, side, *ones.x.shape)).planes
        filled = cp.tile((slices.reshape(scheme.count, -1) != 0).any(0), scheme.count)
        assert float(filled.mean()) == pytest.approx(layout.filled / layout.rows)
        assert bool((expected.planes == got.planes)[filled].all())
        if room is not None:
            want = _magnitudes.magnitudes(expected.described, expected.described, room.layout)
            ones = _cupy.describe(cp.ones((batch, layout.filled, room.layout.k * 4), "f4"))
            filled = getattr(_magnitudes.magnitudes(ones, ones, room.layout), side) != 0
            assert float(filled.mean()) == pytest.approx(layout.filled / layout.rows)
            assert bool((getattr(want, side) == getattr(room, side))[filled].all())
