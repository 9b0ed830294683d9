"""What runs: engines, plans from data, and the fastest way where no accuracy is named."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest
from ozaki.backends.cupy.engines import _cublas, _hopper, _hopper_tiles, _word_tiles

import ozaki
from ozaki import _bounds, _call, _search
from ozaki.backends.cupy import _again, _rates
from ozaki.backends.cupy import _choice as _engines
from ozaki.backends.cupy import backend as _cupy
from ozaki.reference import componentwise_error
from ozaki.schemes import PRESETS, Digits, Residues, Scheme, Words
from runs.again import held
from runs.operands import matrix, same


def engines(_rng: np.random.Generator) -> None:
    """The own kernel, but where padding would cost more than cuBLAS does."""
    with mock.patch.object(_hopper_tiles, "cluster_blocks", return_value=132):
        for scheme, batch, shape, engine in (
            (Residues(14), 1, (1024, 2**20, 1024), _hopper),
            (Residues(14), 1, (64, 2**16, 64), _cublas),
            (Residues(14), 1, (64, 100, 64), _hopper),
            (Residues(14), 1, (64, 2**16, 600), _hopper),
            (Digits(3), 1, (64, 2**15, 64), _hopper),
            (Digits(3), 1, (64, 2**16, 64), _cublas),
            (Residues(7), 1000, (100, 100, 100), _hopper),
            (Digits(3), 1000, (100, 100, 100), _hopper),
            (Residues(7), 100000, (100, 100, 100), _cublas),
            (Residues(14), 1, (10**7, 64, 1), _cublas),  # by its own kernel four times the memory
            (Residues(14), 1, (10**6, 64, 64), _hopper),
        ):
            assert _engines._engine(scheme, "auto", batch, shape) is engine, (scheme, batch, shape)
        assert _engines._engine(Residues(14), "hopper", 1, (64, 2**16, 64)) is _hopper


def empty_products(_rng: np.random.Generator) -> None:
    """Of all plans, with a report and out of prepared operands."""
    counts: list[dict[str, Any]] = [{"scheme": "residues", "slices": 14}, {"scheme": "digits", "slices": 3}]
    choices = [*counts, {"reproducible": True}]
    choices += [{"accuracy": accuracy} for accuracy in (None, "fp32", ozaki.Accuracy("row-column", 2.0**-35))]
    for m, k, n in ((0, 5, 3), (4, 5, 0), (0, 0, 0), (3, 0, 4), (0, 10000, 3), (0, 1, 3)):
        for dtype in ("f4", "f8"):
            a, b = np.zeros((m, k), dtype), np.zeros((k, n), dtype)
            x, y = cp.asarray(a), cp.asarray(b)
            for options in choices:
                same(a @ b, ozaki.matmul(x, y, **options))
                same(a @ b, ozaki.matmul(x, y, return_report=True, **options)[0])
            for count in counts:
                plan = ozaki.plan(a.shape, b.shape, dtype=a.dtype.name, **count)
                left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
                same(a @ b, ozaki.matmul(left, right, plan=plan))


def plans(rng: np.random.Generator) -> None:
    """The same plan, bound and bits from data; for heavy tails from wide magnitudes and exponents."""
    for dtype, (m, k, n), tails in (("f4", (20, 1100, 25), 0), ("f8", (30, 200, 20), 0), ("f8", (20, 1100, 25), 3)):
        a, b = (matrix(rng, shape, dtype) * rng.standard_cauchy(shape) ** tails for shape in ((m, k), (k, n)))
        a, b = a.astype(dtype), b.astype(dtype)
        expected, told = ozaki.matmul(a, b, reproducible=True, return_report=True)
        with mock.patch.object(_cupy, "wide_product", side_effect=_cupy.wide_product) as wide:
            got, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), reproducible=True, return_report=True)
        same(expected, got)
        assert (told.scheme, told.slices, told.bound) == (report.scheme, report.slices, report.bound)
        assert wide.called == (tails > 0)
    a, b = matrix(rng, (2, 1, 4, 100), "f8"), matrix(rng, (3, 100, 5), "f8")
    for accuracy in ("fp64", ozaki.Accuracy("row-column", 1e-14), ozaki.Accuracy("normwise", 1e-14)):
        options: dict[str, Any] = {"accuracy": accuracy, "reproducible": True}
        same(ozaki.matmul(a, b, **options), ozaki.matmul(cp.asarray(a), cp.asarray(b), **options))


def fastest(rng: np.random.Generator) -> None:
    """What runs where no accuracy is named, by the rates of the device."""
    halfhalf = (PRESETS["halfhalf"],)
    of_h200 = [mock.patch.object(module, "cluster_blocks", return_value=132) for module in (_hopper_tiles, _word_tiles)]
    of_shapes: tuple[tuple[tuple[int, int, int], Scheme, Any], ...] = (
        ((256, 2**16, 256), Digits(3), None),
        ((1024, 2**14, 1024), Digits(3), Digits(3)),
        ((64, 2**18, 64), Residues(7), None),
        ((512, 2**14, 512), Residues(7), None),
        ((768, 4096, 768), Residues(7), halfhalf[0]),
        ((10000, 1000, 500), Residues(7), halfhalf[0]),
        ((100000, 64, 64), Residues(7), None),
    )
    for shape, scheme, expected in of_shapes:
        with of_h200[0], of_h200[1]:
            m, k, n = shape
            assert _engines.fastest((1, m, n), k, "float32", (scheme, *halfhalf, None)) == expected, shape
    for n, dtype, scheme, expected in (
        (512, "float32", Residues(7), None),
        (1024, "float32", Residues(7), halfhalf[0]),
        (1536, "float32", Residues(7), halfhalf[0]),
        (2048, "float32", Residues(7), halfhalf[0]),
        (2000, "float32", Digits(3), halfhalf[0]),
        (4096, "float32", Digits(3), Digits(3)),
        (4096, "float32", Residues(7), halfhalf[0]),
        (8192, "float32", Digits(3), Digits(3)),
        (8192, "float32", Residues(7), halfhalf[0]),
        (16384, "float32", Digits(3), Digits(3)),
        (16384, "float32", Residues(7), Residues(7)),  # by Strassen-Winograd
        (1024, "float64", Residues(14), None),
        (2048, "float64", Residues(14), Residues(14)),
        (8192, "float64", Residues(14), Residues(14)),
    ):
        ways = (scheme, *(halfhalf if dtype == "float32" else ()), None)
        with of_h200[0], of_h200[1]:
            assert _engines.fastest((1, n, n), n, dtype, ways) == expected, (n, dtype, scheme)
    for dtype, k in itertools.product(("f4", "f8"), (0, 1, 2)):
        a, b = cp.asarray(matrix(rng, (9, k), dtype)), cp.asarray(matrix(rng, (k, 5), dtype))
        assert ozaki.matmul(a, b, return_report=True)[1].native
    a, b = (rng.uniform(1, 2, shape).astype("f4") for shape in ((40, 300), (300, 50)))  # words lose none of these
    with mock.patch.multiple(_rates.Rates, native=lambda *_: np.inf, slices=lambda *_: np.inf):
        c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
        assert (report.scheme, report.reproducible, report.native) == ("halfhalf", False, False), report
        assert report.measure == "componentwise" and report.bound <= _bounds.native(300, "float32")
        same(ozaki.matmul(a, b, scheme="halfhalf"), c)
        _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), reproducible=True, return_report=True)
        assert report.scheme == "residues"


def no_worse_than_native(rng: np.random.Generator) -> None:
    """Without an accuracy, operands whose small elements words lose, and such that need many slices."""
    k = 300
    scale = np.ldexp(1.0, rng.integers(-30, 31, k)).astype("f4")
    a, b = matrix(rng, (40, k), "f4", 0), matrix(rng, (k, 50), "f4", 0)
    graded = a * scale, b / scale[:, None]
    lost = componentwise_error(ozaki.matmul(*graded, scheme="halfhalf"), *graded)
    assert lost > _bounds.native(k, "float32")
    times = {"words": 1.0, "native": 10.0}
    with (
        mock.patch.object(_rates.Rates, "words", side_effect=lambda *_: times["words"]),
        mock.patch.object(_rates.Rates, "native", side_effect=lambda *_: times["native"]),
        mock.patch.object(_rates.Rates, "slices", side_effect=lambda *a: float(a[5].products)),
    ):
        slope = np.ldexp(1.0, np.arange(k) % 9 - 4).astype("f4")
        uneven = a * slope, b / slope[:, None]
        for (x, y), native, ran in ((uneven, 1e3, "residues"), (uneven, 7.5, "native"), (graded, 1e3, "native")):
            times["words"], times["native"] = 500.0, native
            _engines._fastest.cache_clear()
            _again.forget()
            for _ in range(2):  # the second one may be done again
                with mock.patch.object(_cupy, "wide_product", side_effect=AssertionError("the native one is faster")):
                    c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
                assert report.scheme == ran and report.bound <= _bounds.native(k, "float32"), report
                assert ran == "native" or report.slices > 7
                assert componentwise_error(cp.asnumpy(c), x, y) <= report.bound
                same(cp.asnumpy(c), cp.asnumpy(ozaki.matmul(cp.asarray(x), cp.asarray(y))))
        times["words"], times["native"] = 1.0, 10.0
        _engines._fastest.cache_clear()
        for x, y in (graded, (a, b)):
            ran = "native" if x is graded[0] else "halfhalf"
            _, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
            assert report.scheme == ran and report.bound <= _bounds.native(k, "float32"), report
            _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
            assert report.scheme == "halfhalf" and report.bound <= _bounds.native(k, "float32"), report
        for x in (a * scale, np.maximum(a, 0) * scale):  # words lose what hardly counts beside the largest columns
            for _ in range(3):  # the last one is done again
                c, report = ozaki.matmul(cp.asarray(x), cp.asarray(b), return_report=True)
                assert report.scheme == "halfhalf" and report.bound <= _bounds.native(k, "float32"), report
                assert componentwise_error(cp.asnumpy(c), x, b) <= report.bound
                same(cp.asnumpy(c), ozaki.matmul(cp.asarray(x), cp.asarray(b)))
        times["words"], times["native"] = 8.5, 1e3  # slower than the slices that most need, but not than these
        _engines._fastest.cache_clear()
        scale = np.ldexp(1.0, rng.integers(-12, 13, k)).astype("f4")
        for _ in range(2):
            x, y = a * scale, b / scale[:, None]
            c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
            assert report.scheme in ("halfhalf", "tf32tf32") and report.bound <= _bounds.native(k, "float32"), report
            same(ozaki.matmul(x, y, scheme=report.scheme), c)
        _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
        assert report.scheme == "residues", report
        times["words"] = 1.0
        _engines._fastest.cache_clear()
        long = matrix(rng, (2, 16500), "f4", 0), matrix(rng, (16500, 3), "f4", 0)  # described as a whole
        times["native"] = 1e3
        _engines._fastest.cache_clear()
        tiny = a.copy()
        tiny[3, 5] = np.ldexp(tiny[3, 5], -40)  # words lose it, which a look shows to be little
        _again.forget()
        run = _call.Call.run
        with mock.patch.object(_call.Call, "run", autospec=True, side_effect=run) as planned:
            for x in (a, a, tiny, tiny, a):
                c = ozaki.matmul(cp.asarray(x), cp.asarray(b))
                same(ozaki.matmul(cp.asarray(x), cp.asarray(b), scheme="halfhalf"), c)
        plans = [call.args[1] for call in planned.call_args_list]
        assert [plan.scheme.name for plan in plans if not plan.a_priori] == ["halfhalf"] * 2
        small = np.where(np.arange(k) % 2, a, np.ldexp(a, -40)).astype("f4")  # words lose these elements
        assert not held(a, b) and not held(*long) and not held(small, b, accuracy="fp32")
        times["words"], times["native"] = 1e3, 10.0  # residues for these, native for such that need more
        _engines._fastest.cache_clear()
        ozaki.matmul(cp.asarray(a), cp.asarray(b))  # the next ones are split for what this one needed
        _again.forget()
        with mock.patch.object(_call.Call, "run", autospec=True, side_effect=run) as planned:
            for x, y in ((a, b), (a, b), graded, (a, b), (a, b)):
                ozaki.matmul(cp.asarray(x), cp.asarray(y))
        assert [call.args[1].native for call in planned.call_args_list] == [False, True, False]
    _engines._fastest.cache_clear()


def digits_where_ordinary(rng: np.random.Generator) -> None:
    """Without an accuracy, digits for ordinary operands, words for others; those that only look it are planned anew."""
    k = 2560
    a, b = (rng.standard_normal(shape).clip(-3.9, 3.9).astype("f4") for shape in ((12, k), (k, 9)))
    usual = a, b
    wide = tuple(np.exp(x) for x in usual)
    early = np.arange(k) < 1024
    late = np.where(early, usual[0], wide[0]), np.where(early[:, None], usual[1], wide[1])
    times = {"words": 6.5, "native": 1e3}
    with (
        mock.patch.object(_rates.Rates, "words", side_effect=lambda *_: times["words"]),
        mock.patch.object(_rates.Rates, "native", side_effect=lambda *_: times["native"]),
        mock.patch.object(_rates.Rates, "slices", side_effect=lambda *a: float(a[5].products)),
    ):
        for words, others in ((6.5, "halfhalf"), (20.0, "residues")):
            times["words"] = words
            _engines._fastest.cache_clear()
            _again.forget()
            cases = (*usual, "digits"), (*wide, others), (*late, others)
            found = []
            for x, y, scheme in cases:
                c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
                assert report.scheme == scheme and report.bound <= _bounds.native(k, "float32"), report
                assert componentwise_error(cp.asnumpy(c), x, y) <= report.bound
                slices: dict[str, Any] = {} if scheme == "halfhalf" else {"slices": report.slices}
                same(ozaki.matmul(x, y, scheme=scheme, **slices), c)
                found.append(cp.asnumpy(c))
            run = _call.Call.run
            with mock.patch.object(_call.Call, "run", autospec=True, side_effect=run) as planned:
                for i in (0, 1, 1, 0, 0, 2, 2, 0):
                    x, y, _ = cases[i]
                    same(found[i], ozaki.matmul(cp.asarray(x), cp.asarray(y)))
            ran = [call.args[1].scheme.name for call in planned.call_args_list]
            assert ran == ["digits", others, "digits", others, others, "digits"], ran
        assert not held(*usual) and not held(*wide)
        _, report = ozaki.matmul(cp.asarray(usual[0]), cp.asarray(usual[1]), workspace_limit=2**20, return_report=True)
        assert report.scheme == "digits"
        _, report = ozaki.matmul(
            *map(cp.asarray, usual), accuracy=ozaki.Accuracy("row-column", 1e-5), return_report=True
        )
        assert report.scheme == "digits"
    _engines._fastest.cache_clear()


def words_for_a_target(rng: np.random.Generator) -> None:
    """Words where they prove what is asked, by the description of each call's operands; else slices."""
    usual = [matrix(rng, (40, 300), "f4", 0) for _ in range(3)]
    b, wide = matrix(rng, (300, 50), "f4", 0), matrix(rng, (300, 250), "f4", 0)
    small, graded = usual[0].copy(), usual[0].copy()
    small[3, 7] *= np.float32(2.0**-40)  # adds next to nothing to the bound
    graded[:, ::2] *= np.float32(2.0**-70)  # too much to see at a first look
    apart = usual[0].copy(), b.copy()
    apart[0][:, ::2] *= np.float32(2.0**-40)  # too much for FP16 where large elements meet small ones alone
    apart[1][1::2] *= np.float32(2.0**-40)
    begin, got = _search.Search.begin, []
    with (
        mock.patch.object(_rates.Rates, "slices", return_value=1.0),
        mock.patch.object(_search.Search, "begin", autospec=True, side_effect=begin) as planned,
    ):
        with mock.patch.object(_cupy, "least_product", return_value=lambda: 0.0):
            for a in (*usual[:2], small, graded, graded, usual[2]):
                out = cp.full((40, 50), np.nan, "f4")
                ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, accuracy="fp32")
                got.append((a, out))
            assert planned.call_count == 1  # slices are done again only while words prove too little
            plan = ozaki.plan(cp.asarray(graded), cp.asarray(b), accuracy="fp32")
            assert not isinstance(plan.scheme, Words) and "tf32tf32 proves too little" in plan.why, plan
        for a in (graded, usual[2], graded):  # of which a small product shows that words lose next to nothing
            out = cp.full((40, 50), np.nan, "f4")
            ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, accuracy="fp32")
            same(ozaki.matmul(a, b, scheme="halfhalf"), out)
        assert planned.call_count == 2  # the plan's own
        tight: dict[str, Any] = {"accuracy": "fp32", "workspace_limit": 7 * 10**5}
        for scale in (1, 64):  # in panels, never done again
            x = wide * np.float32(scale)
            same(ozaki.matmul(b.T, x, scheme="halfhalf"), ozaki.matmul(cp.asarray(b.T), cp.asarray(x), **tight))
        for accuracy in ("fp32", 22, ozaki.Accuracy("row-column", 1e-5)):
            plan = ozaki.plan(cp.asarray(small), cp.asarray(b), accuracy=accuracy)
            assert plan.scheme == PRESETS["halfhalf"] and "proves what is asked" in plan.why, plan
            assert ozaki.plan(small, b, scheme="halfhalf", accuracy=accuracy).bound <= plan.bound < 6e-6
        for more in (25, 1e-7, "fp64"):  # of another format, or more than they prove
            assert not isinstance(ozaki.plan(cp.asarray(a), cp.asarray(b), accuracy=more).scheme, Words)
        x, y = (cp.asarray(each) for each in apart)
        for _ in range(2):  # the second one may be done again
            c, report = ozaki.matmul(x, y, accuracy="fp32", return_report=True)
            assert report.scheme == "tf32tf32" and "proves what is asked" in report.why, report
            assert componentwise_error(cp.asnumpy(c), *apart) <= report.bound <= 1.1 * 4 * 300**0.5 * 2.0**-24
            same(ozaki.matmul(*apart, scheme="tf32tf32"), ozaki.matmul(x, y, accuracy="fp32"))
    for a, c in got:
        method = {"accuracy": "fp32", "reproducible": True} if a is graded else {"scheme": "halfhalf"}
        same(ozaki.matmul(a, b, **method), c)


def plans_of_other_operands(rng: np.random.Generator) -> None:
    """A plan from operands is proven for those of each product, and as sharply as it was for its own."""
    grades = 2.0 ** (-8.0 * np.arange(40))
    for k in (40, 1100):
        a, b = rng.standard_normal((30, k)), rng.standard_normal((k, 20))
        x, y = cp.asarray(a), cp.asarray(b)
        other, against = a.copy(), b.copy()
        other[:, :40] *= grades
        other[:, 40:] = 0
        against[:40] *= grades[::-1, None]
        for accuracy in ("fp64", 2.0**-44):
            plan = ozaki.plan(x, y, accuracy=accuracy, reproducible=True)
            loose = ozaki.plan(x, y, accuracy=accuracy, reproducible=True, strict=False)
            for left in (x, ozaki.prepare(x, "left", plan)):
                c, report = ozaki.matmul(left, y, plan=plan, return_report=True)
                assert report.bound <= plan.bound
                for _ in range(2):
                    same(c.get(), ozaki.matmul(left, y, plan=plan))
            with pytest.raises(ValueError, match=r"^plan: proves a componentwise error of"):
                ozaki.matmul(cp.asarray(other), cp.asarray(against), plan=plan)
            with pytest.warns(UserWarning, match="plan: proves"):
                _, report = ozaki.matmul(cp.asarray(other), cp.asarray(against), plan=loose, return_report=True)
            assert report.bound > plan.target.tolerance
