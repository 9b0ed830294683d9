"""The command line with complex matrices: files, dtypes, plans, checks."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import ozaki
from ozaki import reference
from ozaki._cli import verify
from ozaki._cli.commands import app
from ozaki._cli.files import read, write

runner = CliRunner()


def run(*words, code=0):
    """Run a command line; return its standard output, or its message if it ends with exit code 2."""
    result = runner.invoke(app, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code != 2 else result.stderr


def normal(rng, shape, dtype):
    """Normally distributed numbers, with both parts if they are complex."""
    parts = rng.standard_normal((*shape, 2)).view(np.complex128)[..., 0]
    return (parts if np.dtype(dtype).kind == "c" else parts.real).astype(dtype)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with two complex matrices, and with a float and an integer one of the shape of the second."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    np.save("a.npy", normal(rng, (9, 7), "complex128"))
    np.savez("b.npz", b=normal(rng, (7, 5), "complex64"))
    np.save("real.npy", normal(rng, (7, 5), "float64"))
    np.save("whole.npy", rng.integers(-9, 9, (7, 5)))
    ozaki.mparray(normal(rng, (7, 5), "float64"), bits=100).save("wide.npz")
    return tmp_path


# --- files ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mtx", ".mtx.gz"])
def test_what_is_written_is_read(tmp_path, suffix, dtype):
    x = normal(np.random.default_rng(2), (4, 3), dtype)
    x[0] = [complex(np.nan, -0.0), complex(-0.0, np.inf), complex(-np.inf, 1)]
    path = str(tmp_path / f"x{suffix}")
    write(path, x)
    back = read(path)
    # A number in a .mtx file is read as a float64, whatever it was written from.
    expected = x.astype("complex128") if ".mtx" in suffix else x
    assert back.dtype == expected.dtype and np.ascontiguousarray(back).tobytes() == expected.tobytes()


def test_complex_numbers_of_another_byte_order(tmp_path):
    x = normal(np.random.default_rng(2), (3, 4), "complex64")
    np.save(tmp_path / "x.npy", x.astype(">c8"))
    found = read(str(tmp_path / "x.npy"))
    assert found.dtype == np.complex64 and np.array_equal(found, x)


# --- products ------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("right", ["b.npz", "real.npy", "whole.npy"])
@pytest.mark.parametrize("output", ["c.npy", "c.npz", "c.mtx", "c.mtx.gz"])
def test_a_product_of_files(right, output):
    found = json.loads(run("multiply", "a.npy", right, "-o", output, "--accuracy", "fp64", "--json"))
    expected, report = ozaki.matmul(read("a.npy"), read(right), accuracy="fp64", return_report=True)
    assert np.array_equal(read(output), expected)
    assert (found["dtype"], found["bound"], found["slices"]) == ("complex128", report.bound, report.slices)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("left", "right", "options"),
    [
        ("a.npy", "wide.npz", []),
        ("a.npy", "b.npz", ["--dtype", "mp", "--accuracy", "150"]),
        ("a.npy", "whole.npy", ["--dtype", "mp", "--accuracy", "exact"]),
    ],
)
def test_complex_multiprecision_products(left, right, options):
    found = json.loads(run("multiply", left, right, "-o", "c.npz", *options, "--json"))
    c = read("c.npz")
    assert c.is_complex and found["dtype"] == f"complex mp{c.bits}"
    a, b = read(left), read(right)
    assert reference.componentwise_error(c, a, b, exponent=found["exponent"]) <= found["bound"]
    verified = json.loads(run("verify", left, right, "--json"))
    assert verified["error"] <= verified["report"]["bound"]
    assert "residues" in run("plan", left, right, *options)


@pytest.mark.usefixtures("folder")
def test_the_dtype_of_a_product():
    words = "multiply", "a.npy", "b.npz", "-o", "c.npy", "--dtype", "complex64"
    assert "c.npy: 9x5, complex64" in run(*words, "--report")
    assert np.array_equal(np.load("c.npy"), ozaki.matmul(read("a.npy"), read("b.npz"), dtype="complex64"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.npy", "b.npz", "-o", "c.txt"], "c.txt: a .txt file holds real numbers, and the product is complex; write"),
        (["a.npy", "b.npz", "-o", "c.txt", "--dtype", "complex64"], "c.txt: a .txt file holds real numbers"),
        (["a.npy", "wide.npz", "-o", "c.txt"], "c.txt: a .txt file holds real numbers, and the product is complex"),
        (["a.npy", "whole.npy", "-o", "c.npy", "--dtype", "int64"], "dtype: 'int64', but the product is complex"),
        (["a.npy", "wide.npz", "-o", "c.npy"], "c.npy: a .npy file holds no multiprecision numbers; write .npz"),
        (["a.npy", "b.npz", "-o", "c.npy", "--dtype", "float64"], "dtype: 'float64', but the product is complex"),
        (["a.npy", "text.txt", "-o", "c.npy"], "text.txt: element [0, 0] is '1+2j'; expected a decimal number"),
        (["diagonal.mtx", "b.npz", "-o", "c.npy"], "diagonal.mtx: line 3: 1j on the diagonal; expected an imaginary"),
    ],
)
def test_what_is_not_had_is_named(folder, words, message):
    (folder / "text.txt").write_text("# ozaki: shape (1, 1), bits 53\n1+2j\n", encoding="ascii")
    (folder / "diagonal.mtx").write_text("%%MatrixMarket matrix array complex hermitian\n1 1\n0 1\n", encoding="ascii")
    before = {path.name for path in folder.iterdir()}
    printed = run("multiply", *words, code=2)
    assert message in printed and printed.startswith("error: ") and printed.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == before


# --- plans ---------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("right", ["b.npz", "real.npy"])
@pytest.mark.parametrize("options", [[], ["--accuracy", "fp64"], ["--scheme", "digits"]], ids=" ".join)
def test_a_plan_of_files(right, options):
    found = json.loads(run("plan", "a.npy", right, *options, "--json"))
    accuracy, scheme = ("fp64" if "fp64" in options else None), ("digits" if "digits" in options else "auto")
    expected = ozaki.plan(read("a.npy"), read(right), accuracy=accuracy, scheme=scheme)
    assert (found["dtype"], found["slices"], found["bound"]) == ("complex128", expected.slices, expected.bound)
    assert 0 < found["seconds"] < 60 and found["steps"]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "options",
    [[], ["--accuracy", "fp64"], ["--accuracy", "dd"], ["--reproducible"], ["--scheme", "residues", "--slices", "14"]],
    ids=" ".join,
)
def test_shapes_and_files_of_ordinary_matrices_get_the_same_answer(tmp_path, options, dtype):
    """The plans may differ by two slices at most, if the largest elements decide the count."""
    rng = np.random.default_rng(4)
    for name, shape in (("a.npy", (60, 80)), ("b.npy", (80, 50))):
        np.save(tmp_path / name, normal(rng, shape, dtype))
    of_files = json.loads(run("plan", f"{tmp_path}/a.npy", f"{tmp_path}/b.npy", *options, "--json"))
    of_shapes = json.loads(run("plan", "60x80", "80x50", "--dtype", dtype, *options, "--json"))
    for name in ("shape", "dtype", "scheme", "device", "engine", "why"):
        assert of_files[name] == of_shapes[name]
    assert abs(of_files["slices"] - of_shapes["slices"]) <= (2 if of_shapes["undecided"] else 0)
    for found in (of_files, of_shapes):
        assert 0 < found["seconds"] < 60


@pytest.mark.usefixtures("folder")
def test_real_files_have_no_complex_plan():
    np.save("x.npy", np.eye(3))
    printed = run("plan", "x.npy", "x.npy", "--dtype", "complex128", code=2)
    assert "dtype: 'complex128', but a and b are real" in printed


# --- checks --------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("right", ["b.npz", "real.npy"])
@pytest.mark.parametrize("accuracy", ["fp64", "80", "row-column:2^-60", "normwise:1e-18", "relative:1e-9"])
def test_verify_shows_the_error_beside_the_bound(right, accuracy):
    found = json.loads(run("verify", "a.npy", right, "--accuracy", accuracy, "--json"))
    assert found["holds"] and (found["entries"], found["skipped"]) == (9 * 5, 0)
    assert 0 < found["error"] <= found["report"]["bound"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("wrong", [1e-12, 1e-12j])
def test_verify_returns_1_where_the_bound_is_broken(monkeypatch, wrong):
    matmul = ozaki.matmul

    def off(*args, **kwargs):
        c, report = matmul(*args, **kwargs)
        c[...] *= 1 + wrong
        return c, report

    monkeypatch.setattr(ozaki, "matmul", off)
    assert "BROKEN" in run("verify", "a.npy", "b.npz", "--accuracy", "fp64", code=1)


def test_entries_with_a_part_out_of_range_are_skipped():
    a = np.array([[1e200 + 1j]])
    b = np.array([[1e200, 1e200j, 1, complex(np.nan, 0)]])
    with np.errstate(over="ignore", invalid="ignore"):
        checked = verify.sampled(a @ b, a, b, "componentwise", 9, 9)
    assert checked == verify.Checked(0.0, 1, 3)
