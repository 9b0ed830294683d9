"""What the papers' scripts do on a GPU, on NumPy under CuPy's name: structure and arithmetic, no speed."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import typer

from benchmarks.devices import Cpu
from benchmarks.power import Nvml, Spent, spent
from benchmarks.seeds import __main__ as command
from benchmarks.seeds import energy, page, recovering, throughput, two_stage
from benchmarks.seeds.__main__ import Scale
from benchmarks.seeds.__main__ import main as run_seeds
from benchmarks.seeds.figures import Where, read, since
from benchmarks.seeds.throughput import HALFHALF, RIVALS, SGEMM, TF32TF32, Peaks


class Device(Cpu):
    """NumPy, which calls itself CuPy."""

    def __init__(self):
        super().__init__()
        self.name, self.blas = "Some GPU", "cublas"
        self.xp = ModuleType("cupy")
        self.xp.__getattr__ = partial(getattr, np)
        self.xp.cuda = SimpleNamespace(Device=lambda: SimpleNamespace(pci_bus_id="0000:01:00.0"))


class Meter:
    """300 W, whatever is done."""

    def __init__(self, bus_id="0000:01:00.0"):
        assert bus_id == "0000:01:00.0"

    def watts(self):
        return 300.0

    def joules(self):
        return 300 * time.perf_counter()


def in_numpy(a, b, out, compute):
    out[...] = a @ b


@pytest.fixture
def device(monkeypatch):
    for module in (throughput, two_stage):
        monkeypatch.setattr(module, "gemm", in_numpy)
    return Device()


@pytest.fixture
def rows(device):
    return throughput.measured(device, (8, 16), least=0)


# Power ------------------------------------------------------------------------------------------------------------


def test_power_is_sampled_while_the_work_is_done():
    calls = []
    took = spent(Meter(), lambda: (calls.append(1), time.sleep(0.01)), least=0.1, warm_up=0.05)
    assert 1 <= took.calls < len(calls)
    assert (took.watts, took.seconds >= 0.1) == (300, True)
    assert took.counted == pytest.approx(300 * took.seconds, rel=0.1)
    assert took.joules == pytest.approx(300 * took.seconds / took.calls)


def test_a_meter_that_fails_is_heard():
    class Broken(Meter):
        def watts(self):
            raise OSError("no power")

    with pytest.raises(OSError, match="no power"):
        spent(Broken(), lambda: None, least=0.01, warm_up=0)


def test_nvml_counts_in_thousandths(monkeypatch):
    field = SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=123_000))
    nvml = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetHandleByPciBusId=lambda bus_id: bus_id, NVML_FI_DEV_POWER_INSTANT=186,
        nvmlDeviceGetFieldValues=lambda device, fields: [field] if fields == [186] else [], NVML_SUCCESS=0,
        nvmlDeviceGetTotalEnergyConsumption=lambda device: 5000, NVMLError=ValueError,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = Nvml("0000:01:00.0")
    assert (meter.watts(), meter.joules()) == (123, 5)
    field.nvmlReturn = 3
    with pytest.raises(ValueError, match="3"):
        meter.watts()


def test_nvml_has_what_is_asked_of_it():
    nvml = pytest.importorskip("pynvml")
    for name in ("nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption", "NVML_FI_DEV_POWER_INSTANT"):
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
    assert roof.claims[0].holds  # NumPy is below the ceilings of a GPU
    assert [figure.name for figure in throughput.figures(rows, None)] == ["Figure 14"]


def test_claims_of_throughput_can_hold(rows):
    """Were ours faster by a thousand times, or slower, the claims would say so."""
    for factor, holds in ((1e9, True), (1e-9, False)):
        scaled = [replace(row, tflops=row.tflops * (factor if row.ours else 1)) for row in rows]
        claims = throughput.throughput(scaled, None).claims
        assert [claim.holds for claim in claims[:2]] == [holds, holds]


def test_energy(device, rows, monkeypatch):
    monkeypatch.setattr(energy, "BURST", 0.005)
    joules, summary = energy.figures(device, rows, Meter(), least=0.05, warm_up=0)
    assert (joules.name, summary.name) == ("Figure 16", "Table 6")
    assert "300 W" in joules.differs
    assert joules.claims[-1].holds
    for row in rows:
        per_watt = 2e-9 * row.n**3 / joules.at(row.routine, row.n)
        assert summary.at(row.routine, row.n) == pytest.approx(per_watt)


def test_since():
    assert since({16: False, 64: True, 32: True}) == "from n = 32 on"
    assert since({16: True, 32: True}) == "at all sizes"
    assert since({16: True, 32: False}) == "not at n = 32"


def test_energy_claims_compare_with_sgemm():
    products = {(name, n): y * n for name, y in ((SGEMM, 4.0), (HALFHALF, 1.0), (TF32TF32, 5.0)) for n in (10, 20)}
    spendings = dict.fromkeys(products, Spent(1, 2.0, 300.0, 500.0))
    figure = energy.joules(products, spendings, Spent(1, 2.0, 80.0, 160.0))
    assert [claim.holds for claim in figure.claims] == [True, False, False]
    assert "0.25 times" in figure.claims[0].ours and figure.claims[0].ours.endswith("less at all sizes")
    assert "20.0%" in figure.claims[2].ours


def test_the_device_stands_beside_its_model(device, rng):
    for figure in (
        recovering.error_against_k(8, rng, device),
        recovering.exponent_ranges(16, rng, device),
        recovering.patterns(64, rng, device),
    ):
        assert {"halfhalf, Some GPU", "tf32tf32, Some GPU", "Markidis, Some GPU", "cublas SGEMM, Some GPU"} < set(
            figure.series
        )
        assert figure.series["halfhalf, Some GPU"] == figure.series["halfhalf"]
        assert figure.claims[-1].holds
        figure.series["halfhalf, Some GPU"][0] = (16, 1.0)
        (claim,) = recovering.same_as_model(figure.series, device)
        assert (claim.holds, claim.ours) == (False, "other errors for halfhalf")


def test_two_stage(device, rng, monkeypatch):
    monkeypatch.setitem(two_stage.SIZES, "small", 64)
    table, percentiles = two_stage.figures_on_gpu(device, "small", rng)
    assert [len(points) for points in table.series.values()] == [1] * 5
    for name, points in percentiles.series.items():
        assert dict(points)[50] == table.series[name][0][1]
    two_stage_errors = percentiles.series["two-stage"]
    assert two_stage_errors == percentiles.series["two-stage from float32"]
    assert dict(two_stage_errors)[50] > 10 * percentiles.at("SGEMM", 50)


# Files and page ---------------------------------------------------------------------------------------------------


def test_command_line(tmp_path, capsys, device, monkeypatch):
    monkeypatch.setattr(command, "device_of", lambda name: device)
    monkeypatch.setattr(recovering, "Nvml", Meter)
    monkeypatch.setitem(recovering.SCALES, "small", 4)
    monkeypatch.setitem(recovering.SIZES, "small", (8,))
    monkeypatch.setitem(two_stage.SIZES, "small", 32)
    monkeypatch.setitem(throughput.PEAKS, "Some GPU", Peaks(900, 450, 60, 4))
    monkeypatch.setattr(energy, "BURST", 0.005)
    monkeypatch.setattr(energy.figures, "__defaults__", (0.05, 0.0))
    run_seeds(seed=None, scale=Scale.small, device=Where.gpu, output=tmp_path, commit="f" * 40)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recovering-gpu.json", "two-stage-gpu.json"]
    run = read(tmp_path / "recovering-gpu.json")
    assert (run.where, run.device, run.stem) == (Where.gpu, "Some GPU", "recovering-gpu")
    assert run.commit == "f" * 40
    names = ["Figure 1", "Figure 11", "Figure 13", "Figure 14", "Figure 15", "Figure 16", "Table 6"]
    assert [figure.name for figure in run.figures] == names
    with pytest.raises(typer.BadParameter, match="recovering, two-stage"):
        run_seeds(seed=["slides"], device=Where.gpu, output=tmp_path)

    page.main(check=False, page=tmp_path / "seeds.md", results=tmp_path)
    text = (tmp_path / "seeds.md").read_text()
    assert "### Figure 14 on the Some GPU: Throughput" in text
    assert "need a GPU" not in text and "needs a GPU" not in text
    assert (tmp_path / "figures" / "seeds" / "recovering-gpu-table-6.png").exists()


def test_results_of_a_gpu_follow_those_of_the_cpu(tmp_path):
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
            same = [claim for claim in figure.claims if "model of the tensor cores" in claim.published]
            assert all(claim.holds for claim in same), figure
            for points in figure.series.values():
                assert points and np.isfinite(np.array(points)).all()
