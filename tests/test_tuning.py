"""The tuning of the word kernels, but for the device: candidates, rules, their sources, the table."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import typer
from rich.console import Console

from benchmarks import tiles, tuning
from benchmarks.candidates import COLUMNS, SPACE, MmaSync, Wgmma, WgmmaOfPairs, distinct, fits, kernel_of
from benchmarks.devices import Cpu
from benchmarks.results import Row, Run, Shape, read
from ozaki.backends.cupy.engines import _tuned
from ozaki.backends.cupy.launching import _jit
from ozaki.schemes import PRESETS

H200_SHARED = 227 * 1024


@pytest.fixture
def modules(monkeypatch):
    """What launches the kernels, without CuPy."""

    def of(words, batch, m, k, n):
        return SimpleNamespace(columns=208 if n > 64 else 128, stages=5, group=8)

    own = SimpleNamespace(warps=4, rows=64, columns=32, units=4, group=8)
    monkeypatch.setitem(sys.modules, Wgmma.module, SimpleNamespace(Engine=SimpleNamespace(of=of)))
    monkeypatch.setitem(sys.modules, MmaSync.module, SimpleNamespace(Engine=SimpleNamespace(of=lambda *_: own)))


def test_candidates_are_kernels():
    source = (_jit.folder() / "wgmma_words.cuh").read_text()
    for words, macro in ((1, "DEFINE_HALVES"), (2, "DEFINE")):
        assert set(COLUMNS[words]) <= {int(n) for n in re.findall(rf"^{macro}\(\d+, (\d+),", source, re.M)}
    ring = (_jit.folder() / "word_ring_sm90.cuh").read_text()
    assert "ROWS = 128, COLS = TILE_COLS, STAGES = TILE_STAGES;" in ring
    assert Wgmma(208, 8, 5).shared_memory(PRESETS["halfhalf"]) == 5 * (128 + 208) * 128 + 1024 + 5 * 2 * 8


def test_rules():
    for name, wide in (("halfhalf", {(208, 4), (208, 5)}), ("two-stage", {(208, 4), (208, 5), (256, 4)})):
        fitting = {(c.columns, c.stages) for c in SPACE[Wgmma] if fits(c, PRESETS[name], H200_SHARED)}
        assert fitting == {(128, s) for s in (4, 5, 6, 7)} | {(192, 4), (192, 5)} | wide
    for name, widths in (("single-fp16", {128, 192, 208, 256}), ("fabsum-v1", {128, 192, 208}), ("fabsum-v2", {128})):
        assert {c.columns for c in SPACE[WgmmaOfPairs] if fits(c, PRESETS[name], H200_SHARED)} == widths
    for name, largest in (("markidis", 64), ("halfhalf", 32), ("fabsum-v1", 32)):
        fitting = [c for c in SPACE[MmaSync] if fits(c, PRESETS[name], H200_SHARED)]
        assert max(c.height * c.width for c in fitting) == 64 * largest
        assert all(c.columns <= 128 for c in fitting)
        assert not any(c.units == 8 for c in fitting if c.columns == 128)
    for rows, most in ((1, 1), (256, 1), (512, 2), (1024, 4), (1025, 8), (10**6, 32)):
        assert max(c.group for c in SPACE[Wgmma] if distinct(c, Shape.square(rows))) == most
        assert max(c.group for c in SPACE[MmaSync] if distinct(c, Shape(-(-rows // 2), 5, 5))) == most


def test_kernels_are_found_by_their_engines(monkeypatch):
    engines = {}
    backend = SimpleNamespace(word_engine=lambda words, sizes: engines[words]())
    monkeypatch.setitem(sys.modules, "ozaki.backends.cupy._choice", backend)
    for kernel, name in ((Wgmma, "halfhalf"), (WgmmaOfPairs, "fabsum-v1"), (MmaSync, "markidis")):
        engines[PRESETS[name]] = type("Engine", (), {"__module__": kernel.module})
        assert kernel_of(PRESETS[name]) is kernel


def test_own_choice(modules):
    assert Wgmma.of(PRESETS["halfhalf"], Shape.square(100)) == Wgmma(208, 8, 5)
    assert MmaSync.of(PRESETS["markidis"], Shape.square(100)) == MmaSync(4, 64, 32, 4, 8)
    assert str(Wgmma(208, 8, 5)) == "208 columns, groups of 8, 5 stages"


def test_other_bits_are_not_timed(monkeypatch):
    """The engine and the split of CuPy are stubs: operands stay as they are."""
    monkeypatch.setitem(sys.modules, "ozaki.backends.cupy._tops", SimpleNamespace(tops=lambda x: x))
    cut = SimpleNamespace(split=lambda x, words, layout: x)
    monkeypatch.setitem(sys.modules, "ozaki.backends.cupy.engines._word_split", cut)
    a, b = np.arange(12, dtype="f4").reshape(3, 4), np.ones((4, 2), "f4")
    for off, timed in ((0, True), (1, False)):

        def multiply(words, x, y, out, off=off):
            assert (x.shape, y.shape, out.shape) == ((1, 3, 4), (1, 2, 4), (1, 3, 2))
            out[...] = x @ y.swapaxes(1, 2) + off

        engine = Mock(layout=lambda *sizes: None, multiply=multiply)
        candidate = SimpleNamespace(engine=lambda engine=engine: engine)
        problem = tuning.Problem(PRESETS["halfhalf"], Shape(3, 4, 2), a, b, a @ b, Wgmma(128, 8, 5))
        call = tuning.multiplied(Cpu(), candidate, problem, {}, np.empty_like(problem.c))
        assert (call is not None and call.repeats > 1) == timed


# The table --------------------------------------------------------------------------------------------------------


@pytest.fixture
def device(modules, monkeypatch):
    """NumPy, with times that the candidates' numbers say."""
    device = Cpu()
    monkeypatch.setattr(tuning, "device_of", lambda name: device)
    monkeypatch.setattr(tuning, "shared_memory", lambda device: H200_SHARED)
    monkeypatch.setattr(tuning, "BLOCKS", (16, 64))
    monkeypatch.setattr(tuning, "architecture_of", lambda device: "sm_90a")
    monkeypatch.setattr(tuning, "kernel_of", lambda words: Wgmma if words.count == 2 else MmaSync)
    monkeypatch.setattr(
        tuning,
        "multiplied",
        lambda device, candidate, problem, slices, out: (
            tuning.Call(partial(float, candidate.group / problem.shape.n), 4) if candidate.group > 1 else None
        ),
    )
    monkeypatch.setattr(device, "elapsed", lambda call: call.repeats * call.multiply())
    return device


def test_the_fastest_with_the_bits_of_the_library(device, tmp_path, capsys):
    tuning.main(scheme=["halfhalf", "two-stage"], size=[16, 300], output=tmp_path, seconds=0)
    (path,) = tmp_path.glob("*-tuning.json")
    run = read(path)
    assert [(row.n, row.routine, row.ran) for row in run.rows] == [
        (16, "halfhalf, fastest", "128 columns, groups of 8, 5 stages"),
        (16, "halfhalf, own choice", "128 columns, groups of 8, 5 stages"),
        (300, "halfhalf, fastest", "128 columns, groups of 2, 4 stages"),
        (300, "halfhalf, own choice", "208 columns, groups of 8, 5 stages"),
        (16, "two-stage, fastest", "4 warps of 64 x 32, 4 units of k, groups of 8"),
        (16, "two-stage, own choice", "4 warps of 64 x 32, 4 units of k, groups of 8"),
        (300, "two-stage, fastest", "4 warps of 32 x 16, 2 units of k, groups of 2"),
        (300, "two-stage, own choice", "4 warps of 64 x 32, 4 units of k, groups of 8"),
        (300, "halfhalf, block 16", "208 columns, groups of 8, 5 stages"),
        (300, "halfhalf, block 64", "208 columns, groups of 8, 5 stages"),
        (300, "two-stage, block 16", "4 warps of 64 x 32, 4 units of k, groups of 8"),
        (300, "two-stage, block 64", "4 warps of 64 x 32, 4 units of k, groups of 8"),
    ]
    assert run.rows[-2].rms < run.rows[-1].rms  # a shorter block errs less
    for row in run.rows:
        assert row.error <= row.bound
        assert row.tflops == pytest.approx(2e-12 * row.n**3 / row.seconds)
    assert path.with_suffix(".png").exists()
    shown = capsys.readouterr().out
    assert "other bits" in shown and "48 of 96 combinations" in shown


def test_shapes(device):
    rows = list(tuning.tuned(device, "halfhalf", [Shape(30, 7, 50)], 0, Console(quiet=True)))
    assert {(row.m, row.k, row.n) for row in rows} == {(30, 7, 50)}
    assert np.isfinite(rows[0].rms)


# What the library reads -------------------------------------------------------------------------------------------


def row(method, kind, n, seconds, ran):
    return Row("tuning", f"{method}, {kind}", True, n, n, n, "float32", "normal", seconds, 1.0, 1e-8, None, 3, ran=ran)


def run(date, *rows):
    return Run(f"2026-01-{date}T09:30:00+00:00", "unknown", "Some GPU", {"architecture": "sm_90a"}, rows)


WIDE, NARROW = "208 columns, groups of 16, 5 stages", "128 columns, groups of 4, 7 stages"


def test_a_choice_is_kept_if_it_is_worth_it():
    own = row("halfhalf", "own choice", 512, 1.0, WIDE)
    better, no_better = (run("01", row("halfhalf", "fastest", 512, seconds, NARROW), own) for seconds in (0.9, 0.99))
    assert tiles.kept([no_better, better]) == {"sm_90a": {"halfhalf": {(512, 512, 512): (128, 4, 7)}}}
    assert tiles.kept([better, no_better]) == {}
    warps = MmaSync(8, 64, 16, 4, 2)
    other = row("markidis", "fastest", 512, 0.5, str(warps)), row("markidis", "own choice", 512, 1.0, WIDE)
    ((found,),) = (methods.values() for methods in tiles.kept([run("01", *other)])["sm_90a"].values())
    assert MmaSync(*found) == warps
    blocks = [row("halfhalf", f"block {block}", 512, 1.0, WIDE) for block in (32, 64)]
    assert tiles.kept([run("01", *blocks)]) == {}


def test_newer_results_count(tmp_path):
    for date, n, ran in (("01", 512, WIDE), ("01", 1024, WIDE), ("02", 512, NARROW)):
        rows = row("halfhalf", "fastest", n, 0.5, ran), row("halfhalf", "own choice", n, 1.0, "another")
        run(date, *rows).write(tmp_path / f"{date}-{n}")
    for path in tmp_path.glob("*/*.json"):
        path.rename(tmp_path / f"{path.parent.name}.json")
    output = tmp_path / "table"
    tiles.main(check=False, results=tmp_path, output=output)
    tiles.main(check=True, results=tmp_path, output=output)
    assert json.loads(output.read_text()) == {
        "sm_90a": {"halfhalf": [[512, 512, 512, 128, 4, 7], [1024, 1024, 1024, 208, 16, 5]]}
    }
    output.write_text("{}")
    with pytest.raises(typer.Exit):
        tiles.main(check=True, results=tmp_path, output=output)


def test_the_table_is_up_to_date():
    tiles.main(check=True)
    for methods in _tuned.table().values():
        for method, entries in methods.items():
            for choice in entries.values():
                kernels = (Wgmma, WgmmaOfPairs) if len(choice) == 3 else (MmaSync,)
                assert any(fits(kernel(*choice), PRESETS[method], H200_SHARED) for kernel in kernels)


def test_the_library_finds_what_was_tuned(monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tiles.json").write_text('{"sm_90a": {"halfhalf": [[4096, 1024, 4000, 128, 4, 7]]}}')
    monkeypatch.setattr(_tuned.resources, "files", lambda package: tmp_path)
    caches = _tuned.table, _tuned._found
    for cache in caches:
        cache.cache_clear()
    try:
        for name, architecture, size, found in (
            ("halfhalf", "sm_90a", (4096, 1024, 4000), (128, 4, 7)),
            ("halfhalf", "sm_90a", (3841, 1000, 4096), (128, 4, 7)),
            ("halfhalf", "sm_90a", (3840, 1024, 4000), None),
            ("tf32tf32", "sm_90a", (4096, 1024, 4000), None),
            ("halfhalf", "sm_100a", (4096, 1024, 4000), None),
        ):
            assert _tuned.choice(architecture, PRESETS[name], 1, *size, 3) == found
            assert _tuned.choice(architecture, PRESETS[name], 1, *size, 5) is None
            assert _tuned.choice(architecture, PRESETS[name], 2, *size, 3) is None
    finally:
        for cache in caches:
            cache.cache_clear()


def test_command_line_names_what_is_wrong(device, tmp_path):
    with pytest.raises(typer.BadParameter, match="halfhalf"):
        tuning.main(scheme=["none"], size=None, output=tmp_path, seconds=0)


@pytest.mark.gpu
def test_a_small_run_on_a_gpu(tmp_path, capsys):
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no GPU")
    tuning.main(scheme=["halfhalf", "two-stage"], size=[600], output=tmp_path, seconds=0)
    (path,) = tmp_path.glob("*-tuning.json")
    fastest, own = read(path).rows[:2]
    assert fastest.seconds <= own.seconds
    assert "other bits" not in capsys.readouterr().out
