"""The demonstration shows what it says it shows, with real products."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

import ozaki
from ozaki._cli import dgemm
from ozaki._cli import longley as regression
from ozaki._cli.commands import app
from ozaki._cli.devices import gpus


@pytest.fixture(scope="module")
def longley():
    return regression.longley()


@pytest.fixture(scope="module")
def solved(longley):
    return {row.method: row for row in regression.solve_longley(longley)}


def test_the_exact_solution_rounds_to_the_certified_digits(longley):
    assert longley.a.shape == (16, 7)
    assert len(longley.certified) == 7
    for certified, exact in zip(longley.certified, longley.exact, strict=True):
        unit = Fraction(10) ** (math.floor(math.log10(abs(float(certified)))) - 14)
        assert abs(Fraction(certified) - exact) <= unit / 2


def test_the_exact_solution_solves_the_normal_equations(longley):
    a = [[Fraction(x) for x in row] for row in longley.a]
    x = [b / unit for b, unit in zip(longley.exact, longley.units, strict=True)]
    residual = [
        Fraction(y) - sum(p * q for p, q in zip(row, x, strict=True)) for row, y in zip(a, longley.y, strict=True)
    ]
    assert all(sum(p * q for p, q in zip(column, residual, strict=True)) == 0 for column in zip(*a, strict=True))


def test_each_way_gets_the_digits_of_the_table(solved):
    digits = {method: row.digits for method, row in solved.items()}
    assert 7 < digits["normal equations"] < 8
    assert 9.5 < digits["LAPACK least squares"] < 10
    assert 10.5 < digits["refined, native residuals"] < 12.5
    assert digits["refined, residuals to 2^-60"] >= 13
    assert digits["refined, residuals to 2^-66"] >= 15
    assert digits["refined, residuals to 2^-72"] == 16


def test_promised_digits_are_reached(solved):
    refined = [row for row in solved.values() if row.promised is not None]
    assert len(refined) == 5
    for row in refined:
        assert row.digits >= row.promised
    promised = [row.promised for row in refined]
    assert promised == sorted(promised)
    assert promised[-1] > 15.9


def test_a_sharper_residual_takes_more_slices(solved):
    slices = [int(row.product.split()[0]) for row in solved.values() if row.product.endswith("products")]
    assert slices == sorted(set(slices))
    assert len(slices) == 4


def test_an_imprecise_residual_would_show(longley, monkeypatch):
    """The demonstration precomputes nothing: worse products give fewer correct digits."""
    matmul = ozaki.matmul

    def rounded(*args, **kwargs):
        c, report = matmul(*args, **kwargs)
        return c * (1 + 1e-3 * np.sin(np.arange(c.size)[:, None])) + 1e-6, report

    monkeypatch.setattr(ozaki, "matmul", rounded)
    *_, last = regression.solve_longley(longley)
    assert last.digits < 13


def test_emulated_products_meet_their_bounds():
    timed = list(dgemm.emulate_dgemm(120, "cpu"))
    native, *ours = timed
    assert [row.name for row in ours] == list(dgemm.REQUESTS)
    assert 0 < native.error < 1e-14
    for row in ours:
        assert 0 < row.rms <= row.error <= row.bound
        assert row.seconds > 0
    errors = [row.error for row in ours]
    assert errors == sorted(errors, reverse=True)


def test_the_command_prints_both_tables_and_draws_them(tmp_path):
    picture = tmp_path / "demo.png"
    done = CliRunner().invoke(app, ["demo", "--size", "64", "--device", "cpu", "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    for words in ("normal equations", "residuals to 2^-72", "fp64", "residues", "promised"):
        assert words in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_json():
    done = CliRunner().invoke(app, ["demo", "--size", "16", "--device", "cpu", "--json"])
    found = json.loads(done.stdout)
    assert [len(found["longley"]), len(found["dgemm"])] == [8, 5]
    assert found["dgemm"][0]["name"] == "native"
    assert all(0 < row["error"] <= row["bound"] for row in found["dgemm"])


@pytest.mark.gpu
def test_the_gpu_solves_it_alike(longley, solved):
    pytest.importorskip("cupy")
    if not gpus():
        pytest.skip("no GPU")
    *_, last = regression.solve_longley(longley, "gpu")
    assert last == list(solved.values())[-1]
