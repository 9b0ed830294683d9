"""The bits of a product are those of the definition, whatever the engine, the tiles, the workspace and the batch."""

import tracemalloc
from dataclasses import replace

import definition
import numpy as np
import pytest
from cases import MOST_BYTES, first_difference, same_bits, set_sizes, spread, viewed
from tiers import some_first

import ozaki
from ozaki.backends.numpy import program
from ozaki.backends.numpy._describe import describe
from ozaki.backends.numpy.engines import engine_of
from ozaki.backends.numpy.program import Panel, Views
from ozaki.bounds.description import FIELDS
from ozaki.schemes import Digits, Residues
from ozaki.schemes.digits import MAX_DIGITS

SCHEMES = {"digits": MAX_DIGITS, "digits7": MAX_DIGITS, "residues": MOST_BYTES}


def random_scheme(rng, k=1, most=None):
    """A random scheme that has room for this k; small counts are more likely than large ones."""
    while True:
        name = str(rng.choice(list(SCHEMES)))
        count = int(np.exp(rng.uniform(0, np.log(min(SCHEMES[name], most or 64) + 1))))
        scheme = Residues(count) if name == "residues" else Digits(count, 7 if name == "digits7" else 8)
        if scheme.scaling(k) is not None:
            return scheme


def random_matrix(rng, shape):
    dtype = str(rng.choice(["float32", "float64"]))
    span = int(rng.choice([0, 3, 30, 140 if dtype == "float32" else 1000]))
    x = spread(rng, shape, span, dtype)
    kind = rng.integers(0, 8)
    if kind == 0:
        x = np.rint(x * 100)
    elif kind == 1:
        x = np.ldexp(x.dtype.type(1), rng.integers(-span, 1, shape)).astype(dtype)
    elif kind == 2:
        x = np.full(shape, rng.standard_normal(), dtype)
    # rows and columns of different magnitudes, so that every exponent of the format occurs
    if kind % 2 and span < 1000:
        reach = 100 if dtype == "float32" else 900
        x = np.ldexp(x, rng.integers(-reach, reach - 5, (*shape[:-1], 1))).astype(dtype)
    return x


def multiply(a, b, scheme, **options):
    return ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count, **options)


def check(x, y, *about):
    assert same_bits(x, y), (first_difference(x, y), *about)


# The definition -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["float64", "int8", "int8-simulated"])
@pytest.mark.parametrize("repetition", range(4))
def test_the_bits_are_those_of_the_definition(rng, engine, repetition):
    for _ in range(30):
        m, k, n = (int(v) for v in rng.integers(1, 9, 3))
        k = k if rng.integers(0, 2) else int(rng.integers(1, 70))
        a, b = random_matrix(rng, (m, k)), random_matrix(rng, (n, k)).T
        scheme = random_scheme(rng, k)
        check(multiply(a, b, scheme, engine=engine), definition.product(a, b, scheme), scheme, a, b)


@pytest.mark.parametrize("scheme", some_first(1, [Residues(15), Digits(3), Digits(4, 7), Residues(7)]), ids=str)
def test_the_bits_are_those_of_the_definition_for_a_huge_k(rng, scheme):
    k = 300000
    a, b = spread(rng, (2, k), 6), spread(rng, (2, k), 6).T
    check(multiply(a, b, scheme), definition.product(a, b, scheme), scheme)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_are_those_of_the_definition_from_the_smallest_to_the_largest(rng, dtype):
    """Rows that hold subnormals beside numbers near overflow, and products that leave the range at both ends."""
    low, high = (-149, 120) if dtype == "float32" else (-1074, 1000)
    for _ in range(20):
        a, b = (np.ldexp(rng.standard_normal((3, 7)), rng.integers(low, high, (3, 7))).astype(dtype) for _ in "ab")
        scheme = random_scheme(rng)
        check(multiply(a, b.T, scheme), definition.product(a, b.T, scheme), scheme, a, b)


@pytest.mark.parametrize("scheme", [Digits(2), Digits(5), Digits(3, 7), Residues(5), Residues(14)], ids=str)
def test_the_bits_are_those_of_the_definition_at_the_thresholds(scheme):
    """Rows on both sides of the statistics at which the exponent changes, ties in the images, extreme digits."""
    scaling = scheme.scaling(4)
    edge = np.sqrt(scaling.threshold) if scaling.statistic == "squares" else float(scaling.threshold)
    a = []
    for g in range(14):
        x = edge / 2.0**g
        for near in (np.nextafter(x, 0), x, np.nextafter(x, np.inf), x - 1, x + 1, np.floor(x), np.ceil(x)):
            a += [[near, 0, 0, 0], [near / 2] * 4, [near, 2.0**-30, -(2.0**-30), 1.5]]
    a = np.array(a)
    b = np.array([[1, 0.5, 0.25, 0.125], [-1, 1, -1, 1], [255.5, -255.5, 127.5, 128.5], [1 / 3, 2 / 3, -1 / 7, 1]]).T
    check(multiply(a, b, scheme), definition.product(a, b, scheme), scheme)


@pytest.mark.parametrize("scheme", [Digits(8), Digits(9), Digits(14), Digits(30), Digits(9, 7), Digits(12, 7)], ids=str)
def test_the_digits_of_numbers_at_which_a_digit_carries(scheme):
    """Images on both sides of the numbers at which the leading digits grow by one, many of them wider than 53 bits."""
    r, p = scheme.bits, scheme.count
    elements = []
    for s in range(1, p):
        low = 2 ** (r * s)
        carries = low - 2 ** (r - 1) * (low - 1) // (2**r - 1)
        for x in (float(carries), float(carries + 2 ** (r * (p - 1)))):
            elements += [
                x,
                np.nextafter(x, 0),
                np.nextafter(x, np.inf),
                -x,
                np.nextafter(-x, 0),
                np.nextafter(-x, -np.inf),
            ]
    a = np.array([elements, elements[::-1]])
    a = np.hstack([a, np.full((2, 1), float(scheme.largest) * (1 - 2.0**-50))])  # the image is the row itself
    check(multiply(a, a.T, scheme), definition.product(a, a.T, scheme), scheme)


# Engines, tiles, workspace, batch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("repetition", range(4))
def test_engines_agree(rng, repetition):
    for _ in range(12):
        m, k, n = (int(v) for v in rng.integers(1, 90, 3))
        k = k if rng.integers(0, 3) else int(rng.integers(2000, 7000))
        a, b = viewed(rng, random_matrix(rng, (m, k))), viewed(rng, random_matrix(rng, (n, k))).T
        scheme = random_scheme(rng, k, most=30)
        check(
            multiply(a, b, scheme, engine="int8-simulated"),
            multiply(a, b, scheme, engine="float64"),
            scheme,
            a.shape,
            n,
        )


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 30])
def test_engines_agree_for_a_small_k(rng, k):
    """For a small k moduli of the float64 engine could be larger, but then reducing an image would not be exact."""
    for count in (10, 20, 30, 40, MOST_BYTES):
        a, b = spread(rng, (50, k), 40), spread(rng, (k, 50), 40)
        check(multiply(a, b, Residues(count), engine="int8-simulated"), multiply(a, b, Residues(count)), count, k)


@pytest.mark.parametrize("tile", [64, 1000])
@pytest.mark.parametrize("panel", [3, 7, 16, 100])
def test_tiles_and_panels_change_nothing(rng, monkeypatch, tile, panel):
    cases = []
    for _ in range(3):
        m, k, n = (int(v) for v in rng.integers(1, 40, 3))
        a, b = viewed(rng, random_matrix(rng, (2, m, k))), viewed(rng, random_matrix(rng, (2, n, k))).swapaxes(1, 2)
        scheme = random_scheme(rng, k, most=20)
        cases.append((a, b, scheme, multiply(a, b, scheme)))
    set_sizes(monkeypatch, tile, panel)
    for a, b, scheme, c in cases:
        check(multiply(a, b, scheme), c, scheme, a.shape, b.shape)


def test_the_description_does_not_depend_on_tiles(rng, monkeypatch):
    """Rows with wide and narrow ranges of exponents, in one tile or in several."""
    x = np.concatenate([random_matrix(rng, (1, 5, 40)).astype(np.float64) for _ in range(12)], axis=1)
    x[0, 3] = np.ldexp(1.0, rng.integers(-1074, 1024, 40))
    x[0, 4] = 0
    x[0, 5, 7:9] = np.nan, -np.inf
    whole = describe(x).fields
    for tile in (1, 64, 500):
        set_sizes(monkeypatch, tile)
        for name, field, other in zip(FIELDS, whole, describe(x).fields, strict=True):
            np.testing.assert_array_equal(field, other, err_msg=name)
    for i in range(x.shape[1]):
        np.testing.assert_array_equal(describe(x[:, i : i + 1]).fields[:, :, 0], whole[:, :, i])


def test_the_description_is_that_of_the_definition(rng):
    for _ in range(40):
        k = int(rng.integers(1, 60))
        x = random_matrix(rng, (4, k))
        if rng.integers(0, 2):
            x[0] = (
                np.ldexp(rng.standard_normal(k), rng.integers(-1074, 1020, k)).astype(x.dtype) if x.itemsize == 8 else 0
            )
            x[1] = np.ldexp(x.dtype.type(1.5), rng.integers(-21, 1, k))
            x[1, 0] = 1
        description = describe(x[None]).on_host
        for i, row in enumerate(definition.rows(x)):
            if row.top is None:
                assert description.empty[0, i]
                continue
            assert not description.empty[0, i]
            found = [
                int(getattr(description, field)[0, i]) for field in ("top", "peak", "squares", "magnitudes", "bottom")
            ]
            magnitudes, exponents = row.magnitudes, [e for v, e in zip(row.elements, row.exponents, strict=True) if v]
            short = all(
                v % 2 ** max(0, row.top - row.width - e) == 0 for v, e in zip(row.elements, row.exponents, strict=True)
            )
            smallest = min(exponents) + (0 if x.itemsize == 8 else 53 - 24)
            bottom = row.top - row.width if short else smallest
            assert found == [row.top, row.peak, row.squares, sum(magnitudes), bottom], (x.dtype, x[i])
            assert all(v % 2 ** max(0, bottom - e) == 0 for v, e in zip(row.elements, row.exponents, strict=True))


@pytest.mark.parametrize("scheme", some_first(1, [Residues(14), Digits(4)]), ids=str)
@pytest.mark.parametrize("shapes", [((450, 5000), (5000, 330)), ((300, 40, 1500), (300, 1500, 3))], ids=str)
def test_no_more_memory_is_held_than_the_report_says(rng, scheme, shapes):
    a, b = (rng.standard_normal(shape) for shape in shapes)
    plan = ozaki.plan(*shapes, dtype="float64", scheme=scheme.name, slices=scheme.count)
    for limit in (None, 30_000_000):
        out = np.empty((*shapes[0][:-1], shapes[1][-1]))
        plan = replace(plan, workspace_limit=limit)
        tracemalloc.start()
        try:
            _, report = ozaki.matmul(a, b, plan=plan, out=out, return_report=True)
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert report.workspace_bytes / 4 < held <= report.workspace_bytes
        assert limit is None or report.workspace_bytes <= limit
    engine = engine_of(scheme, plan.shape[1], "auto")
    batch, m, n = (*shapes[0][:-1], shapes[1][-1]) if len(shapes[0]) == 3 else (1, 450, 330)
    views = Views(batch, m, plan.shape[1], n), Views(1, 2048, plan.shape[1], 2048)
    needed = [program._workspace(engine, of, Panel(2048, 2048)) for of in views]
    assert needed[0] <= needed[1]
