"""Grades: the inputs are what their definitions say, and tell algorithms apart; ours get the grades that they should.

The products that are graded here beside the library's are written from the definitions of their algorithms.
"""

import json
from fractions import Fraction

import numpy as np
import pytest
from devices import EMULATED, parameters
from typer.testing import CliRunner

import ozaki
from ozaki import reference
from ozaki._cli import commands
from ozaki._cli.grading import ways as grading_ways
from ozaki._cli.grading.grading import grades
from ozaki._cli.grading.inputs import CROSSOVER, TESTS, inputs
from ozaki._cli.grading.measuring import EPSILON, measured
from ozaki._cli.grading.ways import other, ours, ways

LEAST = 2.0**-1074


def named(n, is_complex=False, seed=0):
    return {given.test: given for given in inputs(n, seed, is_complex)}


def graded(compared, sizes=(16, 32), is_complex=False):
    found = [one for n in sizes for given in inputs(n, 0, is_complex) for one in measured(given, compared)]
    return {grade.way: grade for grade in grades(found)}, found


# Inputs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("n", [4, 16, 37, 64])
def test_inputs_of_any_size_are_finite_and_have_finite_products(n, is_complex):
    found = inputs(n, 1, is_complex)
    assert len({given.test for given in found}) == len(found) == len(TESTS)
    for given in found:
        assert given.a.shape[0] == given.b.shape[1] == n and given.a.shape[1] == given.b.shape[0]
        assert given.a.dtype == given.b.dtype == (np.complex128 if is_complex else np.float64)
        assert np.isfinite(given.a).all() and np.isfinite(given.b).all() and np.isfinite(given.a @ given.b).all()
        assert len(set(given.rows)) == len(given.rows) <= n


def test_inputs_depend_on_the_seed_alone():
    for one, same, another in zip(inputs(16, 0, False), inputs(16, 0, False), inputs(16, 1, False), strict=True):
        assert (one.a == same.a).all() and (one.b == same.b).all()
        assert (one.a != another.a).any() or (one.b != another.b).any()


@pytest.mark.parametrize("is_complex", [False, True])
def test_zeros_have_no_terms_and_others_have(is_complex):
    given = named(32, is_complex)["zeros"]
    terms = (given.a != 0).astype(int) @ (given.b != 0)
    assert len(given.zeros[0]) == 16 and (terms[given.zeros] == 0).all()
    assert (terms > 0).mean() > 0.9 and 0 < (given.a == 0).mean() < 0.5


@pytest.mark.parametrize("is_complex", [False, True])
def test_a_spread_input_is_circulant_and_its_diagonal_is_that_of_x(is_complex):
    n = 32
    given = named(n, is_complex)["spread"]
    assert all((x[:-1, 1:] == x[1:, :-1]).all() and (x[:, 0] == x[0]).all() for x in (given.a, given.b))
    terms = np.einsum("ij,ji->ij", given.a, given.b)
    assert (np.real(terms) >= 1).all() and (np.real(terms) <= 8 if is_complex else terms <= 4).all()
    exponents = np.frexp(abs(given.a))[1]
    assert len(set(exponents.max(axis=0)) | set(exponents.max(axis=1))) == 1, "scaling along k changes nothing"
    assert exponents.max() - exponents.min() > 1000


def test_a_narrower_spread_has_the_orders_of_its_name():
    exponents = np.frexp(named(32)["spread 2^±8"].b)[1]
    assert (exponents.min(), exponents.max()) == (-7, 9)


def test_the_scale_factors_of_test_6_repeat_themselves():
    n = 64
    given = named(n)["Strassen"]
    exponents = np.frexp(given.a[:-1])[1][0]
    assert (exponents == np.resize(exponents[:CROSSOVER], n)).all() and len(set(exponents[:CROSSOVER])) == CROSSOVER
    products = given.a[:-1, :, None] * given.b[None, :, :-1]
    assert products.min() >= 1 and products.max() <= 4
    assert given.a[-1].min() >= given.a[:-1].max() / 2 and given.b[:, -1].min() >= given.b[:, :-1].max() / 2
    assert set(range(CROSSOVER - 1)) | {n - 1} <= set(given.rows) and given.judged == CROSSOVER - 1


def test_the_subnormal_input_is_the_published_one():
    given = named(16)["subnormal"]
    assert sorted(abs(given.a[0])) == [LEAST, 7 * 2.0**-1023] and sorted(abs(given.b[:, 0])) == [7 * 2.0**-60, 1]
    exact, exponent = reference.exact_matmul(given.a, given.b)
    assert {abs(x) * Fraction(2) ** exponent for x in exact.flat} == {Fraction(463, 512) / 2**1074}
    assert (abs(given.a @ given.b) == LEAST).all()


def test_the_tiny_input_has_subnormal_elements_of_all_lengths_and_no_underflow():
    given = named(64)["tiny"]
    assert abs(given.a).max() < 2.0**-1022 and len(set(np.frexp(given.a)[1].flat)) == 52
    assert 2.0**-80 < abs(given.a @ given.b).max() < 1


# Measures and grades ------------------------------------------------------------------------------------------------


def rounded(a, b):
    """The product, exact but for one rounding."""
    integers, exponent = reference.exact_matmul(a, b)
    return np.vectorize(lambda x: float(x * Fraction(2) ** exponent), otypes=[float])(integers)


def fixed_point(a, b, bits=53, axis=1):
    """A product of rows and columns that are rounded to so many bits below their largest element."""

    def image(x, axis):
        shift = bits - np.frexp(abs(x).max(axis=axis, keepdims=True))[1]
        return np.ldexp(np.rint(np.ldexp(x, shift)), -shift)

    return rounded(image(a, axis), image(b, None if axis is None else 0))


def strassen(a, b, multiply):
    """One level of Strassen's algorithm above the crossover, else `multiply`."""
    n = len(a)
    if a.shape != b.shape or n <= CROSSOVER:
        return multiply(a, b)
    (a11, a12), (a21, a22) = ((x[:, : n // 2], x[:, n // 2 :]) for x in (a[: n // 2], a[n // 2 :]))
    (b11, b12), (b21, b22) = ((x[:, : n // 2], x[:, n // 2 :]) for x in (b[: n // 2], b[n // 2 :]))
    m1, m2, m3 = multiply(a11 + a22, b11 + b22), multiply(a21 + a22, b11), multiply(a11, b12 - b22)
    m4, m5 = multiply(a22, b21 - b11), multiply(a11 + a12, b22)
    m6, m7 = multiply(a21 - a11, b11 + b12), multiply(a12 - a22, b21 + b22)
    return np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])


def flushed(a, b):
    """A product that takes subnormal elements for zeros."""
    return np.where(abs(a) < 2.0**-1022, 0, a) @ np.where(abs(b) < 2.0**-1022, 0, b)


def clamped(a, b):
    """Fixed point by exponents, W bits with the sign, W = 54 + the exponent span, for each entry.

    As arXiv 2511.13778 takes them: exponents of subnormal numbers are those of the least normal number.
    """

    def exponent(x):
        return None if x == 0 else max(int(np.frexp(x)[1]) - 1, -1022)

    def entry(x, y):
        e = [(exponent(p), exponent(q)) for p, q in zip(x, y, strict=True) if p and q]
        if not e:
            return 0.0
        top_x, top_y = (max(exponent(v) for v in w if v) for w in (x, y))
        bits = 54 + top_x + top_y - max(p + q for p, q in e)
        shifts = bits - 2 - top_x, bits - 2 - top_y
        images = [
            [int(Fraction(float(v)) * Fraction(2) ** s // 1) for v in w] for w, s in zip((x, y), shifts, strict=True)
        ]
        return float(sum(p * q for p, q in zip(*images, strict=True)) / Fraction(2) ** sum(shifts))

    return np.array([[entry(row, column) for column in b.T] for row in a])


@pytest.mark.parametrize(
    ("multiply", "grade", "algorithm"),
    [
        (rounded, "A", "floating point"),
        (np.matmul, "A", "floating point"),
        (fixed_point, "B", "fixed point"),
        (lambda a, b: fixed_point(a, b, axis=None), "C", "fixed point"),
        (lambda a, b: strassen(a, b, np.matmul), "C", "Strassen in floating point"),
        (lambda a, b: strassen(a, b, fixed_point), "C", "Strassen in fixed point"),
        (lambda a, b: np.where(abs(a) < 1e38, a, 0).astype("f4").astype(float) @ b, "none", "fixed point"),
        (flushed, "none", "floating point"),
        (lambda a, b: np.full((len(a), len(a)), np.nan), "none", "Strassen in fixed point"),
    ],
    ids=["rounded", "native", "rows", "matrices", "Strassen", "both", "float32", "flushed", "NaN"],
)
def test_algorithms_are_told_apart(multiply, grade, algorithm):
    (found,) = graded([other("it", "cpu", multiply, "it")])[0].values()
    assert (found.grade, found.algorithm) == (grade, algorithm), found


def test_a_scheme_that_clamps_exponents_of_subnormal_numbers_breaks():
    x, y = np.array([[LEAST, 7 * 2.0**-1023]]), np.array([[1.0], [-7 * 2.0**-60]])
    assert clamped(x, y) == -LEAST, "what TC-EFT proves of it"
    assert ozaki.matmul(x, y, accuracy="fp64", reproducible=True) == LEAST
    (found,) = measured(named(16)["subnormal"], [other("clamped", "cpu", clamped, "it")])
    assert not found.passes and found.row_column <= found.limit


def test_it_is_accurate_elsewhere():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 6, 6)) * 2.0 ** rng.integers(-9, 9, (2, 6, 6))
    assert reference.componentwise_error(clamped(a, b), a, b) < 6 * EPSILON


def test_errors_are_those_of_the_reference():
    given = named(16)["growth"]
    (found,) = measured(given, [other("NumPy", "cpu", np.matmul, "it")])
    assert found.error * EPSILON == reference.componentwise_error(given.a @ given.b, given.a, given.b)
    assert found.passes and found.row_column is None and found.entries == 256


def test_the_float64_reference_of_grade_blas3_errs_itself():
    """What it prints of an exact product grows as the errors of its sums do; errors of the product do not."""
    inputs_of_it = [named(n)["growth"] for n in (16, 32, 64, 128, 256)]
    (found,) = grades([one for given in inputs_of_it for one in measured(given, [ours("cpu", accuracy="exact")])])
    assert abs(found.slope) < 0.1 and 0.4 < found.slope_against_float64 < 0.8


@pytest.mark.parametrize("is_complex", [False, True])
def test_ours_and_the_native_product_earn_an_a(is_complex):
    found, tests = graded(ways("cpu", accuracy="fp64"), is_complex=is_complex)
    assert {name: grade.grade for name, grade in found.items()} == {"ozaki": "A", "NumPy": "A"}
    assert all(grade.failed == () and grade.algorithm == "floating point" for grade in found.values())
    assert all(one.slices > 0 for one in tests if one.way == "ozaki")


def test_an_exact_product_is_rounded_once():
    _, found = graded([ours("cpu", accuracy="exact")], (16,))
    assert max(one.error for one in found) <= 0.5


@pytest.mark.parametrize("count", [ozaki.schemes.Residues(14), ozaki.schemes.Digits(7)], ids=str)
def test_a_named_count_earns_a_b(count):
    scheme = "residues" if isinstance(count, ozaki.schemes.Residues) else "digits"
    found, _ = graded([ours("cpu", scheme=scheme, slices=count.count)])
    assert (found["ozaki"].grade, found["ozaki"].algorithm) == ("B", "fixed point")


# The command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(device, monkeypatch):
    monkeypatch.setattr(commands, "pick_device", lambda _: "cpu" if device.xp is np else "gpu")
    monkeypatch.setattr(grading_ways, "ENOUGH", 0)

    def run(*words, code=0):
        result = CliRunner().invoke(commands.app, ["grade", *words], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.stdout

    return run


@pytest.mark.parametrize("device", parameters(EMULATED[:1]), indirect=True)
def test_the_command_on_every_device(run, device):
    found = json.loads(run("--size", "4", "--size", str(device.size(16, 6)), "--json"))
    assert found["device"] == ("cpu" if device.xp is np else "gpu")
    assert (found["grades"][0]["way"], found["grades"][0]["grade"]) == ("ozaki", "A")
    assert {one["way"] for one in found["grades"]} == {"ozaki", "NumPy", *(["CuPy"] if device.xp is not np else [])}
    ours = [one for one in found["tests"] if one["way"] == "ozaki"]
    assert len(ours) == 2 * len(TESTS) and all(one["slices"] > 0 and one["passes"] for one in ours)


@pytest.mark.parametrize("device", ["numpy"], indirect=True)
def test_what_the_command_prints(run):
    text = run("--size", "16", "--complex")
    assert "Errors in units of 2^-52" in text and "FAILED" not in text and text.count("│ A ") == 2
    text = run("--size", "16", "--size", "32", "--scheme", "residues", "--slices", "14", code=1)
    assert "FAILED" in text and "│ B " in text and "fixed point" in text and "residues" in text
    assert run("--size", "16", "--accuracy", "fp32", code=1).count("│ none ") == 1
    run("--size", "2", code=2)
    run("--size", "4", "--scheme", "native", code=2)
