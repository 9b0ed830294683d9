"""`ozaki verify --product`: a verdict on a product that somebody else computed."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

import ozaki
from ozaki import reference
from ozaki._cli.commands import app

runner = CliRunner()


def run(*words, code=0, of=("a.npy", "b.npy", "c.npy")):
    """Run `ozaki verify` on A, B and the product C; return what it prints, on standard error if it ends with code 2."""
    a, b, c = of
    words = ["verify", a, b, "--product", c, *map(str, words)]
    result = runner.invoke(app, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code != 2 else result.stderr


def judged(*words, **options):
    """The numbers that it prints as JSON."""
    return json.loads(run(*words, "--json", **options))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of its own, in which names of files mean files of this test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(a, b, c):
    for name, x in (("a.npy", a), ("b.npy", b), ("c.npy", c)):
        np.save(name, x)


@pytest.fixture
def matrices():
    """Two normal matrices and their native product, in a.npy, b.npy and c.npy."""
    a, b = np.random.default_rng(1).standard_normal((2, 30, 30))
    save(a, b, a @ b)
    return a, b


@pytest.fixture
def cancelling():
    """Two vectors whose exact product is 1e-17, and the native product, which has no correct digit."""
    x, y = np.random.default_rng(0).standard_normal((2, 1000))
    a, b = np.array([[*x, 1e-17, *-x]]), np.array([[*y, 1.0, *y]]).T
    save(a, b, a @ b)
    return a, b


# Numbers ------------------------------------------------------------------------------------------------------------


def exactly(x):
    """Elements as fractions; of complex ones real and imaginary parts."""
    if x.dtype.kind == "c":
        return [(Fraction(float(v.real)), Fraction(float(v.imag))) for v in x.ravel()]
    return [(Fraction(float(v)), Fraction(0)) for v in x.ravel()]


def modulus(parts):
    """The modulus of a number given as fractions, to about 60 digits."""
    square = sum(part * part for part in parts)
    return Fraction(math.isqrt(square.numerator * square.denominator << 400), square.denominator << 200)


def brute(a, b, c):
    """For each entry (error, abs(C), abs(A) abs(B)), in fractions, by the definition."""
    rows = [exactly(row) for row in a]
    columns = [exactly(column) for column in b.T]
    found = iter(exactly(c))
    entries = []
    for row in rows:
        for column in columns:
            terms = [(x * u - y * v, x * v + y * u) for (x, y), (u, v) in zip(row, column, strict=True)]
            exact = tuple(map(sum, zip(*terms, strict=True)))
            total = sum(modulus(x) * modulus(y) for x, y in zip(row, column, strict=True))
            error = modulus([p - q for p, q in zip(next(found), exact, strict=True)])
            entries.append((error, modulus(exact), total))
    return entries


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
def test_the_numbers_are_those_of_the_definition(rng, dtype):
    a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape) for shape in ((4, 6), (6, 3)))
    if dtype.startswith("complex"):
        a, b = a + 1j * rng.standard_normal(a.shape), b + 1j * rng.standard_normal(b.shape)
    a, b = a.astype(dtype), b.astype(dtype)
    c = a @ b
    save(a, b, c)
    found, entries = judged(), brute(a, b, c)
    components, relatives = ([e[0] / e[of] for e in entries] for of in (2, 1))
    precision = 53 if dtype in ("float64", "complex128") else 24
    assert (found["entries"], found["skipped"], found["nonfinite"], found["format"]) == (12, 0, 0, dtype)
    assert found["error"] == reference.componentwise_error(c, a, b)
    assert found["error"] == pytest.approx(float(max(components)), rel=1e-15, abs=0)
    assert found["log2_error"] == pytest.approx(math.log2(max(components)), abs=1e-12)
    assert found["error_at"] == list(divmod(components.index(max(components)), 3))
    worst = relatives.index(max(relatives))
    assert found["digits_at"] == list(divmod(worst, 3))
    assert found["digits"] == min(found["of_digits"], math.floor(-math.log10(relatives[worst])))
    assert found["of_digits"] == (15 if precision == 53 else 7)
    assert found["cancelled_bits"] == pytest.approx(math.log2(entries[worst][2] / entries[worst][1]), abs=1e-12)
    assert found["bits"] == precision + math.ceil(max(math.log2(total / exact) for _, exact, total in entries))
    terms, spread = (12, math.sqrt(2)) if dtype.startswith("complex") else (6, 1)
    assert found["log2_good_error"] == pytest.approx(math.log2(spread * min(terms, 4 * terms**0.5)) - precision)
    assert found["as_good_as"] == dtype and found["holds"] and found["accuracy"] is None


def test_the_entries_that_are_named_are_those_of_the_product(matrices):
    a, b = matrices
    c = a @ b
    c[3, 17] += 1
    c[20, 5] = -c[20, 5]
    save(a, b, c)
    found = judged("--rows", 30, "--cols", 30, code=1)
    assert found["entries"] == 900 and found["digits_at"] == [20, 5] and found["digits"] == 0
    assert float(found["found"]) == pytest.approx(-float(found["exact"]))
    assert float(found["exact"]) == pytest.approx((a @ b)[20, 5], rel=0.06)
    np.save("c.npy", np.where(c == c[20, 5], -c, c))
    assert judged("--rows", 30, "--cols", 30)["error_at"] == [3, 17]
    few = judged("--rows", 2, "--cols", 3)
    assert few["entries"] == 6 and few == judged("--rows", 2, "--cols", 3)
    assert few["digits_at"] != judged("--rows", 2, "--cols", 3, "--seed", 7)["digits_at"]


def test_the_bits_that_it_advises_give_all_digits(cancelling):
    assert judged()["bits"] == 120
    np.save("c.npy", ozaki.matmul(*cancelling, accuracy=120))
    assert judged()["digits"] == 15
    np.save("c.npy", ozaki.matmul(*cancelling, accuracy=100))
    assert judged()["digits"] < 14


# Words --------------------------------------------------------------------------------------------------------------


def test_the_verdict_on_a_good_product(matrices):
    printed = run()
    assert printed.startswith("c.npy is as accurate as a good native float64 product in 480 sampled entries\n")
    assert "stays below 2.5e-15" in printed  # 4 sqrt(30) 2^-53
    assert "of 15 correct digits" in printed and "with accuracy=" in printed and "accuracy that you" not in printed


def test_the_verdict_where_all_cancels(cancelling):
    printed = run()
    assert printed.startswith("c.npy is as accurate as a good native float64 product in 1 sampled entry\n")
    assert "[0, 0] has 0 of 15 correct digits: it is " in printed and ", exactly 1.0e-17; its terms cancel" in printed
    assert printed.endswith("ozaki gives nearly all digits of every sampled entry with accuracy=120\n")


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda a, b: a.astype("f4") @ b.astype("f4"), "is as accurate as a good native float32 product"),
        (
            lambda a, b: (a.astype("f4") @ b.astype("f4")).astype("f8"),
            "is only as accurate as a good native float32 product, though its format is float64",
        ),
        (lambda a, b: a.astype("f2").astype("f8") @ b, "is less accurate than a good native float32 product"),
        (lambda a, b: b @ a, "is not the product of A and B: is it B times A, or that of other files?"),
        (lambda a, b: 0 * a, "is not the product of A and B"),
        (lambda a, b: np.rint(a @ b).astype("i8"), "is less accurate than a good native float32 product"),
    ],
)
def test_the_verdict_on_other_products(matrices, change, verdict):
    a, b = matrices
    np.save("c.npy", change(a, b))
    assert run(code=int("is not the product" in verdict)).startswith(f"c.npy {verdict}")


def test_whole_numbers():
    a = np.random.default_rng(0).integers(-(2**40), 2**40, (9, 9))
    save(a, a, a @ a)
    printed = run(code=1)
    assert "did its integers overflow" in printed and "--dtype mp" in printed and "with accuracy" not in printed
    small = a >> 20
    save(small, small, small @ small)
    assert run() == "c.npy is exact in 81 sampled entries\n"
    assert judged("--accuracy", "exact")["accuracy"]["holds"]
    np.save("c.npy", small @ small + np.eye(9, dtype=int))
    assert run().startswith("c.npy is only as accurate as a good native float32 product, though its format is int64")
    assert "the rounding" not in run("--accuracy", "exact", code=1)


def test_multiprecision_products():
    a = ozaki.mparray([[f"1/{3 + i + 7 * j}" for i in range(7)] for j in range(5)], bits=1500)
    a.save("a.npz")
    a.T.save("b.npz")
    for bits in (150, 1400):
        ozaki.matmul(a, a.T, accuracy=bits).save("c.npz")
        printed = run("--accuracy", bits, of=("a.npz", "b.npz", "c.npz"))
        assert printed.startswith(f"c.npz is as accurate as a good product of {bits} bits in 25 sampled entries")
        assert "is met in the sample" in printed and "inf" not in printed
    worse = ozaki.mparray(ozaki.matmul(a, a.T, dtype="float64"), bits=2000)
    worse.save("c.npz")
    printed = run("--accuracy", "1500", code=1, of=("a.npz", "b.npz", "c.npz"))
    assert "only as accurate as a good native float64 product" in printed and "error 7.5e-17" in printed
    assert "NOT met" in printed and "inf" not in printed


def test_complex_multiprecision_products(rng):
    a = ozaki.mparray([[f"1/{3 + i + 7 * j}" for i in range(7)] for j in range(5)], bits=200)
    b = rng.standard_normal((7, 4)) + 1j * rng.standard_normal((7, 4))
    a.save("a.npz")
    np.save("b.npy", b)
    ozaki.matmul(a, b, accuracy=130).save("c.npz")
    of = "a.npz", "b.npy", "c.npz"
    assert run(of=of).startswith("c.npz is as accurate as a good complex product of 130 bits in 20 sampled entries")
    for accuracy in ("130", "relative:1e-30", "normwise:1e-36", "row-column:1e-36"):
        found = judged("--accuracy", accuracy, of=of)["accuracy"]
        assert found["holds"] and found["error"] < found["tolerance"]
    assert not judged("--accuracy", "180", of=of, code=1)["holds"]
    ozaki.matmul(a, b, accuracy="exact", dtype="mp").round_to(130).save("c.npz")
    assert judged("--accuracy", "exact", of=of)["accuracy"]["error"] == 0


def test_files_of_other_formats(matrices):
    a, b = matrices
    for name in ("c.mtx", "c.mtx.gz"):
        runner.invoke(app, ["multiply", "a.npy", "b.npy", "-o", name])
        assert "as accurate as" in run(of=("a.npy", "b.npy", name))
    np.savez("both.npz", x=a @ b, y=b @ a)
    assert "not the product" in run(code=1, of=("a.npy", "b.npy", "both.npz:y"))
    runner.invoke(app, ["multiply", "a.npy", "b.npy", "-o", "c.txt", "--accuracy", "99"])
    assert "c.txt is as accurate as a good product of 99 bits" in run(of=("a.npy", "b.npy", "c.txt"))


# Accuracies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        ("fp32", "fp32"),
        ("fp64", "fp64"),
        ("150", 150),
        ("1e-20", 1e-20),
        ("relative:1e-25", ozaki.Accuracy("relative", 1e-25)),
        ("row-column:1e-20", ozaki.Accuracy("row-column", 1e-20)),
        ("normwise:1e-20", ozaki.Accuracy("normwise", 1e-20)),
    ],
)
def test_products_of_ozaki_meet_what_they_were_asked_for(rng, dtype, text, accuracy):
    """Also where the accuracy is higher than the format of the result: it is met before the rounding to that."""
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 40), (40, 6)))
    a[:, 20:], b[20:] = a[:, :20], -b[:20]  # all cancels but for the next two
    a[:, 3] *= 1.5
    b[7] *= dtype == "float32" or 1e-9
    save(a, b, ozaki.matmul(a, b, accuracy=accuracy, reproducible=True))
    found = judged("--accuracy", text)
    assert found["accuracy"]["holds"] and found["accuracy"]["error"] <= found["accuracy"]["tolerance"]
    assert "is met in the sample" in run("--accuracy", text)


def test_the_error_before_the_rounding(matrices):
    """The nearest numbers meet any accuracy, and their neighbours miss all that are finer than half their distance."""
    a, b = matrices
    exact = ozaki.matmul(a, b, accuracy="exact", dtype="mp").astype("float64")
    save(a, b, exact)
    for accuracy in ("exact", "relative:1e-300", "normwise:1e-300", "row-column:1e-300"):
        assert judged("--accuracy", accuracy)["accuracy"]["error"] == 0
    c = exact.copy()
    c[4, 5] = np.nextafter(np.nextafter(c[4, 5], np.inf), np.inf)
    np.save("c.npy", c)
    everything = "--rows", 30, "--cols", 30
    integers, exponent = reference.exact_entries(a, b, [4], [5])
    error = Fraction(int(integers[0, 0])) * Fraction(2) ** exponent - Fraction(c[4, 5])
    rest = abs(error) - Fraction(np.spacing(c[4, 5])) / 2
    scales = {
        "componentwise": reference.exact_entries(abs(a), abs(b), [4], [5]),
        "relative": (abs(integers), exponent),
    }
    for measure, (scale, of) in scales.items():
        expected = rest / (Fraction(int(scale[0, 0])) * Fraction(2) ** of)
        found = judged("--accuracy", f"{measure}:{float(expected) * (1 + 1e-15)}", *everything)["accuracy"]
        assert found["holds"] and found["error"] == pytest.approx(float(expected), rel=1e-15, abs=0)
        assert Fraction(found["error"]) >= expected
        assert not judged("--accuracy", f"{measure}:{float(expected) * (1 - 1e-15)}", *everything, code=1)["holds"]
    norms = np.linalg.norm(a[4]) * np.linalg.norm(b[:, 5]), np.linalg.norm(a) * np.linalg.norm(b)
    for measure, norm in zip(("row-column", "normwise"), norms, strict=True):
        found = judged("--accuracy", f"{measure}:1e-300", *everything, code=1)["accuracy"]
        assert found["error"] == pytest.approx(float(rest) / norm, rel=1e-12, abs=0)


def test_an_accuracy_that_is_missed(cancelling):
    found = judged("--accuracy", "120", code=1)
    assert not found["holds"] and not found["accuracy"]["holds"]
    assert found["accuracy"]["error"] > found["accuracy"]["tolerance"]
    assert "the accuracy that you ask for is NOT met in the sample: componentwise error" in run(
        "--accuracy", "120", code=1
    )
    found = judged("--accuracy", "fp64")["accuracy"]
    assert found["holds"] and found["tolerance"] == ozaki.Accuracy.of("fp64", k=2001).tolerance


# Numbers that are not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_wrong_nan_or_inf_is_found_outside_the_sample(matrices, wrong):
    a, b = matrices
    c = a @ b
    c[23, 11] = wrong
    for of in ((a, b, c), (a[None], b, np.array([c])), (np.array([a] * 9), b, np.array([a @ b] * 8 + [c]))):
        save(*of)
        found = judged("--rows", 1, "--cols", 1, code=1)
        assert found["nonfinite"] == 1 and found["nonfinite_at"][-2:] == [23, 11]
        assert not found["holds"] and found["digits"] > 10
    printed = run("--accuracy", "fp32", code=1)
    assert printed.startswith("c.npy is wrong: 1 sampled entry is NaN or Inf") and "NOT met" in printed
    assert f"[8, 23, 11] is exactly {(a @ b)[23, 11]:.2e}"[:30] in printed


def test_several_wrong_ones_and_parts_of_complex_numbers():
    a = np.eye(3) * (1 + 2j)
    c = a @ a
    c[0, 1], c[2, 2] = complex(0, np.inf), complex(np.nan, 1)
    save(a, a, c)
    printed = run(code=1)
    assert (
        "2 sampled entries are NaN or Inf where the exact product is a number: [0, 1], the first, is exactly 0+0j"
        in (printed)
    )


def test_nan_and_inf_that_operands_explain(matrices):
    a, b = matrices
    a[3, 4], b[5, 6] = np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        save(a, b, a @ b)
    found = judged("--rows", 30, "--cols", 30)
    assert (found["entries"], found["skipped"], found["nonfinite"]) == (29 * 29, 30 + 30 - 1, 0) and found["holds"]
    assert "not compared: 59 sampled entries that NaN or Inf in A or B touch" in run("--rows", 30, "--cols", 30)
    save(np.full((2, 2), np.nan), np.eye(2), np.full((2, 2), np.nan))
    nothing = "c.npy: nothing was checked: each of the 4 sampled entries over- or underflows, or NaN or Inf in A or B"
    assert run(code=1).startswith(nothing) and "met" not in run("--accuracy", "fp64", code=1)
    found = judged("--accuracy", "fp64", code=1)
    assert found["error"] is None and not found["holds"] and not found["accuracy"]["holds"]


def test_exact_numbers_out_of_range():
    """A sum that overflows on the way to an exact number of the format is missing, one that overflows itself is not."""
    a, b = np.array([[1e200, 1e200]]), np.array([[1e200, 1e-320, 1e120, 1.0], [1e200, 0, -1e120, 0]])
    save(a, b, np.array([[np.inf, 1e200 * 1e-320, 0, 1e200]]))
    found = judged()
    assert (found["entries"], found["skipped"], found["nonfinite"]) == (3, 1, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        save(a, b, a @ b)
    found = judged(code=1)
    assert (found["entries"], found["nonfinite"], found["nonfinite_at"]) == (2, 1, [0, 2])
    assert "exactly 0" in run(code=1)


def test_numbers_that_should_be_zero():
    a, b = np.array([[1.0, -1.0]]), np.array([[0.1, 0.0, 2.0], [0.1, 0.0, 1.0]])
    save(a, b, np.array([[1e-17, 0.0, 1.0]]))
    printed = run()
    assert "[0, 0] has 0 of 15 correct digits: it is 1.0e-17, exactly 0\n" in printed
    assert "1 sampled entry should be 0; ozaki gives zeros, too, with accuracy=relative:2^-53" in printed
    found = judged("--accuracy", "relative:1e-9", code=1)
    assert found["accuracy"]["error"] is None and found["wrong_zeros"] == 1 and found["bits"] == 53 + 2
    np.save("c.npy", a @ b)
    assert run() == "c.npy is exact in 3 sampled entries\n"
    save(np.zeros((2, 2)), np.eye(2), np.array([[0, 1e-300], [0, 0]]))
    assert judged(code=1)["error"] is None and judged(code=1)["bits"] is None
    assert "largest error: inf" in run(code=1)


def test_a_long_product_of_other_matrices_is_told_from_a_bad_one():
    a, b, x, y = np.random.default_rng(0).standard_normal((4, 20, 20000))
    save(a, b.T.copy(), x @ y.T)
    assert run(code=1).startswith("c.npy is not the product of A and B")
    save(a, b.T.copy(), (a.astype("f2").astype("f8") @ b.T).round(-1))
    assert run().startswith("c.npy is less accurate than a good native float32 product")


# Shapes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "axes"),
    [((7,), (7, 4), 1), ((5, 7), (7,), 1), ((7,), (7,), 0), ((6, 5, 7), (7, 4), 3), ((2, 1, 1, 7), (3, 7, 1), 4)],
)
def test_vectors_and_stacks(rng, a, b, axes):
    a, b = rng.standard_normal(a), rng.standard_normal(b)
    c = np.array(a @ b)
    save(a, b, c)
    assert judged()["as_good_as"] == "float64"
    place = tuple(int(rng.integers(0, size)) for size in c.shape)
    c[place] = np.nan
    np.save("c.npy", c)
    found = judged("--rows", 1, "--cols", 1, code=1)
    assert found["nonfinite_at"] == list(place) and len(place) == axes


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 2), (2, 3, 0), (2, 0, 3), (1, 1, 1)])
def test_small_and_empty_products(m, k, n):
    a, b = np.full((m, k), 3.0), np.full((k, n), 1 / 3)
    save(a, b, a @ b)
    code = int(m * n == 0)
    found = judged("--accuracy", "fp64", code=code)
    assert found["entries"] == m * n and found["holds"] == bool(m * n)
    printed = run(code=code)
    if m * n == 0:
        assert printed == "c.npy: nothing was checked: the product has no entries\n"
    elif k == 0:
        assert printed == "c.npy is exact in 6 sampled entries\n"
    else:
        assert "all 15 digits of every sampled entry are correct" in printed


def test_a_complex_product_is_not_taken_for_a_real_one(matrices):
    a, b = matrices
    save(a, b + 1j * a, a @ b)
    assert run(code=1).startswith("c.npy is not the product of A and B")
    save(a, b, (a @ b).astype(complex))
    assert "as accurate as a good native complex128 product" in run()


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("product", "words", "message"),
    [
        ("c.npy", ["--scheme", "residues"], "--scheme: with --product ozaki computes nothing; remove this option"),
        ("c.npy", ["--slices", "7"], "--slices: with --product ozaki computes nothing"),
        ("c.npy", ["--reproducible"], "--reproducible: with --product ozaki computes nothing"),
        ("c.npy", ["--device", "cpu"], "--device: with --product ozaki computes nothing"),
        ("c.npy", ["--dtype", "float32"], "--dtype: with --product ozaki computes nothing"),
        (
            "none.npy",
            ["--dtype", "mp", "--device", "cpu"],
            "--dtype, --device: with --product ozaki computes nothing; remove these",
        ),
        ("none.npy", [], "none.npy: No such file"),
        ("c.csv", [], "c.csv: format .csv is not known"),
        ("text.npy", [], "text.npy: is no .npy file"),
        ("half.npy", [], "half.npy: float16 is not supported"),
        ("a.npy", [], "--product: a.npy has shape (3, 4); the product of A and B has shape (3, 2)"),
        ("row.npy", [], "--product: row.npy has shape (6,); the product of A and B has shape (3, 2)"),
        ("c.npy", ["--accuracy", "fp65"], "accuracy: 'fp65' is not known"),
    ],
)
def test_bad_input_is_named(folder, product, words, message):
    a, b = np.ones((3, 4)), np.ones((4, 2))
    save(a, b, a @ b)
    np.save("row.npy", (a @ b).ravel())
    np.save("half.npy", (a @ b).astype("f2"))
    (folder / "text.npy").write_text("not an array", encoding="ascii")
    printed = run(*words, code=2, of=("a.npy", "b.npy", product))
    assert printed.startswith("error: ") and message in printed and printed.count("\n") == 1


def test_operands_that_do_not_fit():
    save(np.ones((3, 4)), np.ones((3, 4)), np.ones((3, 3)))
    assert "b: shape (3, 4) does not fit a of shape (3, 4)" in run(code=2)
