"""The command line: what it prints, writes and returns."""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import tracemalloc

import numpy as np
import pytest
from typer.testing import CliRunner

import ozaki
from ozaki import reference
from ozaki._cli import devices, planning, verify
from ozaki._cli.commands import app
from ozaki._cli.devices import EXTRAS
from ozaki._cli.files import read
from ozaki._cli.printing import error_of
from ozaki.backends.numpy.compiled import Compiled
from ozaki.records.accuracy import of_text
from ozaki.records.report import rounded_up

runner = CliRunner()


def run(*words, code=0):
    """Run a command line; return its standard output."""
    result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code != 2 else result.stderr


@pytest.fixture
def files(tmp_path):
    """Two matrices that can be multiplied, in files."""
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((30, 40)), rng.standard_normal((40, 20)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "b.npz", b=b)
    return a, b, tmp_path


def test_multiply_writes_the_product(files):
    a, b, folder = files
    assert run("multiply", folder / "a.npy", folder / "b.npz", "-o", folder / "c.npy", "--accuracy", "fp64") == ""
    np.testing.assert_array_equal(np.load(folder / "c.npy"), ozaki.matmul(a, b, accuracy="fp64"))


@pytest.mark.parametrize("suffix", [".npz", ".mtx", ".NPY", ".NPZ", ".MTX"])
def test_other_formats_go_and_come_back(files, suffix):
    a, b, folder = files
    c = folder / f"c{suffix}"
    run("multiply", folder / "a.npy", folder / "b.npz", "-o", c, "--reproducible")
    np.save(folder / "one.npy", np.eye(20))
    run("multiply", c, folder / "one.npy", "-o", folder / "d.npy", "--reproducible")
    np.testing.assert_array_equal(np.load(folder / "d.npy"), ozaki.matmul(a, b, reproducible=True))


def test_float32_goes_through_a_matrix_market_file(tmp_path):
    x = np.random.default_rng(2).standard_normal((4, 4), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "one.npy", np.eye(4, dtype=np.float32))
    run("multiply", tmp_path / "x.npy", tmp_path / "one.npy", "-o", tmp_path / "c.mtx", "--reproducible")
    run("multiply", tmp_path / "c.mtx", tmp_path / "one.npy", "-o", tmp_path / "d.npy", "--reproducible")
    np.testing.assert_array_equal(np.load(tmp_path / "d.npy"), x)


def test_words_that_no_device_multiplies_are_named(files, monkeypatch):
    def refuse(*_, **__):
        raise NotImplementedError("scheme: words have no bounds here")

    monkeypatch.setattr(ozaki, "matmul", refuse)
    words = ["multiply", files[2] / "a.npy", files[2] / "b.npz", "-o", files[2] / "c.npy"]
    assert "no bounds here" in run(*words, code=2)


def test_sparse_and_integer_matrices_become_dense_floats(tmp_path):
    (tmp_path / "s.mtx").write_text(
        "%%MatrixMarket matrix coordinate integer general\n2 3 2\n1 1 3\n2 3 -4\n", encoding="ascii"
    )
    np.save(tmp_path / "i.npy", np.arange(6).reshape(3, 2))
    run("multiply", tmp_path / "s.mtx", tmp_path / "i.npy", "-o", tmp_path / "c.npy")
    c = np.load(tmp_path / "c.npy")
    np.testing.assert_array_equal(c, [[0.0, 3.0], [-16.0, -20.0]])
    assert c.dtype == np.float64
    run("multiply", tmp_path / "s.mtx", tmp_path / "i.npy", "-o", tmp_path / "c.npy", "--dtype", "int64")
    assert np.array_equal(np.load(tmp_path / "c.npy"), c) and np.load(tmp_path / "c.npy").dtype == np.int64


def test_large_integers_that_float64_holds_are_read(tmp_path):
    edges = np.array([-(2**63), -(2**53), 2**53 + 2, 2**62, 3 * 2**60, 0])
    for x in (edges, np.array([2**63, 2**64 - 2**11], dtype=np.uint64), edges[:0]):
        np.save(tmp_path / "x.npy", x)
        assert [int(y) for y in read(str(tmp_path / "x.npy"))] == x.tolist()
    for wrong in (2**53 + 1, -(2**62) - 1, 2**63 - 1):
        np.save(tmp_path / "x.npy", np.array([1, wrong]))
        with pytest.raises(ValueError, match=r"x\.npy: integers beyond 2\*\*53, .*; --dtype int64 or --dtype mp mult"):
            read(str(tmp_path / "x.npy"))


def test_a_pipe_that_cannot_be_read_is_named(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    descriptor = os.open(tmp_path / "x.npy", os.O_RDWR)
    os.write(descriptor, bytes(100))
    with pytest.raises(OSError, match=r"x\.npy: .*seekable"):
        read(str(tmp_path / "x.npy"))
    os.close(descriptor)


def test_one_array_of_an_archive(files):
    a, b, folder = files
    np.savez(folder / "both.npz", a=a, b=b)
    both = folder / "both.npz"
    run("multiply", f"{both}:a", f"{both}:b", "-o", folder / "c.npy", "--reproducible")
    np.testing.assert_array_equal(np.load(folder / "c.npy"), ozaki.matmul(a, b, reproducible=True))
    assert "arrays a, b; name one" in run("multiply", both, both, "-o", folder / "c.npy", code=2)


def test_floats_of_another_byte_order(tmp_path):
    x = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "x.npy", x.astype(">f8"))
    assert read(str(tmp_path / "x.npy")).dtype == np.float64
    assert np.array_equal(read(str(tmp_path / "x.npy")), x)


def test_names_in_an_archive_whose_own_is_in_capitals(tmp_path):
    with open(tmp_path / "AB.NPZ", "wb") as file:
        np.savez(file, **{"a:b": np.ones((2, 2)), "c": np.zeros((1, 3))})
    assert read(f"{tmp_path}/AB.NPZ:a:b").shape == (2, 2)
    assert read(f"{tmp_path}/AB.NPZ:c").shape == (1, 3)


def test_the_report_is_printed_on_request(files):
    _, _, folder = files
    words = ["multiply", folder / "a.npy", folder / "b.npz", "-o", folder / "c.npy", "--accuracy", "fp64"]
    printed = run(*words, "--report")
    assert "30x20, float64" in printed
    assert "proven: componentwise error <=" in printed
    report = json.loads(run(*words, "--json"))
    assert report["scheme"] == "residues"
    assert 0 < report["bound"] < 1e-14
    assert report["slices"] == report["products"] > 10


def test_the_relative_error_is_proven_on_request(files):
    a, b, folder = files
    words = ["multiply", folder / "a.npy", folder / "b.npz", "-o", folder / "c.npy", "--accuracy", "fp64"]
    expected = ozaki.matmul(a, b, accuracy="fp64", return_report="relative")[1].relative_bound
    assert f"proven: relative error of every entry <= {rounded_up(expected)}\n" in run(*words, "--relative")
    assert json.loads(run(*words, "--relative", "--json"))["relative_bound"] == expected
    assert json.loads(run(*words, "--json"))["relative_bound"] is None


def test_plan_of_files_and_of_shapes(files):
    a, b, folder = files
    chosen = json.loads(run("plan", folder / "a.npy", folder / "b.npz", "--accuracy", "2^-60", "--json"))
    expected = ozaki.plan(a, b, accuracy=2.0**-60)
    assert (chosen["slices"], chosen["bound"]) == (expected.slices, expected.bound)
    chosen = json.loads(run("plan", "100x200", "200x50", "--dtype", "float32", "--reproducible", "--json"))
    assert chosen["shape"] == [100, 200, 50]
    assert chosen["scheme"] == "residues"
    assert "(100 x 200) (200 x 50), float32" in run("plan", "100x200", "200x50", "--dtype", "float32")


PLANS = [
    [],
    ["--reproducible"],
    ["--accuracy", "fp32"],
    ["--accuracy", "fp64"],
    ["--accuracy", "80"],
    ["--accuracy", "1e-9"],
    ["--accuracy", "row-column:1e-16"],
    ["--accuracy", "normwise:1e-12", "--reproducible"],
    ["--scheme", "digits", "--accuracy", "fp64"],
    ["--scheme", "residues", "--slices", "9"],
    ["--scheme", "residues", "--slices", "17", "--accuracy", "fp64"],
    ["--scheme", "native"],
]


@pytest.mark.parametrize("options", PLANS, ids=" ".join)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_shapes_and_files_of_ordinary_matrices_get_the_same_answer(tmp_path, options, dtype):
    """The plans may differ by two slices at most, if the largest elements decide the count."""
    rng = np.random.default_rng(4)
    for name, shape in (("a.npy", (150, 200)), ("b.npy", (200, 130))):
        np.save(tmp_path / name, rng.standard_normal(shape).astype(dtype))
    of_files = json.loads(run("plan", tmp_path / "a.npy", tmp_path / "b.npy", *options, "--json"))
    of_shapes = json.loads(run("plan", "150x200", "200x130", "--dtype", dtype, *options, "--json"))
    same = ("shape", "dtype", "scheme", "device", "engine", "why")
    if "row-column:1e-16" in options or "normwise:1e-12" in options:  # bounds from shapes may need more slices
        assert of_files["slices"] <= of_shapes["slices"]
        assert "files may take less" in of_shapes["undecided"]
        same = ("shape", "dtype", "scheme", "device", "engine")
    else:
        assert abs(of_files["slices"] - of_shapes["slices"]) <= (2 if of_shapes["undecided"] else 0)
    assert [of_files[name] for name in same] == [of_shapes[name] for name in same]
    assert not of_files["undecided"]
    componentwise = any(x in options for x in ("fp32", "fp64", "80", "1e-9")) or options == ["--reproducible"]
    assert not componentwise or "elements" in of_shapes["undecided"]
    for found in (of_files, of_shapes):
        assert 0 < found["seconds"] < 60


@pytest.mark.parametrize("k", [99_999_999, 10**12])
@pytest.mark.parametrize("options", [["--accuracy", "fp64"], ["--scheme", "fp16-digits"], []], ids=" ".join)
def test_a_plan_of_a_long_inner_dimension_takes_little_memory(k, options):
    tracemalloc.start()
    try:
        planned = json.loads(run("plan", f"3x{k}", f"{k}x2", *options, "--device", "cpu", "--json"))
        assert tracemalloc.get_traced_memory()[1] < 2e8
    finally:
        tracemalloc.stop()
    assert planned["shape"] == [3, k, 2]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scheme", ["digits", "residues", "fp16-digits"])
@pytest.mark.parametrize("accuracy", ["fp32", "fp64", "dd", "1e-9"])
def test_the_slices_of_a_long_inner_dimension_are_predicted(rng, dtype, scheme, accuracy):
    """The middle one of three numbers: for an exact product one small element of 300,000 is enough for more slices."""
    words = ["plan", "3x65536", "65536x2", "--dtype", dtype, "--scheme", scheme, "--accuracy", accuracy, "--json"]
    predicted = json.loads(run(*words))
    operands = [[rng.standard_normal(shape).astype(dtype) for shape in ((3, 65536), (65536, 2))] for _ in range(3)]
    plans = [ozaki.plan(a, b, accuracy=of_text(accuracy), scheme=scheme) for a, b in operands]
    assert abs(predicted["slices"] - sorted(plan.slices for plan in plans)[1]) <= 2
    assert predicted["target"]["tolerance"] == plans[0].target.tolerance


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="a GPU may know its own rates")
@pytest.mark.parametrize(
    ("a", "b", "scheme", "timed"),
    [
        ("3x200000", "200000x3", "halfhalf", (3, 4096, 3)),
        ("300x300", "300x300", "halfhalf", (64, 64, 64)),
        ("50x60", "60x200", "halfhalf", (50, 60, 87)),
        ("5000x2", "2x5000", "native", (4096, 2, 768)),
        ("50x60", "60x70", "digits", (50, 60, 70)),
        ("5x20x30", "30x40", "digits", (100, 30, 40)),
    ],
)
def test_the_product_that_is_timed_is_shaped_as_the_whole(monkeypatch, a, b, scheme, timed):
    """A short product is timed in place of a long one; it has a similar shape, since time depends on the shape."""

    def matmul(x, y, **options):
        shapes.append((*x.shape, y.shape[1]))
        clock[0] += next(times)

    shapes, clock, times = [], [0.0], iter([5.0, 1.0, 2.0])
    monkeypatch.setattr(ozaki, "matmul", matmul)
    monkeypatch.setattr(planning.time, "perf_counter", lambda: clock[0])
    planned = json.loads(run("plan", a, b, "--scheme", scheme, "--dtype", "float32", "--json"))
    assert shapes == [timed] * 3
    operations = np.prod(planned["shape"]) * np.prod(planned["batch"])
    assert planned["seconds"] == pytest.approx(2.0 * operations / np.prod(timed))


def test_a_plan_can_list_its_steps():
    for options, expected in (([], "numpy.matmul"), (["--scheme", "residues", "--slices", "9"], "products by BLAS")):
        printed = run("plan", "100x100", "100x100", "--device", "cpu", "--steps", *options)
        plan = json.loads(run("plan", "100x100", "100x100", "--device", "cpu", "--json", *options))
        assert all(line in printed for line in plan["steps"])
        assert expected in printed, printed


def test_a_plan_can_list_what_was_weighed(tmp_path):
    rng = np.random.default_rng(4)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((100, 100)))
    of_files, of_shapes = (
        run("plan", *operands, "--accuracy", "fp64", "--explain").splitlines()
        for operands in ((tmp_path / "a.npy", tmp_path / "b.npy"), ("100x100", "100x100"))
    )
    for lines in (of_files, of_shapes):
        assert any(line.startswith("14 residues") and line.endswith("chosen") for line in lines), lines
        assert any(line.startswith("native product") and line.endswith("proves too little") for line in lines), lines
        assert any("digits" in line and line.endswith("not asked what it proves") for line in lines), lines
        assert not any("time not known" in line and line.endswith("chosen") for line in lines), lines
    assert "13 residues" in str(ozaki.plan((9, 9), (9, 9), dtype="float64", scheme="residues", slices=13))
    plan = json.loads(run("plan", "100x100", "100x100", "--accuracy", "fp64", "--json"))
    chosen = [(each["name"], each["seconds"]) for each in plan["candidates"] if each["chosen"]]
    assert chosen == [(f"{plan['slices']} residues", plan["seconds"])]


def test_a_plan_has_a_target_where_an_accuracy_is_named(files):
    paths = files[2] / "a.npy", files[2] / "b.npz"
    for operands in (paths, ("30x40", "40x20")):
        for options in ([], ["--scheme", "residues", "--slices", "14"], ["--reproducible"]):
            assert json.loads(run("plan", *operands, *options, "--json"))["target"] is None
        assert json.loads(run("plan", *operands, "--accuracy", "fp64", "--json"))["target"]["bits"] == 53


@pytest.mark.parametrize("order", "<>")
def test_floats_of_16_bits_are_float32(files, order):
    a, _, folder = files
    half = np.arange(80, dtype=f"{order}f2").reshape(40, 2) / 8
    np.save(folder / "half.npy", half)
    run("multiply", folder / "a.npy", folder / "half.npy", "-o", folder / "c.npy", "--accuracy", "exact")
    assert np.array_equal(np.load(folder / "c.npy"), ozaki.matmul(a, half.astype("f4"), accuracy="exact"))
    words = ["plan", folder / "half.npy", folder / "half.npy", "--json"]
    np.save(folder / "half.npy", half.reshape(1, 8, 10)[0] @ np.ones((10, 8), half.dtype))
    assert json.loads(run(*words))["dtype"] == "float32"


def test_a_plan_says_where_and_why_and_for_how_long():
    printed = run("plan", "500x500", "500x500", "--accuracy", "fp64")
    assert "14 residues" in printed
    assert "native product proves at best" in printed
    assert (
        "\nan estimate, for normally distributed elements; your data may take more slices: plan from files" in printed
    )
    assert "on the CPU: NumPy, float64 BLAS, about" in printed
    assert "the native product" in run("plan", "500x500", "500x500")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="there may be a GPU")
def test_no_plan_for_a_device_that_is_not_there():
    printed = run("plan", "50x50", "50x50", "--device", "gpu", code=2)
    assert "device: a GPU needs CuPy" in printed
    assert "`ozaki plan --gpu h100` plans for a GPU that is not here" in printed


def test_a_plan_for_a_gpu_that_is_not_here():
    printed = run("plan", "4096x4096", "4096x4096", "--gpu", "H100", "--explain", "--steps")
    assert "on the GPU: NVIDIA H100, fused int8 kernel, about" in printed and "a guess" not in printed
    assert "residue_gemm" in printed and "native product            1 product" in printed
    assert "NVIDIA L4, cuBLAS int8" in (of_l4 := run("plan", "4096x4096", "4096x4096", "--gpu", "l4"))
    assert "a guess: nobody has timed this GPU" in of_l4
    plan = json.loads(run("plan", "64x64", "64x64", "--gpu", "a100", "--json"))
    assert plan["device"] == "gpu" and not plan["timed"] and plan["scheme"] == "native"


def test_what_no_plan_for_a_gpu_can_tell(files):
    _, _, folder = files
    shapes = "50x50", "50x50"
    assert "--gpu: 'h1000' is not known; expected one of t4" in run("plan", *shapes, "--gpu", "h1000", code=2)
    assert "remove one of them" in run("plan", *shapes, "--gpu", "h100", "--device", "cpu", code=2)
    operands = folder / "a.npy", folder / "b.npz"
    assert "--gpu takes shapes such as 4096x4096; remove it to plan files" in run(
        "plan", *operands, "--gpu", "h100", code=2
    )
    words = "--dtype", "float32", "--scheme", "halfhalf"
    assert "halfhalf" in run("plan", *shapes, "--gpu", "a100", *words)
    assert "not 10.0" in run("plan", *shapes, "--gpu", "b200", *words, code=2)


def test_the_version():
    assert run("--version") == f"{ozaki.__version__}\n"


@pytest.mark.parametrize("accuracy", ["fp64", "80", "1e-20", "row-column:2^-60", "normwise:1e-18"])
def test_verify_shows_the_error_beside_the_bound(files, accuracy):
    _, _, folder = files
    words = ["verify", folder / "a.npy", folder / "b.npz", "--accuracy", accuracy]
    assert "holds" in run(*words)
    found = json.loads(run(*words, "--json"))
    assert found["holds"]
    assert found["entries"] == 16 * 20
    assert 0 < found["error"] <= found["report"]["bound"]


def test_verify_returns_1_where_the_bound_is_broken(files, monkeypatch):
    _, _, folder = files
    matmul = ozaki.matmul

    def wrong(*args, **kwargs):
        c, report = matmul(*args, **kwargs)
        c[...] *= 1 + 1e-12
        return c, report

    monkeypatch.setattr(ozaki, "matmul", wrong)
    words = ["verify", folder / "a.npy", folder / "b.npz", "--accuracy", "fp64"]
    assert "BROKEN" in run(*words, code=1)
    assert not json.loads(run(*words, "--json", code=1))["holds"]


def test_info_names_versions_engines_and_the_folder_of_kernels(monkeypatch):
    monkeypatch.setenv("CUPY_CACHE_DIR", "/k")
    printed = run("info")
    assert "numpy" in printed
    root = pathlib.Path(__file__).parent.parent
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"pip install '\.\[(\w+)\]'", (root / "docs/start.md").read_text(encoding="utf-8"))
    for package, extra in EXTRAS.items():
        assert extra in named and any(each.startswith(package) for each in extras[extra]), package
    version = importlib.metadata.version

    def missing(package):
        if package in EXTRAS:
            raise importlib.metadata.PackageNotFoundError
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert "not installed (pip install '.[torch]' in a checkout)" in run("info")
    found = json.loads(run("info", "--json"))
    assert found["versions"]["numpy"] == np.__version__
    assert "float64" in found["engines"]["numpy"]
    assert found["kernels"]["folder"] in "".join(printed.split("\n"))
    assert found["threads"]["cpus"] >= found["threads"]["blas_in_products"] >= 1 <= found["threads"]["ozaki"]
    assert found["kernels"]["bytes"] >= 0 and found["kernels"]["most_bytes"] == 2**29


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Compiled("vnni", None), "AVX512-VNNI, compiled, by 1 thread"),
        (Compiled("portable", None), "portable C++, compiled, by 1 thread"),
        ("no [compiler]: get one", "float64 BLAS: no [compiler]: get one"),
        ("one is broken\nanother, too", "float64 BLAS: one is broken\nanother, too"),
    ],
)
def test_info_says_what_multiplies_int8_slices(monkeypatch, code, expected):
    monkeypatch.setattr(devices, "compiled", lambda: code)
    ozaki.set_num_threads(1)
    try:
        lines = run("info").splitlines()
        found = json.loads(run("info", "--json"))
    finally:
        ozaki.set_num_threads(None)
    (first,) = (i for i, line in enumerate(lines) if "int8 products" in line)
    assert lines[first].split("int8 products")[1].strip() == expected.splitlines()[0]
    assert [line.strip() for line in lines[first + 1 :][: expected.count("\n")]] == expected.splitlines()[1:]
    assert found["cpu"] == {"code": getattr(code, "name", None), "what": expected.removesuffix(", by 1 thread")}
    assert found["threads"]["ozaki"] == found["threads"]["blas_in_products"] == 1


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        ("fp32", "fp32"),
        ("106", 106),
        ("1e-20", 1e-20),
        ("2^-60", 2.0**-60),
        ("2**-60", 2.0**-60),
        ("normwise:1e-9", ozaki.Accuracy("normwise", 1e-9)),
        ("row-column:2^-7", ozaki.Accuracy("row-column", 2.0**-7)),
    ],
)
def test_accuracies_as_they_are_typed(text, accuracy):
    assert of_text(text) == accuracy
    assert type(of_text(text)) is type(accuracy)


NUMBER = 400 * "1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["multiply", "a.npy", "missing.npy", "-o", "c.npy"], "missing.npy"),
        (["multiply", "a.npy", "a.npy", "-o", "c.npy"], "b: shape (30, 40) does not fit"),
        (["multiply", "a.npy", "b.npz", "-o", "c.csv"], "format .csv is not known"),
        (["multiply", "a.npy", "b.npz", "-o", "no/c.npy"], "no folder"),
        (["multiply", "a.npy", "text.npy", "-o", "c.npy"], "text.npy"),
        (["multiply", "a.npy", "brain.npy", "-o", "c.npy"], "brain.npy: two bytes an element, of which the file does"),
        (["multiply", "a.npy", "brain.npz:x", "-o", "c.npy"], "save it as numpy.save(name, x.astype('float32')), whi"),
        (["multiply", "a.npy", "huge.npy", "-o", "c.npy"], "integers beyond 2**53"),
        (["multiply", "a.npy", "b.npz"], "--output"),
        (["multiply", "a.npy", "odd.npy", "-o", "c.npy"], "integers beyond 2**53"),
        (["multiply", "a.npy", "short.npz", "-o", "c.npy"], "short.npz"),
        (["multiply", "a.npy", "broken.npz", "-o", "c.npy"], "broken.npz"),
        (["multiply", "a.npy", "one.npz", "-o", "c.npy"], "one.npz: holds one array; rename it to .npy"),
        (["multiply", "a.npy", "two.npy", "-o", "c.npy"], "two.npy: holds an archive; rename it to .npz"),
        (["multiply", "stack.npy", "b.npz", "-o", "c.mtx"], "c.mtx: a .mtx file holds a matrix, not shape (2, 30, 20)"),
        (["multiply", "a.npy", "b.npz", "-o", "folder.npy"], "folder.npy: is a folder"),
        (["multiply", "a.npy", ":smile:.npy", "-o", "c.npy"], ":smile:.npy"),
        (["plan", f"5x{10**30}", f"{10**30}x5"], "inner dimension of at most"),
        (["plan", f"5x{NUMBER}", f"{NUMBER}x5"], "111 (400 characters)"),
        (["plan", "5x" + 5000 * "1", "5x5"], "111 (5002 characters): expected a shape"),
        (["verify", "a.npy", "b.npz", "--slices", NUMBER], "slices: 111"),
        (["verify", "a.npy", "b.npz", "--slices", 5000 * "1"], "--slices"),
        (["verify", "a.npy", "b.npz", "--accuracy", NUMBER], "111 (400 characters) bits; expected 1 to 1000"),
        (["verify", "a.npy", "b.npz", "--accuracy", f"2^{NUMBER}"], "accuracy: '2^111"),
        (["verify", "a.npy", "b.npz", "--accuracy", f"2^-{5000 * '1'}"], "accuracy: '2^-111"),
        (["verify", "a.npy", "b.npz", "--accuracy", f"{NUMBER}:1e-9"], "accuracy: measure '111"),
        (["verify", "a.npy", "b.npz", "--scheme", NUMBER], "scheme: '111"),
        (["verify", "a.npy", "b.npz", "--scheme", 2000 * "1 "], "scheme: '1 1"),
        (["verify", "a.npy", "b.npz", "--device", NUMBER], "--device"),
        (["verify", "a.npy", "b.npz", "--rows", "-" + NUMBER], "--rows"),
        (["verify", "a.npy", f"b.npz:{NUMBER}"], "b.npz"),
        (["verify", "a.npy", "b.npz", f"--{NUMBER}"], "No such option: --111"),
        ([NUMBER], "No such command '111"),
        (["demo", "--size", NUMBER], "size: 111"),
        (["demo", "--size", 10**9], "size: 1000000000; two matrices"),
        (["demo", "--plot", NUMBER], "--plot: 111"),
        (["demo", "--plot", f"{NUMBER}.png"], "111.png (404 characters): File name too long"),
        (["verify", "a.npy", "b.npz", "--accuracy", "2^5000"], "2^5000"),
        (["plan", "3x3", "3x3", "--accuracy", "\u0665\u0663"], "accuracy: '\u0665\u0663' is not known"),
        (["plan", "3x3", "3x3", "--accuracy", "1_0"], "accuracy: '1_0' is not known"),
        (["plan", "3x3", "3x3", "--accuracy", "1e-1_0"], "accuracy: '1e-1_0' is not known"),
        (["plan", "3x3", "3x3", "--accuracy", "2^-\u0666\u0660"], "accuracy: '2^-\u0666\u0660' is not known"),
        (["plan", "3x3", "3x3", "--accuracy", "normwise:1e-\u0669"], "expected MEASURE:TOLERANCE"),
        (["plan", "\u0663x3", "3x3"], "expected two files or two shapes, got \u0663x3 and 3x3"),
        (["verify", "a.npy", "b.npz", "--accuracy", "fp65"], "fp65"),
        (["multiply", "a.npy", "b.npz", "-o", "c.npy", "--accuracy", "53.0"], "accuracy=53 for so many bits"),
        (["verify", "a.npy", "b.npz", "--accuracy", "2^7"], "below 1"),
        (["plan", "30x40", "40x20", "--accuracy", "normwise:53"], "accuracy=53 for so many bits"),
        (["verify", "a.npy", "b.npz", "--accuracy", "rows:1e-9"], "measure 'rows' is not known"),
        (["verify", "a.npy", "b.npz", "--accuracy", "normwise:fp64"], "MEASURE:TOLERANCE"),
        (["verify", "a.npy", "b.npz", "--scheme", "x"], "scheme"),
        (["plan", "a.npy", "40x20"], "two files or two shapes"),
        (["plan", "a.npy", "b.npz", "--dtype", "float16"], "--dtype"),
        (["plan", "a.npy", "b.npz", "--accuracy", "bf16"], "--accuracy: 'bf16' is for Python"),
        (["multiply", "a.npy", "b.npz", "-o", "c.npy", "--accuracy", "fp16"], "--accuracy: 'fp16' is for Python"),
        (["plan", "30x40", "50x20"], "does not fit"),
        (["nothing"], "nothing"),
        (["multiply", "a.npy", "header.npy", "-o", "c.npy"], "header.npy"),
        (["multiply", "a.npy", "empty.mtx", "-o", "c.npy"], "b: shape (0, 5) does not fit"),
        (["multiply", "a.npy", "objects.npy", "-o", "c.npy"], "objects.npy: holds Python objects, not numbers of one"),
        (["multiply", "a.npy", "objects.npz", "-o", "c.npy"], "objects.npz: holds Python objects, not numbers of one"),
        (["multiply", "a.npy", "pickle.npy", "-o", "c.npy"], "pickle.npy: is no .npy file"),
        (["multiply", "a.npy", "pickle.npz", "-o", "c.npy"], "pickle.npz: is no .npz file"),
        (["multiply", "a.npy", "long.npy", "-o", "c.npy"], "long.npy: has a header longer than NumPy trusts"),
        (["multiply", "a.npy", "none.npz", "-o", "c.npy"], "none.npz: holds no array"),
        (["multiply", "a.npy", "several.npy", "-o", "c.npy"], "several.npy: holds more than one array"),
        (["multiply", "a.npy", "folder.npy", "-o", "c.npy"], "folder.npy: Is a directory"),
        (["multiply", "a.npy", "loop.npy", "-o", "c.npy"], "loop.npy: Too many levels of symbolic links"),
        (["multiply", "a.npy", "", "-o", "c.npy"], "the name of a file is empty"),
        (["multiply", "a.npy", "x\0.npy", "-o", "c.npy"], r"x\x00.npy: embedded null byte"),
        (["multiply", "a.npy", "x\n\x1b[31m.npy", "-o", "c.npy"], r"x\n\x1b[31m.npy: No such file"),
        (["multiply", "a.npy", "x\udc80.npy", "-o", "c.npy"], r"x\udc80.npy: No such file"),
        (["multiply", "a.npy", "y" * 300 + ".npy", "-o", "c.npy"], "yyy.npy (304 characters): File name too long"),
        (["verify", "a.npy", "b.npz", "--accuracy", "normwise:" + 400 * "9"], "below 1"),
        (["demo", "--plot", "x.txt"], "ends with .png"),
        (["demo", "--plot", "no/x.png"], "no/x.png: no folder"),
    ],
)
def test_bad_input_is_named_without_a_traceback(files, monkeypatch, words, message):
    monkeypatch.chdir(files[2])
    np.save("brain.npy", np.zeros((40, 2), "V2"))  # as NumPy writes bfloat16
    np.savez("brain.npz", x=np.zeros((40, 2), "V2"))
    np.save("huge.npy", np.full((40, 2), 2**60 + 1))
    np.save("odd.npy", np.full((40, 2), 2**53 + 1))
    np.save("stack.npy", np.ones((2, 30, 40)))
    whole = (files[2] / "b.npz").read_bytes()
    (files[2] / "short.npz").write_bytes(whole[:200])
    np.savez_compressed("packed.npz", x=np.ones((40, 2)))
    packed = bytearray((files[2] / "packed.npz").read_bytes())
    packed[40:60] = b"x" * 20
    (files[2] / "broken.npz").write_bytes(packed)
    (files[2] / "one.npz").write_bytes((files[2] / "a.npy").read_bytes())
    (files[2] / "two.npy").write_bytes(whole)
    (files[2] / "folder.npy").mkdir()
    (files[2] / "text.npy").write_text("not an array", encoding="ascii")
    header = (files[2] / "a.npy").read_bytes().replace(b"}", b" ", 1)
    (files[2] / "header.npy").write_bytes(header)
    (files[2] / "empty.mtx").write_text("%%MatrixMarket matrix array real general\n0 5\n", encoding="ascii")
    objects = np.array([1, None], dtype=object)
    np.save("objects.npy", objects)
    np.savez("objects.npz", x=objects)
    np.savez("none.npz")
    for name in ("pickle.npy", "pickle.npz"):
        objects.dump(name)
    np.save("long.npy", np.zeros(2, dtype=[(f"field{i}", float) for i in range(1000)]))
    with open("several.npy", "wb") as file:
        np.save(file, np.eye(40))
        np.save(file, np.eye(40))
    (files[2] / "loop.npy").symlink_to("loop.npy")
    printed = run(*words, code=2)
    assert message in printed
    assert printed.startswith("error: ") and printed.count("\n") == 1
    assert len(printed) < 1200 and 101 * "1" not in printed
    assert "pickle=" not in printed


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("matplotlib", ["demo", "--plot", "x.png"], "pip install matplotlib"),
        ("cupy", ["verify", "a.npy", "b.npz", "--device", "gpu"], "cupy-cuda13x"),
    ],
)
def test_a_missing_extra_is_named(files, monkeypatch, module, words, extra):
    monkeypatch.chdir(files[2])
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find_spec(name))
    assert extra in run(*words, code=2)


def test_python_m_ozaki():
    done = subprocess.run([sys.executable, "-m", "ozaki", "info", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["versions"]["ozaki"] == ozaki.__version__


@pytest.mark.parametrize(
    ("x", "text"),
    [(1.0, "1.0e+0"), (1.01e-15, "1.1e-15"), (1e-300, "1.0e-300"), (9.99e-5, "1.0e-4"), (0.0, "0"), (np.inf, "none")],
)
def test_printed_numbers_are_rounded_up(x, text):
    assert rounded_up(x) == text


@pytest.mark.parametrize(
    ("a", "why"),
    [
        (np.full((2, 2), np.nan), "each of the 4 sampled entries over- or underflows, or NaN or Inf"),
        (np.full((1, 2), 1e-320), "each of the 2 sampled entries over- or underflows, or NaN or Inf"),
        (np.zeros((0, 2)), "the product has no entries"),
    ],
)
@pytest.mark.parametrize("accuracy", [[], ["--accuracy", "fp64"]])
def test_verify_that_checks_nothing_does_not_pass(tmp_path, a, why, accuracy):
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.eye(2))
    words = ["verify", tmp_path / "a.npy", tmp_path / "b.npy", *accuracy]
    assert f"nothing was checked: {why}" in run(*words, code=1)
    found = json.loads(run(*words, "--json", code=1))
    assert (found["entries"], found["holds"]) == (0, False)


# --- the check behind `verify` -----------------------------------------------


def test_stacks_and_vectors_are_checked():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((3, 1, 5, 6)), rng.standard_normal((2, 6, 4))
    c = a @ b
    assert verify.sampled(c, a, b, "componentwise", 9, 9).entries == 4 * 5 * 4
    c[...] += 1
    assert verify.sampled(c, a, b, "componentwise", 9, 9).error > 1e-3
    x = rng.standard_normal(6)
    for left, right in ((x, b), (a, x), (x, x)):
        checked = verify.sampled(np.asarray(left @ right), left, right, "row-column", 9, 9)
        assert 0 < checked.error < 1e-15
    empty = verify.sampled(np.zeros((0, 4)), np.zeros((0, 6)), b[0], "normwise", 9, 9)
    assert empty == verify.Checked(0.0, 0, 0)
    a, b = rng.standard_normal((2, *(1,) * 40, 4, 6)), rng.standard_normal((3, *(1,) * 30, 6, 5))
    assert verify.sampled(np.matmul(a, b), a, b, "componentwise", 9, 9).entries == 4 * 4 * 5


def test_rows_with_nan_do_not_enlarge_norms():
    a, b = np.array([[np.nan, 2.0**300], [1 / 3, 1 / 7]]), np.ones((2, 1))
    options = {"accuracy": ozaki.Accuracy("normwise", 1e-9), "reproducible": True, "return_report": True}
    c, report = ozaki.matmul(a, b, **options)
    alone, same = ozaki.matmul(a[1:], b, **options)
    assert (report.slices, report.bound) == (same.slices, same.bound) and c[1] == alone[0]
    checked = verify.sampled(c, a, b, "normwise", 9, 9)
    assert checked == verify.Checked(verify.sampled(alone, a[1:], b, "normwise", 9, 9).error, 1, 1)
    assert 0 < checked.error <= report.bound


def test_a_wrong_nan_is_found_and_a_right_one_is_skipped():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((4, 5)), rng.standard_normal((5, 3))
    c = a @ b
    c[2, 1] = np.nan
    assert np.isnan(verify.sampled(c, a, b, "componentwise", 9, 9).error)
    a[2, 0] = np.nan
    checked = verify.sampled(c, a, b, "componentwise", 9, 9)
    assert (checked.entries, checked.skipped) == (9, 3)
    assert checked.error < 1e-15


def test_entries_out_of_range_are_skipped():
    a, b = np.array([[1e200, 1.0]]), np.array([[1e200, 1e-320, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    with np.errstate(over="ignore"):
        c = a @ b
    checked = verify.sampled(c, a, b, "componentwise", 9, 9)
    assert (checked.entries, checked.skipped) == (3, 1)
    tiny = verify.sampled(np.zeros((1, 1)), np.array([[1e-200]]), np.array([[1e-200]]), "componentwise", 9, 9)
    assert (tiny.entries, tiny.skipped) == (0, 1)


@pytest.mark.parametrize("measure", ["componentwise", "row-column", "normwise"])
def test_inf_is_skipped_where_the_bound_leaves_the_range(measure):
    """An exact zero out of products beyond the range may come out as Inf; a small product may not."""
    a, b = np.array([[1e200, 1e200]]), np.array([[1e180, 1.0], [-1e180, 1.0]])
    c = np.array([[np.inf, 2e200]])
    checked = verify.sampled(c, a, b, measure, 9, 9, bound=1e-14)
    assert (checked.entries, checked.skipped) == (1, 1) and checked.error < 1e-15
    assert verify.sampled(c, a, b, measure, 9, 9, bound=1e-90).error == np.inf
    assert verify.sampled(np.array([[0.0, np.inf]]), 1e-200 * a, b, measure, 9, 9, bound=1e-14).error == np.inf
    assert error_of(np.inf) == "inf"


def test_a_place_that_may_not_be_written_is_found_before_the_work(files, monkeypatch):
    _, _, folder = files
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(ozaki, "matmul", None)
    assert "may not be written" in run("multiply", folder / "a.npy", folder / "b.npz", "-o", folder / "c.npy", code=2)


def test_the_norms_of_a_normwise_check_are_those_of_the_whole():
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((50, 6)), rng.standard_normal((6, 50))
    c = a @ b
    whole = reference.normwise_error(c, a, b)
    assert 0 < verify.sampled(c, a, b, "normwise", 5, 5).error < whole
