"""The benchmarks: result files, measuring, the command line, the README's tables."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from matplotlib.backends.backend_agg import FigureCanvasAgg

import ozaki
from benchmarks import plots, readme, row_files, sampled
from benchmarks.__main__ import Task, Where
from benchmarks.__main__ import main as run_benchmarks
from benchmarks.cublas_peer import ROUTINE
from benchmarks.devices import Cpu, NvmlReadings, Pace, median_seconds, medians_side_by_side
from benchmarks.halves import half_rows
from benchmarks.labels import label
from benchmarks.measure import Sample, WrongAnswerError, copies, rows_of
from benchmarks.nvml import Nvml
from benchmarks.peers import Peers, load_gemmul8
from benchmarks.plots import plot_run
from benchmarks.results import RESULTS, ROOT, Row, Run, Shape, newest, parse, read, read_all, size, slug, unit
from benchmarks.routines import COMPLEX, TASKS, Account, Routine, routines
from benchmarks.shapes import STACK_DTYPES

ROW = Row(
    task="float64",
    routine="ozaki default",
    ours=True,
    m=1024,
    n=1024,
    k=1024,
    dtype="float64",
    data="normal",
    seconds=1e-3,
    tflops=2.1,
    error=1e-16,
    bound=1e-15,
    products=14,
    ran="14 residues",
)
NATIVE = replace(ROW, routine="cublas dgemm", ours=False, products=1, ran=None, error=3e-16, bound=1e-13)
PEER = replace(ROW, routine="GEMMul8 14", ours=False, ran=None, bound=None)
LARGER = tuple(replace(row, m=2048, n=2048, k=2048, tflops=154.3) for row in (NATIVE, ROW, PEER))
VERSIONS = {"ozaki": "0.1.0", "cublas": "13.1.0", "gemmul8": "3.0.5"}
RUN = Run("2026-01-31T09:30:00+00:00", "f" * 40, "Some GPU", VERSIONS, (NATIVE, ROW, PEER, *LARGER))


def as_json(run):
    return {"schema": 1, **vars(run), "rows": [row.as_json() for row in run.rows]}


# Result files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_results_follow_the_schema(path):
    run = read(path)
    assert path.name == run.filename
    for row in run.rows:
        if (
            row.ours and row.error is not None and row.task not in ("shapes", "choices")
        ):  # k may be too large to prove it
            assert row.bound is not None
            assert row.error <= row.bound
        if row.tflops is not None:
            counted = row.products if row.task == "kernels" else 1  # kernels count all slice products
            each = 8 if row.dtype.startswith("complex") else 2
            operations = counted * each * row.m * row.n * row.k * (row.batch or 1)
            assert row.tflops == pytest.approx(1e-12 * operations / row.seconds)


def test_a_run_is_read_back_as_it_was_written(tmp_path):
    path = RUN.write(tmp_path)
    assert path.name == "2026-01-31-0930-some-gpu-float64.json"
    assert read(path) == RUN
    assert json.loads(path.read_text())["rows"][2]["bound"] is None
    assert "rms" not in json.loads(path.read_text())["rows"][0]


def test_result_files_have_one_row_a_line():
    rows = [{"n": 1, "seconds": 0.5}, {"n": 2, "seconds": None}]
    content = {"device": "D", "versions": {"numpy": "2"}, "rows": rows, "host": {"rows": rows[:1]}, "points": [[1, 2]]}
    lines = row_files.text(content).splitlines()
    assert json.loads("".join(lines)) == content
    assert lines == [
        "{",
        ' "device": "D",',
        ' "versions": {"numpy": "2"},',
        ' "rows": [',
        '  {"n": 1, "seconds": 0.5},',
        '  {"n": 2, "seconds": null}',
        " ],",
        ' "host": {',
        '  "rows": [',
        '   {"n": 1, "seconds": 0.5}',
        "  ]",
        " },",
        ' "points": [[1, 2]]',
        "}",
    ]
    with pytest.raises(ValueError, match="JSON"):
        row_files.text({"rows": [{"seconds": float("nan")}]})


@pytest.mark.parametrize("path", sorted(RESULTS.glob("**/*.json")), ids=lambda path: path.stem)
def test_committed_results_have_one_row_a_line(path):
    written = path.read_text(encoding="utf-8")
    assert written == row_files.text(json.loads(written)) + "\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema: 2"),
        ({"device": ""}, "device"),
        ({"date": "2026-01-31"}, "date: '2026-01-31'"),
        ({"versions": {"numpy": 2}}, "versions"),
        ({"versions": {"cublas": "13.1.0"}}, "versions: rows of GEMMul8, but no 'gemmul8'"),
        ({"rows": []}, "rows: expected a list"),
        ({"host": "laptop"}, r"unknown keys \['host'\]"),
    ],
)
def test_a_wrong_run_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        parse(as_json(RUN) | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": "fast"}, r"rows\[0\].seconds: 'fast'"),
        ({"seconds": None}, "seconds"),
        ({"error": float("nan")}, "error: nan"),
        ({"n": True}, "n: True"),
        ({"products": 14.0}, "products"),
        ({"speed": 1.0}, r"unknown keys \['speed'\]"),
    ],
)
def test_a_wrong_row_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        parse(as_json(RUN) | {"rows": [ROW.as_json() | change]})


def test_an_unreadable_file_is_named(tmp_path):
    (tmp_path / "x.json").write_text('{"schema": 1}')
    with pytest.raises(ValueError, match=r"x\.json: run: missing keys"):
        read_all(tmp_path)


def test_newest_run_of_each_device():
    later = replace(RUN, date="2026-02-01T00:00:00+00:00")
    other = replace(RUN, device="Some CPU")
    float32 = replace(RUN, date="2027-01-01T00:00:00+00:00", rows=(replace(ROW, task="float32"),))
    assert newest([later, other, RUN, float32], "float64") == {"Some GPU": later, "Some CPU": other}


def test_slug():
    assert slug("Intel(R) Xeon(R) @ 2.1 GHz, 2 threads") == "intel-r-xeon-r-2-1-ghz-2-threads"


def test_unit():
    assert unit([ROW]) == ("TFLOP/s", 1.0)
    assert unit([replace(ROW, tflops=0.1)]) == ("GFLOP/s", 1e-3)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (NATIVE, "cuBLAS 13.1.0 dgemm"),
        (replace(NATIVE, routine="openblas dgemm"), "OpenBLAS 0.3.31 dgemm"),
        (replace(NATIVE, routine=ROUTINE), "cuBLAS 13.1.0 dgemm, emulated (eager)"),
        (PEER, "GEMMul8 3.0.5, 14 moduli"),
        (ROW, "ozaki, reproducible=True (14 residues)"),
        (replace(ROW, routine="ozaki fastest", ran=None), "ozaki, no accuracy named"),
        (replace(ROW, routine="ozaki residues 14", ran=None), "ozaki residues 14"),
        (replace(NATIVE, routine="copy"), "copy"),
    ],
)
def test_labels(row, name):
    assert label(row, VERSIONS | {"openblas": "0.3.31.188.0 Haswell"}) == name


# Measuring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operands", "cache", "count"), [(100, 0, 1), (100, 10, 1), (100, 60, 2), (100, 250, 6), (1, 10**6, 16)]
)
def test_copies_exceed_the_cache(operands, cache, count):
    assert copies(operands, cache) == count
    assert count == 16 or count * operands > 2 * cache


def test_median_of_calls_in_turn():
    class Clock(Cpu):
        def elapsed(self, call):
            return call()

    called = []
    calls = [partial(lambda i: (called.append(i), float(i))[1], i) for i in range(4)]
    assert median_seconds(Clock(), calls, min_seconds=0) == 1.0  # of 0, 1, 2, 3, 0
    assert called == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_routines_are_timed_in_turn():
    class Clock(Cpu):
        watched = 0

        def elapsed(self, call):
            return call()

        def watch(self):
            self.watched += 1
            return partial(Pace, 100 * self.watched)

    called = []
    first, second = (
        [partial(lambda i: (called.append(i), i)[1], i) for i in values] for values in ((1.0, 2.0, 4.0), (7.0,))
    )
    medians = medians_side_by_side(Clock(), [first, second], min_seconds=0)
    assert [seconds for seconds, _ in medians] == [3.0, 7.0]  # the first of three calls is not counted
    blocks = [called[i : i + 3] for i in range(0, 18, 3)]
    at = [[i for i, block in enumerate(blocks) if block == of] for of in ([1.0, 2.0, 4.0], [7.0, 7.0, 7.0])]
    assert [i // 2 for i in at[0]] == [i // 2 for i in at[1]] == [0, 1, 2]  # each routine once in every turn
    assert len({i % 2 for i in at[0]}) == 2  # and not always after the same one
    assert [pace for _, pace in medians] == [Pace(round(100 * (sum(i) + 3) / 3, 3)) for i in at]


def test_what_nvml_does_not_tell(monkeypatch):
    def refuse(*_):
        raise LookupError

    def nvml(handle, energy):
        return SimpleNamespace(
            NVMLError=LookupError, nvmlInit=lambda: None, nvmlDeviceGetHandleByPciBusId=handle,
            nvmlDeviceGetTotalEnergyConsumption=energy,
        )  # fmt: skip

    for module, joules in (
        (None, None), (nvml(refuse, refuse), None), (nvml(str, refuse), None), (nvml(str, lambda _: 5000), 5),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert NvmlReadings("0000:01:00.0")(Nvml.joules) == joules


def test_errors_of_a_sample():
    a, b = np.eye(100), np.arange(100.0 * 80).reshape(100, 80)
    sample = Sample.of(a, b, np, seed=1)
    assert (sample.a.shape, sample.b.shape) == ((8, 100), (100, 64))
    wrong = b.copy()
    wrong[sample.rows[0], sample.cols[0]] *= 1.5
    errors = sample.errors(sample.entries(b), sample.entries(wrong))
    assert errors == [(0, 0), (0.5, pytest.approx(0.5 / np.sqrt(8 * 64)))]


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_wrong_answer_is_not_timed(value):
    routine = Routine("wrong", False, lambda a, b, out: out.fill(value), lambda a, b: Account(1e-3, 1))
    with pytest.raises(WrongAnswerError, match="wrong, float64, n = 5"):
        list(rows_of("float64", "float64", Cpu(), Shape.square(5), [routine], seed=0, min_seconds=0))


@pytest.mark.parametrize(
    "shape", [Shape(3, 7, 5), Shape(4, 30, 6, turned=True), Shape(2, 3, 4, batch=5), Shape(6, 6, 6, data="graded")]
)
def test_shapes(shape):
    compared = routines("shapes", np, "blas")[:2]
    native, ours = rows_of("shapes", "float64", Cpu(), shape, compared, seed=0, min_seconds=0)
    assert (ours.m, ours.k, ours.n, ours.batch) == (shape.m, shape.k, shape.n, shape.batch if shape.batch > 1 else None)
    assert ours.error <= 2**-50 and native.bound is None
    assert size(ours) == str(shape) and ours.data == shape.data


@pytest.mark.parametrize("dtype", STACK_DTYPES)
def test_stacks(dtype, tmp_path):
    compared = routines(f"stacks {dtype}", np, "blas")
    native, counted, default = rows_of("stacks", dtype, Cpu(), Shape(4, 6, 5, batch=3), compared, seed=0, min_seconds=0)
    assert (native.dtype, native.batch) == (dtype, 3)
    assert counted.bound is not None and counted.error <= counted.bound and default.error <= default.bound
    plot_run(replace(RUN, rows=(native, counted, default)), tmp_path / "stacks.png")


def test_products_of_16_bits(monkeypatch, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr("benchmarks.halves.WIDTH", {"numpy": 30})
    rows = tuple(half_rows(Cpu(), (20,), seed=0, min_seconds=0))
    assert len(rows) == 2 * 4 * 4 and {row.dtype for row in rows} == {"bfloat16", "float16"}
    ours = [row for row in rows if row.ours]
    assert len(ours) == len(rows) // 2 and all(row.error <= row.bound for row in ours)
    run = replace(RUN, rows=rows[:4], versions={**RUN.versions, "torch": "2.9"})
    assert label(rows[0], run.versions) == "PyTorch 2.9 bfloat16"
    plot_run(run, tmp_path / "bf16.png")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_choices(dtype, tmp_path):
    compared = routines(f"choices {dtype}", np, "blas")
    native, default, *others = rows_of("choices", dtype, Cpu(), Shape(6, 40, 5), compared, seed=0, min_seconds=0)
    assert native.dtype == dtype and default.bound is not None
    assert all(row.bound is None and row.products > 2 for row in others)
    plot_run(replace(RUN, rows=(native, default, *others)), tmp_path / "choices.png")
    assert (tmp_path / "choices.png").exists()


@pytest.fixture
def gemmul8(tmp_path, monkeypatch):
    """A function that writes gemmul8.py with a class of a product and given lines, and returns the file's folder."""
    monkeypatch.delitem(sys.modules, "gemmul8", raising=False)

    def write(lines):
        product = "    def matmul(self, a, b, moduli, out):\n        out[...] = a @ b\n"
        (tmp_path / "gemmul8.py").write_text(f"class GEMMul8:\n{product}{lines}")
        return tmp_path

    yield write
    sys.modules.pop("gemmul8", None)


def test_gemmul8_is_looked_for_in_its_folder(gemmul8):
    peers = Peers(load_gemmul8(gemmul8('    version = "3.0.5"\n')))
    *_, peer = routines("float64", np, "cublas", peers.routines("float64"))
    (row,) = rows_of("float64", "float64", Cpu(), Shape.square(20), [peer], seed=0, min_seconds=0)
    assert (row.routine, row.ours, row.bound, row.products) == ("GEMMul8 15", False, None, 15)
    assert peers.versions("float64") == {"gemmul8": "3.0.5"}
    assert peers.routines("choices") == [] and peers.versions("choices") == {}


def test_gemmul8_has_to_tell_its_version(gemmul8):
    with pytest.raises(ValueError, match="has no version"):
        load_gemmul8(gemmul8(""))


def test_colours_tell_whose_a_routine_is():
    drawn = [ROW, NATIVE, PEER, replace(NATIVE, routine=ROUTINE)]
    assert [plots.colour(row) for row in drawn] == [plots.OURS, plots.NATIVE, plots.PEER, plots.PEER]


def test_legends_cover_nothing(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(FigureCanvasAgg(figure)))
    plots.plot_run(RUN, tmp_path)
    plots.plot_time_error([RUN, RUN], tmp_path)
    for canvas in drawn:
        canvas.draw()
        left, right = canvas.figure.axes
        legends = [axes.get_legend().get_window_extent() for axes in (left, right)]
        for i, covered in [(0, left.bbox), (1, right.bbox), (0, legends[1])]:
            assert not legends[i].overlaps(covered)


# The command line ---------------------------------------------------------------------------------------------------


def options(**changes):
    usual = {"task": None, "sizes": "20,40", "gemmul8": None, "cublas": None, "seconds": 0.0, "seed": 0, "commit": ""}
    return {"device": Where.cpu, **usual, **changes}


def test_a_small_run_from_end_to_end(tmp_path, capsys):
    run_benchmarks(**options(output=tmp_path))
    runs = read_all(tmp_path)
    assert sorted(run.tasks for run in runs) == [("float32",), ("float64",)]
    for run in runs:
        assert {(row.n, row.ours) for row in run.rows} == {(20, False), (20, True), (40, False), (40, True)}
        assert all(row.error <= row.bound for row in run.rows)
        assert {"ozaki", "python", "numpy"} < set(run.versions)
        assert (tmp_path / run.filename).with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "GEMMul8: not measured" in capsys.readouterr().out


@pytest.mark.parametrize("sizes", ["0", "10,x", "-3"])
def test_bad_sizes(tmp_path, sizes):
    with pytest.raises(typer.BadParameter, match="expected positive numbers"):
        run_benchmarks(**options(output=tmp_path, sizes=sizes))


def test_kernels_need_a_gpu(tmp_path):
    with pytest.raises(typer.BadParameter, match="GPU"):
        run_benchmarks(**options(output=tmp_path, task=[Task.kernels]))


@pytest.mark.gpu
def test_a_small_run_on_a_gpu(tmp_path):
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no GPU")
    run_benchmarks(**options(device=Where.gpu, output=tmp_path, sizes="256", task=[Task.float64, Task.kernels]))
    products, kernels = sorted(read_all(tmp_path), key=lambda run: run.tasks)
    assert all(row.error <= row.bound for row in products.rows)
    assert {"cupy", "cublas", "driver"} < set(products.versions)
    assert all(100 < row.sm_mhz < 5000 for row in (*products.rows, *kernels.rows))
    steps = {row.routine.split(",")[0] for row in kernels.rows}
    hopper = {
        "residue_gemm_sm90", "digit_gemm_sm90", "word_gemm_sm90", "tensor cores alone",
        *(f"{step} {side}" for step in ("describe and split", "tops and split words") for side in ("rows", "columns")),
    }  # fmt: skip
    assert steps - hopper - {"split words rows", "split words columns"} == {
        "copy", "describe rows", "describe columns", "tops rows", "tops columns", "split rows", "split columns",
        "reduce", "recombine",
    }  # fmt: skip


def test_kernels_are_drawn(tmp_path):
    rows = (replace(ROW, task="kernels", routine="copy", ours=False, tflops=None, bytes=10**9),)
    rows += (replace(rows[0], routine="split residues 14", ours=True, of_copy=0.8),)
    plot_run(replace(RUN, rows=rows), tmp_path / "kernels.png")
    assert (tmp_path / "kernels.png").exists()


# The README ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sample_readme(tmp_path):
    RUN.write(tmp_path / "results")
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/measurements.md"):
        (tmp_path / name).write_text(f"before\n\n{readme.BEGIN}\nold\n{readme.END}\n\nafter\n")
    return {"root": tmp_path, "results": tmp_path / "results"}


def test_readme_is_generated(sample_readme, tmp_path):
    readme.main(check=False, **sample_readme)
    short = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| Some GPU | float64, n = 2048 | 154 TFLOP/s | 154 TFLOP/s | 1 x | 3.0e-16 | 1.0e-16 | 1.0e-15 |" in short
    text = (tmp_path / "docs" / "measurements.md").read_text(encoding="utf-8")
    assert text.startswith(f"before\n\n{readme.BEGIN}\n\n")
    assert text.endswith(f"{readme.END}\n\nafter\n")
    assert "| routine | slice products | error | proven bound | n = 1024 | n = 2048 |" in text
    assert "| cuBLAS 13.1.0 dgemm |  | 3.0e-16 | 1.0e-13 | 2.1 | 154 |" in text
    assert "| **ozaki, reproducible=True (14 residues)** | 14 | 1.0e-16 | 1.0e-15 | 2.1 | 154 |" in text
    assert "| GEMMul8 3.0.5, 14 moduli | 14 | 1.0e-16 | none | 2.1 | 154 |" in text
    assert "(figures/some-gpu.png)" in text
    assert (tmp_path / "docs" / "figures" / "some-gpu.png").exists()
    readme.main(check=True, **sample_readme)


def test_stale_readme_fails_the_check(sample_readme, capsys):
    readme.main(check=False, **sample_readme)
    replace(RUN, date="2026-02-01T00:00:00+00:00").write(sample_readme["results"])
    with pytest.raises(typer.Exit):
        readme.main(check=True, **sample_readme)
    assert "measurements.md; run `python -m benchmarks.readme`" in capsys.readouterr().err


def test_files_are_listed_with_their_versions():
    other = replace(RUN, date="2026-02-01T00:00:00+00:00", versions={"cublas": "13.10.0"})
    first, second = readme.sources([RUN, RUN, other]).split("; ")
    assert first.count("2026-01-31-0930") == 2 and first.endswith(": ozaki 0.1.0, cublas 13.1.0, gemmul8 3.0.5")
    assert second.endswith("2026-02-01-0000-some-gpu-float64.json): cublas 13.10.0")


def test_devices_stand_with_the_fastest_first():
    slower = replace(RUN, device="Some CPU", rows=(replace(ROW, tflops=0.1),))
    assert list(readme.by_device([slower, RUN])) == ["Some GPU", "Some CPU"]


@pytest.mark.parametrize("text", ["", readme.BEGIN, f"{readme.END}{readme.BEGIN}", 2 * f"{readme.BEGIN}{readme.END}"])
def test_markers_must_be_there_once(text):
    with pytest.raises(ValueError, match="once each"):
        readme.replaced(text, "")


def test_this_readme_is_fresh():
    readme.main(check=True, root=ROOT, results=RESULTS)


def test_every_task_has_routines():
    for task in TASKS:
        names = [routine.name for routine in routines(task, np, "openblas")]
        assert len(set(names)) == len(names) == 5


def test_sampled_entries_of_multiprecision_products_are_compared_with_their_bounds(rng, monkeypatch):
    monkeypatch.setattr(sampled, "SHAPES", ((5, 9, 4),))
    row = sampled.compared(106, 30, rng, on_host=True)
    assert row["entries"] >= 30 and 0 < row["share"] <= 1
    matmul = ozaki.matmul

    def with_too_small_a_bound(*operands, **options):
        c, report = matmul(*operands, **options)
        return c, replace(report, bound=report.bound * 2.0**-20)

    monkeypatch.setattr(ozaki, "matmul", with_too_small_a_bound)
    with pytest.raises(WrongAnswerError, match="106 bits: an error is"):
        sampled.compared(106, 30, rng, on_host=True)


@pytest.mark.parametrize("task", COMPLEX)
def test_complex_products_are_four_real_ones(task):
    compared = routines(task, np, "openblas")
    rows = list(rows_of(task, task, Cpu(), Shape.square(24), compared, seed=0, min_seconds=0))
    assert [row.routine for row in rows] == [routine.name for routine in compared]
    assert "gemm" in rows[0].routine and [row.ours for row in rows] == [False, True, True]
    assert rows[-1].tflops == pytest.approx(8e-12 * 24**3 / rows[-1].seconds)
    assert all(row.error <= row.bound for row in rows if row.bound is not None)
