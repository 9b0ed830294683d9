"""The GPU parts of the papers' scripts, run by NumPy under CuPy's name: structure and arithmetic, no speed."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import typer
from quoted import published

from benchmarks.devices import Cpu
from benchmarks.measure import WrongAnswerError
from benchmarks.nvml import Nvml
from ozaki.schemes import PRESETS
from ozaki.tensor_core import A100
from reproduce import __main__ as command
from reproduce import (
    circuit,
    digits_speed,
    energy,
    multiword,
    page,
    recovering,
    slides,
    throughput,
    two_stage,
    words_speed,
)
from reproduce.__main__ import SEEDS, Scale
from reproduce.__main__ import main as run_seeds
from reproduce.figures import FOLDER, Where, read, since
from reproduce.power import Spent, spent
from reproduce.speed import Product, speeds
from reproduce.throughput import HALFHALF, RIVALS, SGEMM, TF32TF32, Peaks


class Device(Cpu):
    """NumPy in place of CuPy."""

    def __init__(self):
        super().__init__()
        self.name, self.blas = "Some GPU", "cublas"
        self.xp = ModuleType("cupy")
        self.xp.__getattr__ = partial(getattr, np)
        self.xp.cuda = SimpleNamespace(Device=lambda: SimpleNamespace(pci_bus_id="0000:01:00.0"))


class Meter:
    """A meter that reads 300 W at any time."""

    def __init__(self, bus_id="0000:01:00.0"):
        assert bus_id == "0000:01:00.0"

    def watts(self):
        return 300.0

    def joules(self):
        return 300 * time.perf_counter()


def in_numpy(a, b, out, compute, beta=0):
    product = a.astype(np.float32) @ b.astype(np.float32)
    out[...] = product + beta * out if beta else product


@pytest.fixture
def device(monkeypatch):
    for module in (throughput, two_stage, words_speed):
        monkeypatch.setattr(module, "gemm", in_numpy)
    return Device()


@pytest.fixture
def rows(device):
    return throughput.measured(device, (8, 16), min_seconds=0)


# Power ------------------------------------------------------------------------------------------------------------


def test_power_is_sampled_while_the_work_is_done():
    calls = []
    took = spent(Meter(), lambda: (calls.append(1), time.sleep(0.01)), min_seconds=0.1, warm_up=0.05)
    assert 1 <= took.calls < len(calls)
    assert (took.watts, took.seconds >= 0.1) == (300, True)
    assert took.counted == pytest.approx(300 * took.seconds, rel=0.1)
    assert took.joules == pytest.approx(300 * took.seconds / took.calls)


def test_a_meter_that_fails_is_heard():
    class Broken(Meter):
        def watts(self):
            raise OSError("no power")

    with pytest.raises(OSError, match="no power"):
        spent(Broken(), lambda: None, min_seconds=0.01, warm_up=0)


def test_nvml_counts_in_thousandths(monkeypatch):
    field = SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=123_000))
    nvml = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetHandleByPciBusId=lambda bus_id: bus_id, NVML_FI_DEV_POWER_INSTANT=186,
        nvmlDeviceGetFieldValues=lambda device, fields: [field] if fields == [186] else [], NVML_SUCCESS=0,
        nvmlDeviceGetTotalEnergyConsumption=lambda device: 5000, NVMLError=ValueError, NVML_PERF_POLICY_POWER=0,
        nvmlDeviceGetViolationStatus=lambda device, policy: SimpleNamespace(violationTime=3_000_000_000 + policy),
        nvmlSystemGetDriverVersion=lambda: "580.1",
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = Nvml("0000:01:00.0")
    assert (meter.watts(), meter.joules(), meter.seconds_limited(), meter.driver()) == (123, 5, 3, "580.1")
    field.nvmlReturn = 3
    with pytest.raises(ValueError, match="3"):
        meter.watts()


def test_nvml_has_what_is_asked_of_it():
    nvml = pytest.importorskip("pynvml")
    functions = "GetFieldValues", "GetTotalEnergyConsumption", "GetViolationStatus"
    for name in (*(f"nvmlDevice{of}" for of in functions), "NVML_FI_DEV_POWER_INSTANT", "NVML_PERF_POLICY_POWER"):
        assert hasattr(nvml, name)


# Figures ----------------------------------------------------------------------------------------------------------


def test_throughput_and_roofline(rows):
    figures = list(throughput.figures(rows, Peaks(900, 450, 60, 4)))
    assert [figure.name for figure in figures] == ["Figure 14", "Figure 15"]
    speed, roof = figures
    assert list(speed.series) == [SGEMM, HALFHALF, TF32TF32, *RIVALS]
    for row in rows:
        assert speed.at(row.routine, row.n) == row.tflops == pytest.approx(2e-12 * row.n**3 / row.seconds)
    assert roof.series[HALFHALF] == [(n / 6, y) for n, y in speed.series[HALFHALF]]
    assert dict(roof.series["FP16 / 3, theory"])[75] == 300
    assert all(y < 300 for _, y in roof.series[HALFHALF])  # NumPy is below the ceilings of a GPU
    assert [figure.name for figure in throughput.figures(rows, None)] == ["Figure 14"]


def test_claims_of_throughput_can_hold(rows):
    """The claims hold if ours is made far faster, and fail if it is made far slower."""
    for factor, holds in ((1e9, True), (1e-9, False)):
        scaled = [replace(row, tflops=row.tflops * (factor if row.ours else 1)) for row in rows]
        claims = throughput.throughput(scaled, None).claims
        assert [claim.holds for claim in claims[:2]] == [holds, holds]


def test_energy(device, rows, monkeypatch):
    monkeypatch.setattr(energy, "BURST", 0.005)
    joules, summary = energy.figures(device, rows, Meter(), min_seconds=0.05, warm_up=0)
    assert (joules.name, summary.name) == ("Figure 16", "Table 6")
    assert "300 W" in joules.differs
    assert joules.claims[-1].holds
    for row in rows:
        per_watt = 2e-9 * row.n**3 / joules.at(row.routine, row.n)
        assert summary.at(row.routine, row.n) == pytest.approx(per_watt)


def test_since():
    assert since("faster", {16: False, 64: True, 32: True}) == "faster from n = 32 on"
    assert since("less", {16: True, 32: True}) == "less at all sizes"
    assert since("faster", {16: True, 32: False}) == "not faster at n = 32"


def test_energy_claims_compare_with_sgemm():
    products = {(name, n): y * n for name, y in ((SGEMM, 4.0), (HALFHALF, 1.0), (TF32TF32, 5.0)) for n in (10, 20)}
    spendings = dict.fromkeys(products, Spent(1, 2.0, 300.0, 500.0))
    figure = energy.joules(products, spendings, Spent(1, 2.0, 80.0, 160.0))
    assert [claim.holds for claim in figure.claims] == [True, False, False]
    assert "0.25 times" in figure.claims[0].ours and figure.claims[0].ours.endswith("less at all sizes")
    assert "20.0%" in figure.claims[2].ours


def test_the_device_stands_beside_its_model(device, rng):
    for figure, panel in (
        (recovering.error_against_k(8, 2, rng, device), ""),
        (recovering.exponent_ranges((16, 32), rng, device), "type 2: "),
        (recovering.patterns((64,), rng, device), "urand times cauchy: "),
    ):
        own = {name.removeprefix(panel) for name in figure.series if name.startswith(panel)}
        assert {"halfhalf, Some GPU", "tf32tf32, Some GPU", "Markidis, Some GPU", "cublas SGEMM, Some GPU"} < own
        assert figure.series[f"{panel}halfhalf, Some GPU"] == figure.series[f"{panel}halfhalf"]
        assert figure.claims[-1].holds
        figure.series[f"{panel}halfhalf, Some GPU"][0] = (16, 1.0)
        (claim,) = recovering.same_as_model(figure.series, device)
        assert (claim.holds, claim.ours) == (False, "other errors for halfhalf")


def test_a_device_goes_on_where_its_model_takes_too_long(device, rng, monkeypatch):
    monkeypatch.setattr(recovering, "LARGEST_MODEL", 16)
    figure = recovering.exponent_ranges_of_the_report((8, 16, 32), rng, device)
    for method, sizes in (("halfhalf", [8, 16]), ("halfhalf, Some GPU", [8, 16, 32]), ("FP32 SIMT", [8, 16])):
        assert [n for n, _ in figure.series[f"type 1: {method}"]] == sizes
    assert all(claim.holds for claim in recovering.same_as_model(figure.series, device))


def test_two_stage(device, rng, monkeypatch):
    monkeypatch.setitem(two_stage.SIZES, "small", 64)
    table, percentiles = two_stage.figures_on_gpu(device, "small", rng)
    assert [len(points) for points in table.series.values()] == [1] * 6
    for name, points in percentiles.series.items():
        assert dict(points)[50] == table.series[name][0][1]
    two_stage_errors = percentiles.series["two-stage"]
    assert two_stage_errors == percentiles.series["two-stage from float32"]
    assert dict(two_stage_errors)[50] > 10 * percentiles.at("SGEMM", 50)


# Multiword arithmetic ---------------------------------------------------------------------------------------------


def test_words_on_a_device_and_their_model(device, rng):
    here = multiword.OnDevice(device, (64, 512))
    for interval in (multiword.POSITIVE, multiword.CENTRED):
        figure = multiword.on_tensor_cores(11, interval, rng, here)
        assert set(figure.series) == {"fp32", "fp16, Some GPU", "double-fp16, Some GPU", words_speed.ALGORITHM}
        assert figure.claims[-1].holds and "n = 64, 512" in figure.claims[-1].published
    blocks, single = multiword.fabsum(10, rng, here), multiword.fabsum_of_fp16(9, rng, here)
    assert (len(blocks.series), len(single.series)) == (11, 5)
    assert blocks.panels == ("Some GPU",) and "Some GPU" in single.title
    for figure in (blocks, single):
        assert "A100" not in figure.title + figure.differs and figure.claims[-1].holds


def test_other_bits_are_named(device, rng):
    """The claim of equal bits names the scheme whose products on the device differ from the model."""
    schemes = {"exact": PRESETS["double-fp16"], "cut": PRESETS["single-fp16"]}

    class Other(multiword.OnDevice):
        def multiply(self, words):
            return multiword.multiply(replace(words, core=A100) if words.count == 1 else words)

    claim = Other(device, (512,)).same_bits(schemes, multiword.POSITIVE, rng)
    assert (claim.holds, claim.ours) == (False, "other bits for cut")


def test_algorithm_4_1(rng):
    a, b = (rng.random((20, 20), dtype=np.float32) for _ in range(2))
    (high, low), right = words_speed.two_words(a), words_speed.two_words(b)
    np.testing.assert_allclose(high.astype(float) + low, a, rtol=2.0**-22)
    out = np.full((20, 20), np.nan, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_speed, "gemm", in_numpy)
        words_speed.algorithm_4_1((high, low), right, out)
    np.testing.assert_allclose(out, a.astype(float) @ b, rtol=2e-6)
    assert abs(out - high.astype(float) @ right[0]).max() > 1e-4


def test_throughput_of_words(device):
    plain, blocks, single = words_speed.figures(device, (16, 32), Peaks(900, 450, 60, 4), min_seconds=0)
    assert [figure.name for figure in (plain, blocks, single)] == ["Figure 4.1", "Figure 4.4, left", "Figure 4.5, left"]
    assert {len(points) for points in plain.series.values()} == {2}
    assert len(blocks.series) == 12 and len(blocks.series["v2, b = 1024"]) == 1
    assert "double-fp16, v2, b = 256" in single.series and len(single.series) == 5
    assert not plain.claims[-1].holds  # NumPy is far below the peaks of a GPU


def tflops(**times):
    return {name: [(n, 100 / time) for n in (512, 1024)] for name, time in times.items()}


def test_claims_of_words_can_hold_and_fail():
    published = tflops(fp32=15, fp16=1, ours=15, **{"4.1": 3, "halfhalf": 3})
    names = {
        "fp32": words_speed.FP32, "fp16": words_speed.FP16, "4.1": words_speed.ALGORITHM, "ours": words_speed.DOUBLE,
        "halfhalf": words_speed.HALFHALF,
    }  # fmt: skip
    series = {names[name]: points for name, points in published.items()}
    claims = words_speed.without_blocks(series, Peaks(150, 80, 10, 4)).claims
    assert [claim.holds for claim in claims] == [True, True, False, True, True]
    assert claims[0].ours == "up to 5 times, faster at all sizes"
    assert claims[2].ours.endswith("not faster at n = 1024")
    assert claims[-1].ours == "67% of 10 and 67% of 150 TFLOP/s"
    claims = words_speed.without_blocks(series | {words_speed.ALGORITHM: series[words_speed.FP32]}, None).claims
    assert [claim.holds for claim in claims] == [False, False, False, True]


def test_claims_of_blocks_can_hold_and_fail():
    def made(v1, v2, single):
        times = {words_speed.FP32: 20, words_speed.ALGORITHM: 3, words_speed.DOUBLE: 3, words_speed.HALFHALF: 2}
        for kind, costs in (("v1", v1), ("v2", v2), ("fp16, v2", single)):
            times |= {f"{kind}, b = {b}": cost for b, cost in zip(words_speed.BLOCKS, costs, strict=True)}
        return tflops(**times)

    for (v1, v2, single), holds in (
        (((6, 5, 4, 3), (8, 6, 5, 4), (7, 4, 3, 2)), True),
        (((4, 5, 6, 7), (3, 30, 5, 30), (5, 31, 32, 33)), False),
    ):
        series = made(v1, v2, single)
        one, two = words_speed.with_blocks(series), words_speed.of_single_words(series)
        assert [claim.holds for claim in one.claims[:5]] == [holds] * 5
        assert [claim.holds for claim in two.claims] == [holds] * 2


def test_a_wrong_product_is_not_timed(device):
    a, b, out = np.ones((3, 4)), np.ones((4, 2)), np.empty((3, 2))
    for wrong in (np.nan, 5.0):
        with pytest.raises(WrongAnswerError, match="none, n = 2"):
            speeds(device, a, b, [Product("none", lambda wrong=wrong: out.fill(wrong), out, 1e-3)], 0)
    assert speeds(device, a, b, [Product("right", lambda: out.fill(4), out, 0)], 0)["right"] > 0


# Digits, and the circuit ------------------------------------------------------------------------------------------


def test_throughput_of_digits(device):
    over_n, over_phi = digits_speed.figures(device, (8, 16), 16, (0.1, 4.0), min_seconds=0)
    for figure, xs in ((over_n, [8, 16]), (over_phi, [0.1, 4.0])):
        assert list(figure.series) == ["cuBLAS DGEMM", "int8 digits", "FP16 digits", "residues"]
        assert all([x for x, _ in points] == xs for points in figure.series.values())
    assert "slices at phi = 4.0" in over_phi.claims[0].ours


def test_claims_of_digits_can_hold_and_fail():
    names = (digits_speed.DGEMM, digits_speed.FP16, digits_speed.INT8, digits_speed.RESIDUES)
    slices = {phi: dict.fromkeys(names[1:], count) for phi, count in ((0.1, 7), (4.0, 11))}
    for faster in (True, False):
        order = names if faster else names[::-1]
        series = {name: [(0.1, 10.0 + 9 * i), (4.0, 5.0 + 2 * i)] for i, name in enumerate(order)}
        claims = digits_speed.against_phi(series, slices, 64).claims
        assert [claim.holds for claim in claims] == [True, True, faster, faster, faster]
        claims = digits_speed.against_n({name: [(8 * x, y) for x, y in series[name]] for name in names}).claims
        assert [claim.holds for claim in claims] == [faster] * 5
    same = digits_speed.against_phi(series, dict.fromkeys((0.1, 4.0), slices[0.1]), 64).claims
    assert [claim.holds for claim in same[:2]] == [False, False]


def test_circuit(device, rng):
    amplitudes, seconds = circuit.timed(device, 8, (2, 4), 5, rng, min_seconds=0)
    assert all(claim.holds for claim in amplitudes.claims)
    emulated = circuit.COMPLEX, circuit.OF_PARTS
    assert {name: [x for x, _ in points] for name, points in amplitudes.series.items()} == {
        name: [2, 4] for name in emulated
    }
    assert {name: len(points) for name, points in seconds.series.items()} == dict.fromkeys(("native", *emulated), 2)


def test_gates_on_neighbours_are_gates(rng):
    """A gate on qubits 1 and 2 of 4, either way."""
    state = rng.standard_normal(16) + 1j * rng.standard_normal(16)
    gate = circuit.random_gate(4, rng)
    np.testing.assert_allclose(gate @ gate.conj().T, np.eye(4), atol=1e-15)
    expected = circuit.apply(circuit.native, gate, state.reshape(2, 2, 2, 2), 1, 2).reshape(-1)
    np.testing.assert_array_equal(circuit.apply_to_neighbours(circuit.native, gate, state, 1), expected)
    for way in (circuit.emulated, circuit.of_parts):
        np.testing.assert_allclose(circuit.apply_to_neighbours(way, gate, state, 1), expected, rtol=0, atol=1e-15)


def test_a_circuit_that_is_wrong_or_slow_is_seen():
    apart = {circuit.COMPLEX: [(2, 1e-9)], circuit.OF_PARTS: [(2, 1e-17)]}
    claims = circuit.accuracy(apart, {"native": 1e-15, circuit.COMPLEX: 1e-9}, 8, 5).claims
    assert [claim.holds for claim in claims] == [False, False]
    seconds = {
        "native": [(2, 1.0), (4, 3.0)],
        circuit.COMPLEX: [(2, 2.0), (4, 4.0)],
        circuit.OF_PARTS: [(2, 3.0), (4, 5.0)],
    }
    slow, slower, fast = circuit.times(seconds, 8).claims
    assert (slow.holds, slow.ours) == (False, "up to 0.75 times as fast, not faster at width = 4")
    assert (slower.holds, fast.holds) == (False, True)


# Files and page ---------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_command_line(tmp_path, device, monkeypatch):
    monkeypatch.setattr(command, "device_of", lambda name: device)
    monkeypatch.setattr(recovering, "Nvml", Meter)
    monkeypatch.setitem(recovering.SCALES, "small", 4)
    monkeypatch.setitem(recovering.SIZES, "small", (8,))
    monkeypatch.setitem(two_stage.SIZES, "small", 32)
    monkeypatch.setitem(multiword.SCALES, "small", 11)
    monkeypatch.setitem(multiword.SIZES, "small", (16,))
    monkeypatch.setitem(slides.SIZES, "small", (16,))
    monkeypatch.setitem(slides.SPREAD, "small", 16)
    monkeypatch.setitem(slides.GATES, "small", (6, (2, 3)))
    monkeypatch.setitem(throughput.PEAKS, "Some GPU", Peaks(900, 450, 60, 4))
    monkeypatch.setattr(energy, "BURST", 0.005)
    monkeypatch.setattr(energy.figures, "__defaults__", (0.05, 0.0))
    for module, function in ((words_speed, "figures"), (digits_speed, "figures"), (circuit, "timed")):
        monkeypatch.setattr(getattr(module, function), "__defaults__", (0,))
    run_seeds(seed=None, scale=Scale.small, device=Where.gpu, output=tmp_path, commit="f" * 40)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(f"{seed}-gpu" for seed in SEEDS)
    run = read(tmp_path / "recovering-gpu.json")
    assert (run.where, run.device, run.stem) == (Where.gpu, "Some GPU", "recovering-gpu")
    assert run.commit == "f" * 40
    for seed in SEEDS:
        stored, small = (read(folder / f"{seed}-gpu.json").figures for folder in (FOLDER, tmp_path))
        assert [figure.name for figure in stored] == [figure.name for figure in small]
        for ours, of_small in zip(stored, small, strict=True):
            assert [x.replace("NVIDIA H#", "Some GPU") for x in published(ours)] == published(of_small)
    names = ["Figure 1", "Figure 11", "Figure 8 of the report", *(f"Figure {i}" for i in range(13, 17)), "Table 6"]
    assert [figure.name for figure in run.figures] == names
    names = [figure.name for figure in read(tmp_path / "multiword-gpu.json").figures]
    assert names[-3:] == ["Figure 4.1", "Figure 4.4, left", "Figure 4.5, left"]
    names = [figure.name for figure in read(tmp_path / "slides-gpu.json").figures]
    assert names == ["Throughput", "Throughput against phi", "Quantum circuit", "Quantum circuit, time"]
    with pytest.raises(typer.BadParameter, match="recovering, multiword"):
        run_seeds(seed=["none"], device=Where.gpu, output=tmp_path)

    drawn = []
    with monkeypatch.context() as patch:
        patch.setattr(page, "plot", lambda figure, path: drawn.append((figure, path)))
        page.main(check=False, page=tmp_path / "seeds.md", results=tmp_path)
    text = (tmp_path / "seeds.md").read_text()
    for title in ("Figure 14 on the Some GPU: Throughput", "Figure 4.1 on", "Quantum circuit, time on"):
        assert f"### {title}" in text
    assert "need a GPU" not in text and "needs a GPU" not in text
    figures = {path.name: (figure, path) for figure, path in drawn}
    assert "slides-gpu-throughput-against-phi.png" in figures and len(figures) == len(drawn) == text.count("![")
    figure, path = figures["recovering-gpu-table-6.png"]
    page.plot(figure, path)
    assert path == tmp_path / "figures" / "seeds" / path.name and path.exists()


def test_results_of_a_gpu_follow_those_of_the_cpu():
    cpu = read(page.FOLDER / "two-stage.json")
    alone = page.section([cpu])
    assert "needs a GPU" in alone
    gpu = type(cpu)(cpu.date, cpu.commit, "Some GPU", cpu.versions, cpu.seed, cpu.scale, cpu.figures, Where.gpu)
    both = page.written([gpu, cpu])
    assert "needs a GPU" not in both
    assert both.index("### Percentiles: ") < both.index("### Percentiles on the Some GPU: ")
    assert "seeds/two-stage-gpu-percentiles.png" in both


@pytest.mark.gpu
def test_a_small_run_on_a_gpu(tmp_path, monkeypatch):
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no GPU")
    monkeypatch.setattr(energy.figures, "__defaults__", (0.2, 0.1))
    run_seeds(seed=None, scale=Scale.small, device=Where.gpu, output=tmp_path)
    for run in map(read, tmp_path.iterdir()):
        for figure in run.figures:
            same = [claim for claim in figure.claims if "tensor cores" in claim.published and "bits" in claim.published]
            assert all(claim.holds for claim in same), figure
            for points in figure.series.values():
                assert points and np.isfinite(np.array(points)).all()
