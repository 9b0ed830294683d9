"""The command line on every device: results, reports, plans and published bits are those of NumPy."""

import importlib
import json

import numpy as np
import pytest
from devices import EMULATED, parameters
from mparrays import same_planes
from typer.testing import CliRunner

import ozaki
from ozaki._cli import commands
from ozaki._cli.devices import Place
from ozaki._cli.files import read, write
from ozaki._cli.selftest import hash_on, published
from ozaki._cli.selftest.products import PRODUCTS

# What the emulated Hopper does here is what the emulated Ampere does.
pytestmark = pytest.mark.parametrize("device", parameters(EMULATED[:1]), indirect=True)


@pytest.fixture
def run(device, tmp_path, monkeypatch):
    """Runs a command line in a folder with two float matrices, two multiprecision ones and one of integers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "pick_device", lambda _: "cpu" if device.xp is np else "gpu")
    rng = np.random.default_rng(1)
    np.save("a.npy", rng.standard_normal((5, 7)))
    np.save("b.npy", rng.standard_normal((7, 4)))
    np.save("whole.npy", rng.integers(-(2**40), 2**40, (5, 7)))
    ozaki.mparray([[f"1/{3 + i + 7 * j}" for i in range(7)] for j in range(5)], bits=120).save("wide.npz")
    write("wide.txt", ozaki.mparray([[f"-{i}.{j}1" for i in range(4)] for j in range(7)], bits=90))

    def run(*words, code=0):
        result = CliRunner().invoke(commands.app, words, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.stdout

    return run


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["wide.npz", "wide.txt"], {}),
        (["a.npy", "wide.txt", "--accuracy", "106"], {"accuracy": 106}),
        (["wide.npz", "b.npy", "--accuracy", "exact"], {"accuracy": "exact"}),
        (["a.npy", "b.npy", "--accuracy", "90", "--dtype", "mp"], {"accuracy": 90, "dtype": "mp"}),
        (["whole.npy", "b.npy", "--dtype", "mp"], {"dtype": "mp"}),
        (
            ["wide.npz", "wide.txt", "--dtype", "float64", "--accuracy", "fp64"],
            {"dtype": "float64", "accuracy": "fp64"},
        ),
        (
            ["a.npy", "b.npy", "--accuracy", "relative:1e-9", "--dtype", "mp"],
            {"accuracy": ozaki.Accuracy("relative", 1e-9), "dtype": "mp"},
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_products_are_those_of_numpy(run, words, options):
    a, b = (read(name, integers="whole.npy" in words) for name in words[:2])
    expected, report = ozaki.matmul(a, b, return_report=True, **options)
    output = "c.npz" if isinstance(expected, ozaki.MPArray) else "c.npy"
    found = json.loads(run("multiply", *words, "-o", output, "--json"))
    assert same_planes(read(output), expected)
    assert (found["bound"], found["slices"], found["dtype"]) == (report.bound, report.slices, words_of(expected))


def words_of(c):
    return f"mp{c.bits}" if isinstance(c, ozaki.MPArray) else str(c.dtype)


def test_the_relative_error_of_a_product(run):
    words = "multiply", "wide.npz", "wide.txt", "-o", "c.npz", "--relative"
    _, report = ozaki.matmul(read("wide.npz"), read("wide.txt"), return_report="relative")
    assert json.loads(run(*words, "--json"))["relative_bound"] == report.relative_bound


def test_a_product_is_verified(run):
    assert "holds" in run("verify", "wide.npz", "b.npy", "--accuracy", "100")


def test_plans_of_files_and_shapes(run, device):
    for words in (["wide.npz", "wide.txt"], ["5x7", "7x4", "--dtype", "mp"]):
        found = json.loads(run("plan", *words, "--accuracy", "106", "--json"))
        assert found["dtype"] == "mp106" and found["device"] == ("cpu" if device.xp is np else "gpu")
        assert len(found["steps"]) > 3 and (found["seconds"] is None) == (device.xp is not np)
    assert found["slices"] == json.loads(run("plan", *words, "--accuracy", "106", "--json"))["slices"]


def test_the_self_test(device, rng):
    place, known = Place("cpu" if device.xp is np else "gpu", device.name), published()
    for product in device.some(PRODUCTS, 6, rng):
        assert hash_on(place, product) == known[product.group][product.name], product


def test_steps_of_a_multiprecision_product(device):
    if device.xp is np:
        pytest.skip("steps of a CUDA device")
    products, devices = (importlib.import_module(f"ozaki.backends.cupy.{name}") for name in ("products", "devices"))
    plan = ozaki.plan((300, 400), (400, 200), dtype="mp", accuracy=ozaki.Accuracy("row-column", 2.0**-100))
    hopper = devices.of("90", multiprocessors=132, shared_memory=233472)
    steps = str(products.program_of(plan, hopper))
    for name in (
        "row_tops",
        "leading",
        "split_numbers",
        "residue_gemm",
        "recombine_numbers",
        "limbs of a",
        "limbs of c",
    ):
        assert name in steps, steps
