"""`ozaki selftest`: the published bits are those of the code, and other bits are found.

That all devices have them is tested in test_command_line.py.
"""

import importlib.util
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

import ozaki
from building import selftest_hashes
from ozaki._cli import commands, devices
from ozaki._cli.options import Device
from ozaki._cli.selftest import hash_of, published
from ozaki._cli.selftest.numbers import complex_numbers, integers, multiprecision, real, wholes
from ozaki._cli.selftest.products import PRODUCTS

CPU = devices.Place("cpu", "CPU")


def run(*words, code=0):
    result = CliRunner().invoke(commands.app, ["selftest", *words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code != 2 else result.stderr


# The published bits -------------------------------------------------------------------------------------------------


def test_the_published_file_is_what_numpy_computes():
    """If bits change on purpose, `python -m building.selftest_hashes` writes it anew, and the changelog says so."""
    assert selftest_hashes.FILE.read_text(encoding="utf-8") == selftest_hashes.text()


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: f"{product.group}: {product.name}")
def test_every_product_promises_its_bits(product):
    _, report = replace(product, options={**product.options, "return_report": True}).compute(lambda x: x)
    assert report.reproducible and not report.native


def test_the_products_are_all_different():
    assert len(PRODUCTS) == len({(product.group, product.name) for product in PRODUCTS}) == 42
    assert list(published()) == list(dict.fromkeys(product.group for product in PRODUCTS))
    found = [its_hash for of_group in published().values() for its_hash in of_group.values()]
    assert len(set(found)) == len(found) == len(PRODUCTS)


# The command --------------------------------------------------------------------------------------------------------


def test_the_command_says_that_the_bits_are_the_published_ones():
    lines = run("--device", "cpu").splitlines()
    assert lines[0] == "CPU" and len(lines) == 2 + len(published())
    assert all(line.endswith("the published bits") for line in lines[1:-1])
    assert lines[-1] == f"All 42 products have the bits that ozaki {ozaki.__version__} publishes, on the CPU."
    found = json.loads(run("--device", "cpu", "--json"))
    assert found["same"] and found["ozaki"] == ozaki.__version__
    assert found["devices"] == [{"device": "CPU", "differing": [], "hashes": published()}]


def test_one_bit_that_differs_is_found(monkeypatch):
    gemm = ozaki.gemm

    def off(*operands, **options):
        c = gemm(*operands, **options)
        return np.nextafter(c, np.inf) if "slices" in options else c

    monkeypatch.setattr(ozaki, "gemm", off)
    printed = run("--device", "cpu", code=1)
    assert "alpha A B + beta C      4 products, 1 with OTHER BITS: 14 residues" in printed
    assert "1 product of 42 on the CPU with other bits than ozaki" in printed
    assert json.loads(run("--json", "--device", "cpu", code=1))["devices"][0]["differing"] == [
        "alpha A B + beta C: 14 residues"
    ]


def test_a_product_that_is_not_published_differs(monkeypatch):
    some = published()
    del some["complex"]["fp64"], some["A A^T"]
    monkeypatch.setattr(commands, "published", lambda: some)
    found = json.loads(run("--device", "cpu", "--json", code=1))
    assert found["devices"][0]["differing"] == ["complex: fp64", "A A^T: float64, fp64", "A A^T: complex64"]


def test_every_device_is_asked(monkeypatch):
    gpus = [{"name": f"GPU of kind {kind}"} for kind in "AB"]
    monkeypatch.setattr(devices, "pick_device", lambda _: "gpu")
    monkeypatch.setattr(devices, "environment", lambda: {"gpus": gpus})
    on_gpus = [devices.Place("gpu", f"GPU {i}, {gpu['name']}", i) for i, gpu in enumerate(gpus)]
    assert devices.places(Device.auto) == [CPU, *on_gpus]
    assert devices.places(Device.gpu) == on_gpus
    assert devices.places(Device.cpu) == [CPU]
    monkeypatch.setattr(commands, "places", lambda _: [CPU, replace(CPU, name="GPU 0, of another kind")])
    assert run().splitlines()[-1].endswith("publishes, on the CPU and on GPU 0.")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="there may be a GPU")
def test_a_gpu_that_is_not_there():
    assert devices.places(Device.auto) == [CPU]
    assert run("--device", "gpu", code=2).startswith("error: device: a GPU needs CuPy: pip install")


# Hashes and numbers -------------------------------------------------------------------------------------------------


def test_hashes_tell_arrays_apart():
    x = np.arange(6.0).reshape(2, 3)
    number = ozaki.mparray(x, bits=60)
    others = [
        x, x.T, x.ravel(), x.astype("f4"), -x, x + 1j, x.astype("i8"), number, number.round_to(59),
        ozaki.mparray(x, bits=90), ozaki.mparray(x + 1j), np.float64(0), np.zeros((0, 3)), np.zeros((3, 0)),
    ]  # fmt: skip
    assert len({hash_of(np.asarray(y) if np.isscalar(y) else y) for y in others}) == len(others)
    assert hash_of(np.array([0.0])) != hash_of(np.array([-0.0]))


def test_hashes_depend_on_bits_alone():
    x = np.arange(6.0).reshape(2, 3)
    for same in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x.astype(">f8").astype("f8")):
        assert hash_of(same) == hash_of(x)
    number = ozaki.mparray(x, bits=60)
    assert hash_of(number.T.T) == hash_of(number)


def test_the_integers_are_those_of_splitmix64():
    assert integers(0, 1).tolist() == [0xE220A8397B1DCDAF]
    assert integers(1234567, 5).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_numbers_are_of_all_kinds(dtype):
    x = real(5, (40, 50), dtype, span=30, top=-3)
    bits = 24 if dtype == "float32" else 53
    fractions, exponents = np.frexp(x)
    assert x.dtype == dtype and (x > 0).mean() > 0.4 and (x < 0).mean() > 0.4 and 0.1 < (x == 0).mean() < 0.15
    assert set(exponents[x != 0]) == set(range(-33, -2))
    wholes_of = np.ldexp(fractions.astype("f8"), bits)
    assert (wholes_of == np.rint(wholes_of)).all() and (wholes_of[x != 0] % 2 == 1).mean() > 0.4
    assert not np.array_equal(x, real(6, (40, 50), dtype, span=30, top=-3))


def test_other_numbers():
    x = complex_numbers(5, (20, 30), "complex64")
    assert x.dtype == np.complex64 and x.shape == (20, 30) and (x.real != x.imag).any()
    n = wholes(5, (2000,), 28)
    assert n.dtype == np.int64 and -(2**28) <= n.min() < -(2**27) and 2**27 <= n.max() < 2**28
    y = multiprecision(5, (20, 30))
    assert y.bits == 160 and y.shape == (20, 30)
    longest = max(abs(whole).bit_length() for whole in y.to_ints()[0].flat)
    assert 150 < longest <= 160


def test_a_product_depends_on_its_names_alone():
    first = PRODUCTS[0]
    copy = partial(np.array, copy=True)
    assert hash_of(replace(first, group="other").compute(copy)) != hash_of(first.compute(copy))
    assert first.compute(copy).tobytes() == first.compute(copy).tobytes()
