"""`ozaki plan A B --plot FILE`: what ways of a product prove for one's own matrices, over modelled times."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

import ozaki
from ozaki import reference
from ozaki._cli import planning, trade_off
from ozaki._cli.commands import app
from ozaki._cli.options import options_of
from ozaki.backends.numpy import backend


def found_for(a, b, accuracy=None, dtype=None, scheme="auto", slices=None, reproducible=False):
    given = {"accuracy": accuracy, "dtype": dtype, "scheme": scheme, "slices": slices, "reproducible": reproducible}
    options = options_of(given)
    planned = planning.of_operands(a, b, options, "cpu", backend)
    return trade_off.of_operands(a, b, options, planned, backend), planned.plan


def test_bounds_hold_and_fall_with_the_count(rng):
    a, b = rng.standard_normal((12, 40)) * np.exp2(rng.integers(-9, 9, (12, 40))), rng.standard_normal((40, 9))
    found, plan = found_for(a, b, "fp64", reproducible=True)
    assert found.measure == "componentwise" and found.times
    assert {way.family for way in found.ways} == {"residues", "digits", "native product"}
    (chosen,) = (way for way in found.ways if way.chosen)
    assert chosen.name == f"{plan.slices} {plan.scheme.name}" and chosen.bound <= math.log10(plan.bound)
    assert chosen.bound <= found.asked
    for family in ("residues", "digits"):
        ways = [way for way in found.ways if way.family == family]
        assert len(ways) > 4
        assert all(x.bound > y.bound and x.work < y.work and x.seconds < y.seconds for x, y in pairwise(ways))
        for way in ways:
            c = ozaki.matmul(a, b, scheme=family, slices=int(way.label))
            assert reference.componentwise_error(c, a, b) <= 10**way.bound * (1 + 1e-12)
    (native,) = (way for way in found.ways if way.family == "native product")
    assert native.label == "native" and native.work == 1
    assert Fraction(reference.componentwise_error(a @ b, a, b)) <= Fraction(10**native.bound)


OF_WAYS = [
    {"accuracy": "exact"}, {"accuracy": "exact", "dtype": "mp"}, {"accuracy": "relative:1e-10"},
    {"accuracy": "normwise:1e-12"}, {"accuracy": "400", "dtype": "mp"},
    {"accuracy": "row-column:2^-1500", "dtype": "mp"}, {"scheme": "native"},
    {"scheme": "digits", "slices": 5}, {"scheme": "halfhalf"}, {},
]  # fmt: skip


@pytest.mark.parametrize("options", OF_WAYS, ids=str)
@pytest.mark.parametrize("kind", ["real", "complex", "stack"])
def test_the_planned_way_is_among_those_that_are_drawn(options, kind, rng):
    words = options.get("scheme") == "halfhalf"
    if words and kind == "complex":
        return
    a, b = rng.standard_normal((2, 4, 6) if kind == "stack" else (4, 6)), rng.standard_normal((6, 3))
    if kind == "complex":
        a, b = a + 1j, b - 1j * b
    if words:
        a, b = a.astype("f"), b.astype("f")
    found, plan = found_for(a, b, **options)
    (chosen,) = (way for way in found.ways if way.chosen)
    assert chosen.work == plan.products
    if plan.target.measure == found.measure and plan.bound > 0:
        assert chosen.bound <= math.log10(plan.bound) + plan.target.exponent * math.log10(2) + 1e-9
    if options.get("accuracy") == "exact" and "dtype" in options:
        assert chosen.bound == -math.inf


def test_operands_without_native_bound(rng):
    found, _ = found_for(1e200 * rng.standard_normal((3, 4)), 1e200 * rng.standard_normal((4, 3)), "fp64")
    assert "native product" not in {way.family for way in found.ways}


# The picture ---------------------------------------------------------------------------------------------------------


def labels_of(figure):
    """The texts beside points, and the boxes that they take."""
    (axes,) = figure.axes
    return [(text.get_text(), text.get_window_extent()) for text in axes.texts]


def test_the_picture_has_units_and_no_label_on_another(rng, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = []
    monkeypatch.setattr(trade_off.picture, "save", lambda figure, path: drawn.append(figure))
    exact = {"dtype": "mp", "accuracy": "exact"}
    for shape, spread, options in (((5, 40), 0, {}), ((30, 300), 0, {}), ((9, 90), 20, {}), ((4, 30), 0, exact)):
        options = {"accuracy": "fp64", "reproducible": True, **options}
        a, b = (np.exp(spread * rng.random(s)) * rng.standard_normal(s) for s in (shape, (shape[1], 8)))
        found, _ = found_for(a, b, **options)
        trade_off.draw(found, str(tmp_path / "x.png"))
        figure = drawn.pop()
        (axes,) = figure.axes
        assert axes.get_xlabel() == "modelled seconds (from timed smaller products, in proportion)"
        assert axes.get_ylabel() == "proven componentwise error (no unit)"
        assert axes.get_title().startswith(f"({shape[0]} x {shape[1]}) ({shape[1]} x 8), ")
        texts = labels_of(figure)
        assert len(texts) > 2
        boxes = [box for _, box in texts]
        assert not any(x.overlaps(y) for i, x in enumerate(boxes) for y in boxes[:i])
        assert all(axes.bbox.contains(*corner) for box in boxes for corner in (box.min, box.max))
        points = [
            axes.transData.transform(xy)
            for line in axes.lines
            for xy in line.get_xydata()
            if line.get_marker() != "None"
        ]
        assert not any(box.contains(*point) for box in boxes for point in points if axes.bbox.contains(*point))
        (chosen,) = (way.label for way in found.ways if way.chosen)
        assert chosen in [text for text, _ in texts]
        legend = [text.get_text() for text in figure.legends[0].get_texts()]
        assert ("exact" if "dtype" in options else "the accuracy that was asked for") in legend
        assert any(text.startswith("chosen: ") and text.endswith(" residues") for text in legend)


def test_a_choice_that_proves_nothing_is_named(rng, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = []
    monkeypatch.setattr(trade_off.picture, "save", lambda figure, path: drawn.append(figure))
    found, plan = found_for(1e300 * rng.standard_normal((3, 4)), 1e300 * rng.standard_normal((4, 3)))
    trade_off.draw(found, str(tmp_path / "x.png"))
    assert plan.native and not any(way.chosen for way in found.ways)
    legend = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert "chosen: native product, which proves nothing here" in legend


@pytest.fixture
def files(rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", rng.standard_normal((5, 6)))
    np.save("b.npy", rng.standard_normal((6, 4)))
    np.save("empty.npy", np.ones((0, 5)))


@pytest.mark.usefixtures("files")
def test_the_command_draws_a_file(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    done = CliRunner().invoke(app, ["plan", "a.npy", "b.npy", "--accuracy", "fp64", "--plot", "x.png"])
    assert done.exit_code == 0 and "Drawn into x.png" in done.output
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    done = CliRunner().invoke(app, ["plan", "a.npy", "b.npy", "--plot", "x.pdf", "--json"])
    assert done.exit_code == 0 and "Drawn" not in done.output and (tmp_path / "x.pdf").exists()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.npy", "b.npy", "--plot", "x.jpg"], "--plot: x.jpg; expected a name that ends with .png"),
        (["5x6", "6x4", "--plot", "x.png"], "--plot takes files"),
        (["5x6", "6x4", "--gpu", "h100", "--plot", "x.png"], "--plot takes files"),
        (["empty.npy", "a.npy", "--plot", "x.png"], "--plot: a product of shapes (0, 5) and (5, 6) has nothing"),
        (["missing.npy", "a.npy", "--plot", "no/x.png"], "no/x.png: no folder"),  # before any work
    ],
)
def test_what_cannot_be_drawn(words, message, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    done = CliRunner().invoke(app, ["plan", *words])
    assert done.exit_code == 2
    assert message in done.output.replace("\n", " ")
    assert not (tmp_path / "x.png").exists()


@pytest.mark.usefixtures("files")
def test_without_matplotlib(monkeypatch):
    monkeypatch.setattr(trade_off.picture.importlib.util, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["plan", "a.npy", "b.npy", "--plot", "x.png"])
    assert done.exit_code == 2 and "--plot needs matplotlib: pip install matplotlib" in done.output
