"""Products of floats by compiled code for int8 units, of residues and of digits, have the bits of those by BLAS."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cases import assert_no_more_is_held, assert_same, by_blas, layouts, same_bits

import ozaki
from ozaki.backends.numpy import backend
from ozaki.backends.numpy.compiled import sharing

RESIDUES, DIGITS = {"scheme": "residues", "slices": 14}, {"scheme": "digits", "slices": 7}

of_both = pytest.mark.parametrize("options", [RESIDUES, DIGITS], ids=lambda options: options["scheme"])


def of_counts(**counts):
    """A test of each scheme with these numbers of slices."""
    cases = [(scheme, count) for scheme, of in counts.items() for count in of]
    return pytest.mark.parametrize(
        "options",
        [{"scheme": scheme, "slices": count} for scheme, count in cases],
        ids=[f"{scheme}-{count}" for scheme, count in cases],
    )


@pytest.mark.parametrize(
    ("options", "steps"),
    [(RESIDUES, ["as int8"]), (DIGITS, ["7 digits, as int8", "7 products by int8"])],
    ids=["residues", "digits"],
)
def test_it_is_what_runs(code, rng, options, steps):
    a, b = rng.standard_normal((2, 70, 70))
    for engine in ("auto", "int8"):
        c, report = ozaki.matmul(a, b, engine=engine, return_report=True, **options)
        assert report.engine == f"NumPy, int8 by {code}"
        assert same_bits(c, by_blas(a, b, **options))
    listed = backend.steps(ozaki.plan((70, 70), (70, 70), dtype="float64", **options))
    assert all(step in listed for step in steps)


@of_counts(residues=(7, 14), digits=(3, 7))  # images of four bytes, and of eight
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (8, 16, 48), (9, 17, 49), (70, 131, 100), (300, 5, 500), (3, 20_000, 2)], ids=str
)
def test_bits_in_every_layout(code, rng, dtype, shape, options):
    """Of rows of different magnitudes; within them elements are spread where digits are of several limbs."""
    m, k, n = shape
    spread = 20 if options["scheme"] == "digits" else 0
    a, b = (
        np.ldexp(rng.standard_normal(size), powers + rng.integers(-spread, spread + 1, size)).astype(dtype)
        for size, powers in (((m, k), rng.integers(-20, 20, (m, 1))), ((k, n), rng.integers(-20, 20, (1, n))))
    )
    expected = by_blas(a, b, **options)
    pairs = zip(layouts(a), layouts(b), strict=True) if m * k * n < 10**7 else [(a, b)]
    for left, right in pairs:
        assert same_bits(ozaki.matmul(left, right, **options), expected)


@of_counts(residues=(14,), digits=(2, 7))
def test_values_that_are_rare(code, rng, options):
    def some(share, value):
        return lambda x: np.where(rng.random(x.shape) < share, value, x)

    for change in (
        lambda x: x * 0, lambda x: x * 2.0**-1040, lambda x: x * 2.0**1000, some(0.1, np.nan), some(0.1, -np.inf),
        some(0.9, 0), lambda x: np.rint(4 * x) * 2.0**-1074,
        lambda x: x * np.exp2(rng.integers(-300, 300, x.shape).astype(float)),
    ):  # fmt: skip
        with np.errstate(all="ignore"):
            a, b = change(rng.standard_normal((33, 50))), rng.standard_normal((50, 60))
        for left, right in ((a, b), (b.T, a.T), (a, b * 2.0**600)):
            assert_same(by_blas(left, right, **options), ozaki.matmul(left, right, **options))


@pytest.mark.parametrize(
    ("scheme", "count", "tiny"), [("residues", 15, 2.0**-5), ("residues", 16, 2.0**-9), ("digits", 8, 2.0**-3)]
)
def test_ties_are_rounded_to_even(code, scheme, count, tiny):
    """Entries in the middle of two floats, and next to it by one unit of the exact product."""
    ones = [2.0**52 + i for i in (1, 2, 3)]
    a = np.array([[one, 1.0, more] for one in ones for more in (0.0, tiny, -tiny)])
    b = np.array([[2.0], [1.0], [1.0]])
    options = {"scheme": scheme, "slices": count}
    c = ozaki.matmul(a, b, **options)
    assert same_bits(c, by_blas(a, b, **options)) and (c == ozaki.matmul(a, b, accuracy="exact")).all()
    assert (c[:, 0] - 2.0**53).tolist() == [4, 4, 2, 4, 6, 4, 8, 8, 6]


@of_both
def test_stacks_and_expressions(code, rng, options):
    a, b = rng.standard_normal((4, 1, 20, 30)), rng.standard_normal((3, 30, 10))
    x = rng.standard_normal((40, 40))
    for left, right in ((a, b), (a[0, 0], b[0, :, 0]), (x, x.T)):
        assert same_bits(ozaki.matmul(left, right, **options), by_blas(left, right, **options))
    for terms in ((1.5, x, x, -0.25, rng.standard_normal((40, 40))), (-2.0, x, x.T, 0.0, None)):
        assert same_bits(ozaki.gemm(*terms, **options), ozaki.gemm(*terms, engine="float64", **options))
    out = np.empty((40, 80))[:, ::2]
    assert ozaki.matmul(x, x, out=out, **options) is out and same_bits(out, by_blas(x, x, **options))


@pytest.mark.parametrize("n", [127, 129, 300])
@of_both
def test_half_of_a_symmetric_product_is_computed(code, rng, n, options):
    """And mirrored: the product of a matrix and its transpose, in stacks, and with what is not finite."""
    a = rng.standard_normal((2, n, 90)) * 2.0 ** rng.integers(-40, 40, (2, n, 1))
    for x in (a, a.astype(np.float32), a[..., ::-1], a.swapaxes(1, 2)):
        assert same_bits(ozaki.matmul(x, x.swapaxes(1, 2), **options), by_blas(x, x.swapaxes(1, 2).copy(), **options))
    a[0, 5, 7], a[1, 126, 3] = np.nan, np.inf
    assert_same(by_blas(a, a.swapaxes(1, 2).copy(), **options), ozaki.matmul(a, a.swapaxes(1, 2), **options))


@of_both
def test_limits_change_nothing(code, rng, options):
    a, b = rng.standard_normal((500, 900)), rng.standard_normal((900, 700))
    expected, whole = ozaki.matmul(a, b, return_report=True, **options)
    assert same_bits(expected, by_blas(a, b, **options))
    for limit in (whole.workspace_bytes, whole.workspace_bytes // 2, whole.workspace_bytes // 4):
        c, report = ozaki.matmul(a, b, workspace_limit=limit, return_report=True, **options)
        assert same_bits(c, expected) and report.workspace_bytes <= limit


@pytest.mark.parametrize(
    ("scheme", "m", "k", "n", "limit"),
    [("residues", 1, 3000, 1, 300_000), ("residues", 3, 3000, 2, 600_000), ("digits", 3, 3000, 2, 600_000)],
)
def test_a_limit_shortens_slabs(code, rng, scheme, m, k, n, limit):
    """Panels are 48 rows wide: of long rows they are more than a limit may allow, in slabs of 8192."""
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    options = {"scheme": scheme, "slices": 4}
    c, report = ozaki.matmul(a, b, workspace_limit=limit, return_report=True, **options)
    assert report.workspace_bytes <= limit and report.engine == f"NumPy, int8 by {code}"
    assert same_bits(c, by_blas(a, b, **options))


@pytest.mark.parametrize(
    ("options", "shape", "limit"),
    [
        (RESIDUES, (64, 8192, 64), 14_000_000),
        (RESIDUES, (24, 500, 4096), None),
        (RESIDUES, (16, 9000, 16), 10_000_000),
        (DIGITS, (64, 8192, 64), 14_000_000),
        (DIGITS, (24, 500, 4096), None),
        (DIGITS, (60, 9000, 50), None),
    ],
    ids=lambda value: value["scheme"] if isinstance(value, dict) else str(value),
)
def test_no_more_is_held_than_the_report_says(code, rng, options, shape, limit):
    m, k, n = shape
    a, b, out = rng.standard_normal((m, k)), rng.standard_normal((k, n)), np.empty((m, n))
    for x in (a, next(itertools.islice(layouts(a), 4, None))):
        assert_no_more_is_held(x, b, out, limit, **options)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@of_both
def test_threads_change_nothing(code, rng, monkeypatch, count, options):
    monkeypatch.setattr(sharing, "threads", lambda: count)
    monkeypatch.setattr(sharing, "LEAST", 1.0)
    a, b = rng.standard_normal((200, 300)), np.asfortranarray(rng.standard_normal((300, 150)))
    expected = by_blas(a, b, **options)
    for x in (a, np.asfortranarray(a)):
        assert same_bits(ozaki.matmul(x, b, **options), expected)
    with ThreadPoolExecutor(4) as pool:
        for c in pool.map(lambda _: ozaki.matmul(a, b, **options), range(8)):
            assert same_bits(c, expected)
