"""The command line with multiprecision numbers and integers: files, dtypes, accuracies, checks."""

import io
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import ozaki
from ozaki._cli import text_files, verify
from ozaki._cli.commands import app
from ozaki._cli.files import read, write
from ozaki.records.accuracy import of_text

runner = CliRunner()


def run(*words, code=0):
    """Run a command line; return its standard output, or its message if it ends with exit code 2."""
    result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code != 2 else result.stderr


def identical(x, y):
    return isinstance(x, ozaki.MPArray) and x.shape == y.shape and x.bits == y.bits and bool((x == y).all())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with two float matrices, two multiprecision ones, and one of integers."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    np.save("a.npy", rng.standard_normal((9, 7)))
    np.save("b.npy", rng.standard_normal((7, 5)))
    ozaki.mparray([[f"1/{3 + i + 7 * j}" for i in range(7)] for j in range(9)], bits=200).save("wide.npz")
    write("wide.txt", ozaki.mparray([[f"-{i}.{j}1" for i in range(5)] for j in range(7)], bits=300))
    np.save("whole.npy", rng.integers(-(2**62), 2**62, (7, 7)))
    np.save("small.npy", rng.integers(-9, 9, (7, 7)))
    return tmp_path


# --- text ----------------------------------------------------------------------


def written(x):
    file = io.BytesIO()
    text_files.write(file, x)
    return file.getvalue()


@st.composite
def arrays(draw):
    """An MPArray of any shape and bits, its elements from tiny to huge."""
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    bits = draw(st.integers(2, 400))
    reach = draw(st.sampled_from([0, 5, 2000, 2**50]))
    values = []
    for _ in range(math.prod(shape)):
        whole = draw(st.integers(-(2**bits) + 1, 2**bits - 1))
        values.append((whole, draw(st.integers(-reach, reach))))
    x = ozaki.mparray([w for w, _ in values] or np.zeros(0), bits=bits)
    far = np.array([e for _, e in values], np.int64).reshape(-1) * (x.signs != 0)
    return ozaki.MPArray(x.signs, x.exponents + far, x.limbs, x.bits).reshape(shape)


@given(arrays())
@example(ozaki.mparray([[1, 2**9]]).round_to(2))
@example(ozaki.MPArray(np.ones(2, np.int8), np.array([1, -3]), np.full((1, 2), 2**31, np.uint32), 1))
@settings(max_examples=300, deadline=None)
def test_text_comes_back_bit_for_bit(x):
    assert identical(text_files.read(io.BytesIO(written(x))), x)


@pytest.mark.parametrize("bits", [2, 53, 93, 196, 485, 5000])
def test_the_digits_of_text_are_as_many_as_the_bits_give(bits):
    """The bits where a digit less would do best, too: 10**28 is 1 % more than 2**93."""
    third = ozaki.mparray([["1/3", 0, "-2e-40"]], bits=bits)
    first, line = written(third).decode().splitlines()
    assert first == f"# ozaki: shape (1, 3), bits {bits}"
    digits = math.ceil(bits * math.log10(2)) + 1
    entries = line.split()
    assert [len(x.partition("e")[0].strip("-").replace(".", "")) for x in entries] == [digits, 1, digits]
    ulp = Fraction(1, 10**digits)
    assert abs(third.to_fractions()[0, 0] - Fraction(entries[0])) <= ulp / 2 * (1 + ulp)


def test_whole_numbers_are_written_as_such():
    lines = written(ozaki.mparray([[3, -12], [0, 3**400]])).decode().splitlines()
    assert lines[1:] == ["3 -12", f"0 {3**400}"]
    assert written(ozaki.mparray([[3, 2**300]])).decode().splitlines()[1].startswith("3.")


def test_text_by_hand():
    text = b"\xef\xbb\xbf# ozaki: shape (2, 2), bits 120\n# comment\n\n 0.1   1/3\n-2.5e-7 4\n"
    x = text_files.read(io.BytesIO(text))
    assert identical(x, ozaki.mparray([["0.1", "1/3"], ["-2.5e-7", 4]], bits=120))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: ''; expected shape and bits"),
        ("1 2\n3 4\n", "line 1: '1 2'; expected shape and bits, as # ozaki: shape (2, 3), bits 212"),
        ("1.0e+00 2.0e+00\n", "a file of np.savetxt? load it with np.loadtxt and save it with np.save"),
        ("\udcff", "expected shape and bits"),
        ("# ozaki: shape (2, 2), bits 0\n", "line 1: 0 bits; expected 1 to"),
        ("# ozaki: shape (2, 2), bits 99999999\n", "line 1: 99999999 bits; expected 1 to"),
        ("# ozaki: shape (2, 2), bits 53\n1 2\n", "1 rows; expected 2, by the shape in line 1"),
        ("# ozaki: shape (2, 2), bits 53\n1 2\n\n3\n", "line 4: 1 entries; expected 2"),
        ("# ozaki: shape (2, 2), bits 53\n1 2\n3 nan\n", "element [1, 1] is 'nan'; there is no such multiprecision"),
        ("# ozaki: shape (1, 1), bits 53\nx\n", "element [0, 0] is 'x'; expected a decimal number"),
        ("# ozaki: shape (99999999999999, 99999999999999), bits 53\n1\n", "line 2: 1 entries; expected 9999"),
    ],
)
def test_text_of_another_form_is_named(folder, text, message):
    (folder / "x.txt").write_text(text, encoding="utf-8", errors="surrogateescape")
    printed = run("multiply", "a.npy", "x.txt", "-o", "c.npz", code=2)
    assert printed.startswith("error: x.txt: ") and message in printed and printed.count("\n") == 1


# --- multiply --------------------------------------------------------------------


@pytest.mark.parametrize("accuracy", ["212", "relative:1e-12", "exact", "row-column:1e-50", "2^-1500"])
@pytest.mark.parametrize("output", ["c.npz", "c.txt"])
@pytest.mark.usefixtures("folder")
def test_multiply_writes_the_multiprecision_product(accuracy, output):
    a, b = np.load("a.npy"), np.load("b.npy")
    assert run("multiply", "a.npy", "b.npy", "-o", output, "--accuracy", accuracy, "--dtype", "mp") == ""
    expected = ozaki.matmul(a, b, accuracy=of_text(accuracy), dtype="mp")
    assert identical(read(output), expected)
    if output == "c.npz":
        assert identical(ozaki.MPArray.load(output), expected)


@pytest.mark.usefixtures("folder")
def test_multiprecision_files_are_operands():
    wide, other = ozaki.MPArray.load("wide.npz"), read("wide.txt")
    run("multiply", "wide.npz", "wide.txt", "-o", "c.txt", "--accuracy", "250")
    assert identical(read("c.txt"), ozaki.matmul(wide, other, accuracy=250))
    run("multiply", "wide.npz", "b.npy", "-o", "c.npz")
    assert identical(read("c.npz"), ozaki.matmul(wide, np.load("b.npy")))
    run("multiply", "wide.npz", "wide.txt", "-o", "c.npy", "--dtype", "float64", "--accuracy", "fp64")
    np.testing.assert_array_equal(np.load("c.npy"), ozaki.matmul(wide, other, dtype="float64", accuracy="fp64"))


@pytest.mark.usefixtures("folder")
def test_text_implies_mp_and_archives_imply_nothing():
    a, b = np.load("a.npy"), np.load("b.npy")
    run("multiply", "a.npy", "b.npy", "-o", "c.txt", "--accuracy", "212")
    assert identical(read("c.txt"), ozaki.matmul(a, b, accuracy=212, dtype="mp"))
    run("multiply", "a.npy", "b.npy", "-o", "c.npz", "--accuracy", "212")
    np.testing.assert_array_equal(np.load("c.npz")["c"], ozaki.matmul(a, b, accuracy=212))


@pytest.mark.usefixtures("folder")
def test_integers_stay_integers_where_they_are_asked_for():
    whole, small = np.load("whole.npy"), np.load("small.npy")
    for output in ("c.npz", "c.txt"):
        run("multiply", "whole.npy", "small.npy", "-o", output, "--dtype", "mp")
        assert identical(read(output), ozaki.matmul(whole, small, dtype="mp"))
    assert (read("c.txt").to_ints()[0] * 2 ** read("c.txt").to_ints()[1].astype(object)).tolist() == (
        whole.astype(object) @ small.astype(object)
    ).tolist()
    for output in ("c.npy", "c.npz:c", "c.mtx", "c.mtx.gz", "c.txt"):
        run("multiply", "small.npy", "small.npy", "-o", output.partition(":")[0], "--dtype", "int64")
        c = read(output, integers=True)
        assert (c == small @ small).all()
        assert output == "c.txt" or c.dtype == np.int64
    assert "integers beyond 2**53" in run("multiply", "whole.npy", "whole.npy", "-o", "c.npy", code=2)
    printed = run("multiply", "whole.npy", "whole.npy", "-o", "c.npy", "--dtype", "int64", code=2)
    assert "does not fit int64; ask for dtype='mp'" in printed


@pytest.mark.usefixtures("folder")
def test_an_integer_matrix_market_file_is_multiplied_exactly():
    small = np.load("small.npy")
    write("small.mtx", small)
    run("multiply", "small.mtx", "small.mtx", "-o", "c.txt", "--dtype", "mp")
    assert identical(read("c.txt"), ozaki.matmul(small, small, dtype="mp"))
    assert read("small.mtx").dtype == np.float64


LONG = {
    "general": [2**53 + 1, -(2**63), 2**64 + 1, -(10**30)],
    "symmetric": [2**53 + 1, -(2**63), 2**64 + 1],
    "skew-symmetric": [-(2**63)],
}


@pytest.mark.parametrize("layout", ["array", "coordinate"])
@pytest.mark.parametrize(("symmetry", "stored"), LONG.items(), ids=LONG)
@pytest.mark.usefixtures("folder")
def test_long_integers_of_a_matrix_market_file(layout, symmetry, stored):
    """Those beyond 2**53, and beyond 64 bits: refused as float64, and multiplied exactly."""
    places = {"general": "1 1,2 1,1 2,2 2", "symmetric": "1 1,2 1,2 2", "skew-symmetric": "2 1"}[symmetry].split(",")
    sizes = "2 2" if layout == "array" else f"2 2 {len(stored)}"
    entries = stored if layout == "array" else [f"{at} {x}" for at, x in zip(places, stored, strict=True)]
    text = "\n".join([f"%%MatrixMarket matrix {layout} integer {symmetry}", sizes, *map(str, entries), ""])
    Path("long.mtx").write_text(text, encoding="ascii")
    x = np.zeros((2, 2), object)
    for at, value in zip(places, stored, strict=True):
        i, j = (int(place) - 1 for place in at.split())
        if symmetry != "general":
            x[j, i] = -value if symmetry == "skew-symmetric" else value
        x[i, j] = value
    if symmetry != "skew-symmetric":
        assert "--dtype int64 or mp" in run("multiply", "long.mtx", "long.mtx", "-o", "c.npz", code=2)
    run("multiply", "long.mtx", "long.mtx", "-o", "c.npz", "--dtype", "mp")
    assert (read("c.npz").to_integers() == x @ x).all()
    assert "every bit" in run("plan", "long.mtx", "long.mtx", "--dtype", "mp")
    run("verify", "long.mtx", "long.mtx", "--product", "c.npz")


@pytest.mark.usefixtures("folder")
def test_integers_of_a_matrix_market_file_keep_their_size():
    for field, values, dtype in (
        ("integer", [2**63 - 1, -(2**63)], np.int64),
        ("unsigned-integer", [2**64 - 1, 0], np.uint64),
        ("integer", [7, 0], np.int64),
    ):
        Path("x.mtx").write_text(f"%%MatrixMarket matrix array {field} general\n2 1\n{values[0]}\n{values[1]}\n")
        x = read("x.mtx", integers=True)
        assert x.dtype == dtype and x.ravel().tolist() == values
    Path("x.mtx").write_text(f"%%MatrixMarket matrix array integer general\n1 1\n-1{5000 * '0'}\n")
    assert read("x.mtx", integers=True).to_integers()[0, 0] == -(10**5000)


@pytest.mark.usefixtures("folder")
def test_the_report_of_a_multiprecision_product():
    words = ["multiply", "wide.npz", "wide.txt", "-o", "c.npz", "--accuracy", "2000"]
    printed = run(*words, "--report")
    assert "c.npz: 9x5, mp2000" in printed and "componentwise error <= " in printed and "e-60" in printed
    report = json.loads(run(*words, "--json"))
    assert (report["dtype"], report["shape"]) == ("mp2000", [9, 5])
    assert -2001 < math.log2(report["bound"]) + report["exponent"] < -1990


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["a.npy", "b.npy", "-o", "c.npy", "--dtype", "mp"],
            "c.npy: a .npy file holds no multiprecision numbers",
        ),
        (["no.npy", "no.npy", "-o", "c.mtx", "--dtype", "mp"], "or round by --dtype float64"),
        (
            ["wide.npz", "b.npy", "-o", "c.npy"],
            "c.npy: a .npy file holds no multiprecision numbers; write .npz",
        ),
        (["b.npy", "wide.txt", "-o", "c.mtx.gz"], "b: shape"),
        (["wide.npz", "wide.txt", "-o", "c.mtx.gz"], "c.mtx.gz: a .mtx.gz file holds no multiprecision"),
        (
            ["a.npy", "b.npy", "-o", "c.txt", "--dtype", "float64"],
            "c.txt: a .txt file holds multiprecision",
        ),
        (["a.npy", "b.npy", "-o", "c.npz", "--dtype", "float16"], "--dtype"),
        (["a.npy", "b.npy", "-o", "c.npy", "--dtype", "int64"], "is no whole number"),
        (["a.npy", "b.npy", "-o", "c.npz", "--accuracy", "2^-100001"], "a tolerance of at least 2^-100000"),
        (["a.npy", "b.npy", "-o", "c.npz", "--accuracy", "relative:1e-99999"], "a tolerance of at least 2^-100000"),
        (["a.npy", "broken.npz", "-o", "c.npz"], "broken.npz: limbs that are not normalised"),
        (["a.npy", "nan.npy", "-o", "c.txt"], "b: element [0, 0] is nan"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named_before_the_work(folder, monkeypatch, words, message):
    x = ozaki.mparray(np.ones((7, 2)))
    np.savez("broken.npz", signs=x.signs, exponents=x.exponents, limbs=x.limbs >> 1, bits=np.int64(x.bits))
    np.save("nan.npy", np.full((7, 2), np.nan))
    before = sorted(folder.iterdir())
    if "no multiprecision" in message:
        monkeypatch.setattr(ozaki, "matmul", None)
    printed = run("multiply", *words, code=2)
    assert message in printed
    assert printed.startswith("error: ") and printed.count("\n") == 1
    assert sorted(folder.iterdir()) == before


# --- plan ------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("options", [["--accuracy", "212"], ["--accuracy", "relative:1e-20"], ["--accuracy", "exact"]])
def test_plans_of_multiprecision_files(options):
    plan = json.loads(run("plan", "wide.npz", "wide.txt", *options, "--json"))
    expected = ozaki.plan(read("wide.npz"), read("wide.txt"), accuracy=of_text(options[1]))
    assert (plan["dtype"], plan["slices"], plan["bound"]) == (expected.dtype, expected.slices, expected.bound)
    assert plan["seconds"] > 0
    printed = run("plan", "wide.npz", "wide.txt", *options, "--explain", "--steps")
    assert f"{plan['slices']} residues" in printed and "chosen" in printed and "about" in printed


@pytest.mark.usefixtures("folder")
def test_plans_of_files_into_another_dtype():
    assert json.loads(run("plan", "a.npy", "b.npy", "--dtype", "mp", "--accuracy", "99", "--json"))["dtype"] == "mp99"
    assert json.loads(run("plan", "a.npy", "b.npy", "--dtype", "float32", "--json"))["dtype"] == "float32"
    plan = json.loads(run("plan", "whole.npy", "small.npy", "--dtype", "int64", "--json"))
    assert plan["bound"] == 0


def test_plans_of_multiprecision_shapes():
    words = ["plan", "30x40", "40x20", "--dtype", "mp"]
    plan = json.loads(run(*words, "--accuracy", "row-column:1e-50", "--json"))
    expected = ozaki.plan((30, 40), (40, 20), dtype="mp", accuracy=ozaki.Accuracy("row-column", 1e-50))
    assert (plan["dtype"], plan["slices"], plan["bound"]) == (expected.dtype, expected.slices, expected.bound)
    assert plan["a_priori"] and plan["seconds"] > 0
    tiny = json.loads(run(*words, "--accuracy", "row-column:2^-3000", "--json"))
    assert (tiny["dtype"], tiny["target"]["exponent"]) == ("mp3001", -2999)
    likely = json.loads(run(*words, "--accuracy", "212", "--json"))
    assert likely["dtype"] == "mp212" and "plan from files" in likely["undecided"]
    rng = np.random.default_rng(0)
    a, b = ozaki.mparray(rng.standard_normal((30, 40))), ozaki.mparray(rng.standard_normal((40, 20)))
    wide = [x * (1 + Fraction(1, 2**150)) for x in (a, b)]
    assert abs(ozaki.plan(*wide, accuracy=212).slices - likely["slices"]) <= 2
    assert "mp2000" in run(*words, "--accuracy", "2000")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dtype", "int64"], "dtype: an int64 product"),
        (["--dtype", "mp", "--accuracy", "exact"], "accuracy: an exact product"),
        (["--dtype", "mp", "--accuracy", "relative:1e-9"], "accuracy: a relative target"),
        (["--dtype", "mp", "--scheme", "digits", "--accuracy", "99"], "scheme: 'digits' has no slices of multiprec"),
        (["--dtype", "mp", "--scheme", "native"], "scheme: 'native' has no slices of multiprec"),
    ],
)
def test_plans_that_shapes_do_not_decide(options, message):
    assert message in run("plan", "30x40", "40x20", *options, code=2)


# --- verify ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["wide.npz", "wide.txt"],
        ["wide.npz", "b.npy", "--accuracy", "300"],
        ["wide.npz", "wide.txt", "--accuracy", "3000"],
        ["wide.npz", "wide.txt", "--accuracy", "relative:1e-60"],
        ["a.npy", "b.npy", "--accuracy", "relative:1e-12"],
        ["a.npy", "b.npy", "--accuracy", "normwise:2^-2000", "--dtype", "mp"],
        ["a.npy", "b.npy", "--accuracy", "row-column:1e-99", "--dtype", "mp"],
        ["wide.npz", "wide.txt", "--dtype", "float64", "--accuracy", "fp64"],
        ["a.npy", "b.npy", "--dtype", "float32"],
        ["small.npy", "small.npy", "--dtype", "int64"],
        ["whole.npy", "wide.txt", "--dtype", "mp"],
        ["a.npy", "b.npy", "--accuracy", "exact", "--dtype", "mp"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_verify_shows_errors_of_any_size_beside_the_bound(words):
    printed = run("verify", *words)
    assert "holds" in printed
    found = json.loads(run("verify", *words, "--json"))
    assert found["holds"] and found["entries"] in (45, 49, 35)
    exact = found["report"]["bound"] == 0
    assert found["error"] == 0 if exact else 0 <= found["error"] <= found["report"]["bound"]
    if not exact and found["error"] > 0:
        assert " 0 " not in printed.splitlines()[-2]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("accuracy", ["relative:1e-12", "2000", "exact"])
def test_a_broken_multiprecision_bound_is_found(monkeypatch, accuracy):
    matmul = ozaki.matmul

    def wrong(*args, **kwargs):
        c, report = matmul(*args, **kwargs)
        return c + ozaki.mparray([[1]]) * Fraction(1, 2**1990 if accuracy != "relative:1e-12" else 2**30), report

    monkeypatch.setattr(ozaki, "matmul", wrong)
    words = ["verify", "wide.npz", "wide.txt", "--accuracy", accuracy]
    assert "BROKEN" in run(*words, code=1)
    found = json.loads(run(*words, "--json", code=1))
    assert not found["holds"] and found["error"] > found["report"]["bound"]


def test_the_norms_of_a_check_are_those_of_numpy():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((4, 6)) * 2.0 ** rng.integers(-30, 30, (4, 1))
    x[2] = 0
    with np.errstate(divide="ignore"):
        rows = np.log2(np.linalg.norm(x, axis=1))
    for of in (x, ozaki.mparray(x)):
        np.testing.assert_allclose(verify._log2_norms(of, "row-column"), rows, rtol=1e-14)
        np.testing.assert_allclose(verify._log2_norms(of, "normwise"), np.log2(np.linalg.norm(x)), rtol=1e-14)


def test_stacks_of_multiprecision_matrices_are_checked():
    rng = np.random.default_rng(2)
    a, b = ozaki.mparray(rng.standard_normal((3, 1, 5, 6)), bits=90), rng.standard_normal((2, 6, 4))
    c = ozaki.matmul(a, b)
    assert verify.sampled(c, a, b, "componentwise", 9, 9).entries == 4 * 5 * 4
    assert verify.sampled(c + np.ones(1), a, b, "componentwise", 9, 9).error > 1e-3
    x = ozaki.mparray(rng.standard_normal(6))
    for left, right in ((x, b), (a, x), (x, x)):
        checked = verify.sampled(ozaki.matmul(left, right, accuracy=99), left, right, "relative", 9, 9)
        assert checked.error < 1e-20 and checked.entries > 0


# --- accuracies --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "measure", "value"),
    [
        ("2^-5000", "componentwise", Fraction(1, 2**5000)),
        ("relative:2**-100000", "relative", Fraction(1, 2**100000)),
        ("1e-400", "componentwise", Fraction(1, 10**400)),
        ("row-column:2.5E-9999", "row-column", Fraction(5, 2) / 10**9999),
    ],
)
def test_tolerances_below_the_range_of_a_float(text, measure, value):
    found = of_text(text)
    assert found.measure == measure and found.exponent < 0
    assert 1 - Fraction(1, 2**50) <= Fraction(found.tolerance) / 2**-found.exponent / value <= 1


def test_accuracies_of_any_size_as_they_are_typed():
    assert of_text("exact") == "exact"
    assert of_text("100000") == 100_000
    assert of_text("relative:1e-12") == ozaki.Accuracy("relative", 1e-12)
    assert of_text("1e-300") == 1e-300
    assert of_text("componentwise:0") == ozaki.Accuracy("componentwise", 0)
