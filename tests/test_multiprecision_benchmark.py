"""The benchmark of multiprecision products on GPUs: what it measures is compared with NumPy first."""

import time

import numpy as np
import pytest
from devices import EMULATED, parameters
from mparrays import rationals

import ozaki
from benchmarks import multiprecision
from benchmarks.devices import Cpu, device_of
from benchmarks.measure import WrongAnswerError
from benchmarks.results import newest_of_devices


class Emulated:
    """A device of the benchmarks in the place of an emulated GPU, which draws no random numbers."""

    name = "emulated"

    def __init__(self, xp):
        self.xp = xp

    def versions(self):
        return {"cupy": "0", "cublas": "0", "driver": "none"}

    def elapsed(self, call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def release(self):
        pass


@pytest.fixture
def gpu(device, monkeypatch):
    if not device.slow:
        return device_of("gpu")
    on_host = multiprecision.drawn
    monkeypatch.setattr(multiprecision, "drawn", lambda _, *how: ozaki.ascupy(on_host(Cpu(), *how)))
    return Emulated(device.xp)


@pytest.mark.parametrize("device", parameters(EMULATED[:1])[1:], indirect=True)
@pytest.mark.parametrize("bits", [106, 512])
def test_products_are_measured_after_a_comparison(gpu, monkeypatch, bits):
    monkeypatch.setattr(multiprecision, "BITS", (bits,))
    monkeypatch.setattr(multiprecision, "host", lambda n: None)
    result = multiprecision.on_gpu(gpu, [9], 9, 0)
    (row,) = result["rows"]
    assert (row["n"], row["bits"]) == (9, bits) and row["ozaki"] > 0 and row["cublas"] > 0
    assert f"| 9 | {bits} | {row['products']} |" in multiprecision.table_of_gpu(result)


@pytest.mark.parametrize("bits", [1, 64, 106])
def test_random_matrices_are_normalised(device, bits):
    where = Cpu() if device.slow or device.xp is np else device_of("gpu")
    x, y = (ozaki.asnumpy(multiprecision.drawn(where, 20, bits, seed)) for seed in (1, 2))
    rationals(x)  # which checks each element
    assert x.bits == bits and not (x == y).all()
    assert {-1, 1} == set(x.signs.flat) and len(set(x.exponents.flat)) > 3
    ones = (x.limbs[0][:, :, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert ones.any(axis=(0, 1)).tolist() == [i >= 32 - bits for i in range(32)]


def test_a_wrong_product_is_found():
    a, b = (multiprecision.drawn(Cpu(), 9, 106, seed) for seed in (1, 2))
    plan = ozaki.plan(a, b, accuracy=106)
    multiprecision.check(lambda: ozaki.matmul(a, b, plan=plan), a, b, plan)
    with pytest.raises(WrongAnswerError, match="n = 9, mp106"):
        multiprecision.check(lambda: ozaki.matmul(a, b, accuracy=80, dtype="mp106"), a, b, plan)


def test_tables_of_devices():
    versions = {"cupy": "14.2.0", "cublas": "13.1.0", "driver": "580, CUDA 13.0"}
    row = {"n": 4096, "bits": 106, "products": 29, "ozaki": 0.00625, "cublas": 0.0125}
    peer = {
        "device": "Some CPU",
        "threads": 16,
        "versions": {"python-flint": "0.9.0"},
        "n": 1000,
        "rows": [{"bits": 106, "arb_mat": 0.5}],
    }
    result = {"device": "Some GPU", "versions": versions, "rows": [row], "host": peer}
    text = multiprecision.table_of_gpu(result)
    assert "| 4096 | 106 | 29 | 22 | 11 | 0.004 |" in text and "16 threads" in text
    assert "| 4096 | 106 | 29 | 22 | 11 |\n" in multiprecision.table_of_gpu({**result, "host": None})
    document = f"a\n{multiprecision.BEGIN}\nold\n{multiprecision.END}\nb\n"
    (of_cpu, *_) = newest_of_devices(multiprecision.FOLDER)
    both = multiprecision.with_table(document, [result, of_cpu])
    assert "old" not in both and both.index("n = 1000 on") < both.index("Some GPU") and both.endswith("\nb\n")
    assert multiprecision.with_table(both, [of_cpu, result]) == both


def test_the_newest_results_of_each_device(tmp_path):
    for day, device in enumerate(["CPU", "H200", "H100", "H200", "CPU"], 1):
        text = f'{{"device": "{device}", "rows": [], "day": {day}}}'
        (tmp_path / f"2026-01-0{day}-0000-{device.lower()}.json").write_text(text, encoding="utf-8")
    assert [each["day"] for each in newest_of_devices(tmp_path)] == [5, 3, 4]
