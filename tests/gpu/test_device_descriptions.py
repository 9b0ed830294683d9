"""NumPy and CuPy give the same bits: descriptions, and slices that are split in the same read."""

from __future__ import annotations

import numpy as np
import pytest

from operands import random_matrix, views
from ozaki.backends.numpy._describe import describe, sample
from ozaki.bounds.description import FIELDS
from ozaki.bounds.levels import EVERY, SAMPLE
from ozaki.records.shapes import SIDES
from ozaki.schemes import Digits, Residues

cp = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_descriptions(seed):
    from built import description

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
        host, device = describe(u[None]).fields, description(v[None])
        for field, h in zip(FIELDS, host, strict=True):
            np.testing.assert_array_equal(h, device[field], err_msg=f"{field}, seed {seed}, shape {u.shape}")


@pytest.mark.parametrize("shape", [(40, 1000), (3, 40000), (1100, 17000), (70, 3000)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("step", [0.01, 0.5, -0.004])
def test_descriptions_of_graded_rows(shape, dtype, step):
    """Some segments of a row lie far below its top, or are zero, so that they cannot be described by themselves."""
    from built import description

    rng = np.random.default_rng(shape[1])
    grade = np.clip(step * np.arange(shape[1]), -100, 100).astype(int)
    x = np.ldexp(rng.standard_normal(shape), -grade).astype(dtype)
    x[:, shape[1] // 3 : shape[1] // 2] = 0
    x[1] = np.ldexp(rng.integers(-7, 8, shape[1]).astype(dtype), -grade // 8)  # multiples of a power of two
    x[2, ::50] = np.nan
    x[0] *= x.dtype.type(2.0 ** (-120 if dtype == "f4" else -1010))  # subnormal numbers too
    for u, v in ((x, cp.asarray(x)), (x, cp.asarray(x.T.copy()).T), (x[:, 1:], cp.asarray(x)[:, 1:])):
        host, device = describe(u[None]).fields, description(v[None])
        for field, h in zip(FIELDS, host, strict=True):
            np.testing.assert_array_equal(h, device[field], err_msg=field)


@pytest.mark.parametrize("seed", range(20))
def test_least_numbers_of_rows(seed):
    """`sample`: what the first elements of rows, with the largest ones of whole rows, show of all rows."""
    from built import Steps
    from ozaki.backends.cupy.steps.describing import find_largest
    from ozaki.backends.cupy.steps.sample import sample as on_device

    def sampled(arrays, largest):
        steps = Steps()
        x, y = steps.given(*arrays)
        whole = tuple(find_largest(steps.b, of) for of in (x, y)) if largest else None
        return steps.evidence(on_device(steps.b, x, y, whole))

    rng = np.random.default_rng(5000 + seed)
    batch, k = int(rng.integers(1, 4)), int(rng.integers(2, 900))
    most = 3000 if k > 200 else 30000
    wide = int(rng.choice([3, 12, 70]))
    sides = [random_matrix(rng, (batch, int(rng.integers(1, most)), k), "f4", wide) for _ in "ab"]
    sides[0][:, ::9] = 0
    if seed % 4 == 0:
        sides[1][-1, -1, : k - 1] = 0  # a row whose sample may be empty
    if seed % 5 == 0:
        sides[0][:] = 0
    turned = [rng.integers(2) for _ in sides]
    arrays = [cp.asarray(x, order="F" if t else "C") for x, t in zip(sides, turned, strict=True)]
    assert sampled(arrays, largest=True) == sample(*sides, tuple(describe(x) for x in sides))
    length = int(rng.integers(1, k))
    assert sampled([x[..., :length] for x in arrays], largest=False) == sample(*(x[..., :length] for x in sides))


@pytest.mark.parametrize("seed", range(60))
def test_one_read(seed):
    """The kernel whose blocks hold whole rows finds the description and slices that two kernels find."""
    from built import Steps, with_tiles_for_all
    from ozaki.backends.cupy.steps.cutting import split
    from ozaki.backends.cupy.steps.describing import find_largest
    from ozaki.backends.cupy.steps.engines.choice import fused_engine
    from ozaki.backends.cupy.steps.magnitudes import RESULT, MagnitudeLayout, Magnitudes, magnitudes
    from ozaki.backends.cupy.steps.one_read import describe_and_split

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
    level = ("narrow", "sampled")[int(rng.integers(2))]
    for side in ("left", "right"):
        steps = Steps()
        b, device = steps.b, with_tiles_for_all(steps.device)
        engine, given = fused_engine(device, scheme), steps.given(x)
        layout = engine.layout(scheme, side, *x.shape)
        (described,) = steps.described(x) if sums else [find_largest(b, given)]
        expected = split(b, device, described, side, scheme, layout)
        room = None
        if sums:  # in memory that is not zero
            lay = MagnitudeLayout.of(device, level, x.shape[1], x.shape[1], x.shape[2])
            assert lay.in_tiles
            filled = {of: cp.full((batch, many, lay.k), 85, np.int8) for of, many in zip(SIDES, lay.rows, strict=True)}
            results = cp.full(2 * RESULT.size, 85, np.uint8)
            *both, place = steps.given(*filled.values(), results)
            room = Magnitudes(*both, lay, [place.at, place.at.plus(RESULT.size)])
        got = describe_and_split(b, given, side, scheme, layout, sums, room)
        fields = [steps.real(of.described.fields).get() for of in (expected, got)]
        for field, of_expected, of_got in zip(FIELDS, *fields, strict=True):
            if sums or field in ("top", "nonfinite"):
                np.testing.assert_array_equal(of_expected, of_got, err_msg=f"{field}, seed {seed}")
        np.testing.assert_array_equal(*(steps.real(of.mu).get() for of in (expected, got)))
        (ones,) = steps.described(cp.ones((batch, layout.written_rows, layout.k), "f4"))
        slices = steps.real(split(b, device, ones, side, scheme, engine.layout(scheme, side, *ones.x.shape)).planes)
        cut = cp.tile((slices.reshape(scheme.count, -1) != 0).any(0), scheme.count)
        assert float(cut.mean()) == pytest.approx(layout.written_rows / layout.rows)
        assert bool((steps.real(expected.planes) == steps.real(got.planes))[cut].all())
        if room is not None:
            taken = magnitudes(b, device, described, described, level)
            want = steps.real(getattr(taken, side))
            inner = lay.k * (EVERY // SAMPLE if level == "sampled" else 1)
            (ones,) = steps.described(cp.ones((batch, layout.written_rows, inner), "f4"))
            of_ones = magnitudes(b, device, ones, ones, level)
            assert getattr(of_ones, side).shape == want.shape
            cut = steps.real(getattr(of_ones, side)) != 0
            assert float(cut.mean()) == pytest.approx(layout.written_rows / layout.rows)
            assert bool((want == filled[side])[cut].all())
            assert (side == "left") != bool(results.any())  # the kernel of the left operand zeroes the results
