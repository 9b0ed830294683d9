"""Adding a scheme, as CONTRIBUTING.md describes it: a toy scheme of one integer of 16 bits for each element.

A scheme answers `ExactScheme`, a line in `FAMILIES` names it, and an engine in `MAKERS` multiplies it on NumPy. Plans,
bounds, proofs, reports and the command line follow by themselves. It is the smallest case: with one slice there are no
pairs of slices to add at their places, and none to leave out (for these see backends/numpy/engines/digits.py).
"""

import tracemalloc
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from cases import power, rounded

import ozaki
from ozaki import Accuracy, reference
from ozaki._cli.planning import of_shapes
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.machine import Machine
from ozaki.backends.numpy import _limbs, backend
from ozaki.backends.numpy._tiles import TILE
from ozaki.backends.numpy.engines import MAKERS
from ozaki.backends.numpy.engines.by_blas import BlasEngine
from ozaki.planning import search
from ozaki.planning.search import exact_below
from ozaki.schemes import Digits, blas
from ozaki.schemes.image import max_scaling
from ozaki.schemes.named import FAMILIES, Family, least_of, scheme_of


@dataclass(frozen=True)
class Short:
    """One slice: the image itself, rounded to nearest, of 15 bits and a sign."""

    count: int

    exact: ClassVar[bool] = True
    name: ClassVar[str] = "short"
    products: ClassVar[int] = 1
    largest: ClassVar[int] = 2**15 - 1
    drop: ClassVar[float] = 0.0
    usual_drop: ClassVar[float] = 0.0
    growth: ClassVar[int] = 0

    def scaling(self, k):
        return max_scaling(self.largest, 15, k)

    def dropped(self, k, spans):
        return 0.0


@dataclass(frozen=True)
class ShortEngine(BlasEngine):
    """The engine of `Short` on NumPy: one float64 product for each slab, of at most 2**11 products below 2**30."""

    scheme: Short

    of_int8: ClassVar[bool] = False
    planes: ClassVar[int] = 1
    split_copies: ClassVar[int] = 6
    shift: ClassVar[int] = 0
    what: ClassVar[str] = "integers of 16 bits"

    @classmethod
    def of(cls, scheme, k, name):
        return None if name == "int8-simulated" else cls(scheme, k, max(1, min(k, blas.DEPTH)))

    @property
    def sums(self):
        """Limbs of the sum over k, below 2**30 k, with its sign."""
        return -(-(31 + self.k.bit_length()) // blas.LIMB_BITS)

    @property
    def rounding_copies(self):
        return 2 * self.sums + 12

    def split(self, image, side, out):
        out[0] = image

    def sums_of(self, products):
        sums = np.zeros((self.sums, *products.shape[1:]))
        values, limbs = products.reshape(-1), sums.reshape(len(sums), -1)
        for i in range(0, values.size, TILE // 4):  # scratch is no larger than a tile
            _limbs.add_shifted(limbs[:, i : i + TILE // 4], values[i : i + TILE // 4], 0)
        return sums

    def limbs(self, sums):
        return sums


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setitem(FAMILIES, "short", Family(Short, 1))
    monkeypatch.setitem(MAKERS, Short, ShortEngine.of)


def by_definition(a, b):
    """The exact product of the images, rounded once, in Python's integers."""
    images, exponents = [], []
    for rows in (a, b.T):
        tops = [int(np.frexp(np.abs(row).max())[1]) for row in rows]
        bits = [
            15 if np.abs(row).max() * 2.0 ** (15 - top) <= 2**15 - 1.5 else 14
            for row, top in zip(rows, tops, strict=True)
        ]
        mu = [count - top for count, top in zip(bits, tops, strict=True)]
        images.append([[round(Fraction(float(x)) * power(e)) for x in row] for row, e in zip(rows, mu, strict=True)])
        exponents.append(mu)
    return np.array(
        [
            [
                rounded(Fraction(sum(x * y for x, y in zip(left, right, strict=True))) / power(mu + nu), "float64")
                for right, nu in zip(images[1], exponents[1], strict=True)
            ]
            for left, mu in zip(images[0], exponents[0], strict=True)
        ]
    )


def test_its_bits_are_those_of_its_definition(short, rng):
    a, b = rng.standard_normal((7, 40)), rng.standard_normal((40, 5))
    c, report = ozaki.matmul(a, b, scheme="short", slices=1, return_report=True)
    assert (c == by_definition(a, b)).all()
    assert str(report).startswith("1 short, 1 slice product on NumPy")
    assert (report.scheme, report.slices, report.products, report.reproducible) == ("short", 1, 1, True)


def test_sums_over_slabs_are_exact(short, rng):
    a, b = rng.integers(2**14, 2**15, (2, 9000)).astype(float), rng.integers(2**14, 2**15, (9000, 3)).astype(float)
    assert ShortEngine.of(Short(1), 9000, "auto").slab < 9000
    assert (ozaki.matmul(a, b, scheme="short", slices=1) == by_definition(a, b)).all()


@pytest.mark.parametrize(("m", "k", "n"), [(300, 9000, 200), (1500, 1, 700), (700, 64, 600), (2, 200_000, 2)])
def test_its_engine_holds_what_it_says(short, rng, m, k, n):
    a, b, out = rng.standard_normal((m, k)), rng.standard_normal((k, n)), np.empty((m, n))
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme="short", slices=1)
    ozaki.matmul(a, b, plan=plan, out=out)
    tracemalloc.start()
    report = ozaki.matmul(a, b, plan=plan, out=out, return_report=True)[1]
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.workspace_bytes / 3 < held <= report.workspace_bytes


def test_its_bound_holds_and_an_accuracy_finds_it(short, rng):
    a, b = rng.standard_normal((30, 200)), rng.standard_normal((200, 20))
    for target in (1e-3, Accuracy("row-column", 1e-3), Accuracy("normwise", 1e-3)):
        plan = ozaki.plan(a, b, accuracy=target, scheme="short")
        assert plan.scheme == Short(1) and plan.bound <= 1e-3
    c, report = ozaki.matmul(a, b, accuracy=1e-3, scheme="short", return_report=True)
    assert 0 < reference.componentwise_error(c, a, b) <= report.bound
    with pytest.raises(ValueError, match="cannot be proven with up to 1 short"):
        ozaki.matmul(a, b, accuracy=1e-9, scheme="short")


def test_another_family_of_its_name_is_not_taken_for_it(monkeypatch):
    """Caches whose keys are names of families hold nothing of one that had the name before."""

    def known(name):
        target = Accuracy("componentwise", 1e-12)
        (likely,) = search.likely_schemes(target, 50, (name,))
        return likely, exact_below(name, 64, 50, (40, 40)), least_of(name, 50), scheme_of(name, 3)

    for name, bits in (("digits", 8), ("digits7", 7), ("fp16-digits5", 5), ("digits", 8)):
        monkeypatch.setitem(FAMILIES, "mine", Family(partial(Digits, bits=bits, word=FAMILIES[name].make(1).word), 64))
        assert known("mine") == known(name)
    assert known("digits") != known("digits7") != known("fp16-digits5")
    monkeypatch.delitem(FAMILIES, "mine")
    with pytest.raises(KeyError):
        known("mine")


def test_nothing_else_has_to_know_it(short, rng):
    x = rng.standard_normal((2, 9, 30))
    y = rng.standard_normal((30, 8))
    x[1, 3, 4] = np.inf
    plan = ozaki.plan(x.shape, y.shape, dtype="float64", scheme="short", slices=1)
    whole = ozaki.matmul(x, y, plan=plan)
    assert np.array_equal(whole, ozaki.matmul(ozaki.prepare(x, "left", plan), y, plan=plan), equal_nan=True)
    limited = ozaki.matmul(x, y, scheme="short", slices=1, workspace_limit=10**6)
    assert np.array_equal(whole, limited, equal_nan=True)
    assert np.isinf(whole[1, 3]).all() and np.isfinite(np.delete(whole[1], 3, axis=0)).all()


def test_where_no_engine_multiplies_it_nothing_is_computed(short, rng, monkeypatch):
    a, b = rng.standard_normal((3, 20)), rng.standard_normal((20, 4))
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme="short", slices=1)
    int8 = replace(plan, engine="int8-simulated")
    monkeypatch.setattr(backend, "work", None)
    calls = (
        lambda options, _: ozaki.matmul(a, b, scheme="short", **options),
        lambda options, _: ozaki.matmul(a, b, scheme="short", slices=1, **options),
        lambda options, _: ozaki.plan(a, b, scheme="short", accuracy=1e-3, **options),
        lambda _, plan: ozaki.matmul(a, b, plan=plan),
        lambda _, plan: ozaki.prepare(a, "left", plan),
    )
    for call in calls:
        with pytest.raises(
            ValueError, match=r"^scheme: short are not the int8 slices that engine='int8-simulated' multiplies"
        ):
            call({"engine": "int8-simulated"}, int8)
    monkeypatch.delitem(MAKERS, Short)
    for call in calls:
        with pytest.raises(NotImplementedError, match=r"^scheme: NumPy has no engine for short; use scheme='auto'"):
            call({}, plan)
    with pytest.raises(NotImplementedError, match=r"^scheme: NumPy has no engine for short"):
        of_shapes(a.shape, b.shape, {"scheme": "short", "slices": 1, "dtype": "float64"}, "cpu", backend)
    device = Machine(devices.of("90", multiprocessors=132, shared_memory=233472))
    assert device.obstacle(Short(1), "auto") == "CuPy arrays have no engine for short; use scheme='auto'"
