"""What runs: engines, plans from data, and the fastest method where no accuracy is named."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from ozaki.backends.cupy import devices, proofs
from ozaki.backends.cupy.machine import Machine
from ozaki.backends.cupy.program.program import Evidence
from ozaki.backends.cupy.steps.engines.choice import cublas_engine, fused_engine, slice_engine
from ozaki.backends.cupy.steps.engines.thin_residues import ThinResidues
from ozaki.backends.cupy.steps.proof import least_product
from ozaki.backends.numpy import _machine
from ozaki.bounds import native
from ozaki.planning import undecided
from ozaki.records.shapes import shapes
from ozaki.reference import componentwise_error
from ozaki.schemes import PRESETS, Digits, Residues, Scheme, Words
from runs.device import Seen, seen, with_times
from runs.operands import matrix, same
from runs.repeated import held

WIDE = {"lower_by_exponents", "worst_ratio_wide"}
"""Kernels of proofs at the level of wide magnitudes."""


def way_of(call: Seen) -> str:
    """What served a single call: "repeated" for a kept program, else the name of the scheme that a new plan chose."""
    if call.repeated:
        assert not call.long
        return "repeated"
    (scheme,) = call.ran
    return "native" if scheme is None else scheme.name


def engines(_rng: np.random.Generator) -> None:
    """The fused engine multiplies slices, except where its padding would cost more than cuBLAS."""
    device = devices.of("90", multiprocessors=132, shared_memory=233472)
    hopper, cublas = fused_engine, cublas_engine

    def thin(device: devices.Device, _: Any) -> ThinResidues:
        return ThinResidues(device)

    for scheme, batch, shape, engine in (
        (Residues(14), 1, (1024, 2**20, 1024), hopper),
        (Residues(14), 1, (64, 2**16, 64), cublas),
        (Residues(14), 1, (64, 100, 64), thin),
        (Residues(14), 1, (64, 300, 64), hopper),
        (Residues(14), 1, (64, 2**16, 600), hopper),
        (Digits(3), 1, (64, 2**15, 64), hopper),
        (Digits(3), 1, (64, 2**16, 64), cublas),
        (Residues(7), 1000, (100, 100, 100), thin),
        (Digits(3), 1000, (100, 100, 100), hopper),
        (Residues(7), 100000, (100, 100, 100), thin),
        (Residues(7), 100000, (100, 300, 100), hopper),  # some matrices at a time
        (Residues(14), 1, (10**7, 64, 1), thin),
        (Residues(14), 1, (10**7, 300, 1), cublas),  # the fused engine would take twice the memory
        (Residues(14), 1, (10**6, 64, 64), thin),
    ):
        assert slice_engine(device, scheme, "auto", batch, shape) == engine(device, scheme), (scheme, batch, shape)
    assert slice_engine(device, Residues(14), "fused", 1, (64, 2**16, 64)) == hopper(device, Residues(14))


def empty_products(_rng: np.random.Generator) -> None:
    """Empty products by every kind of plan, with a report, and of prepared operands."""
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
    """Plans from data have NumPy's scheme, bound and bits; for heavy tails they take wide magnitudes and exponents."""
    for dtype, (m, k, n), tails in (("f4", (20, 1100, 25), 0), ("f8", (30, 200, 20), 0), ("f8", (20, 1100, 25), 4)):
        a, b = (matrix(rng, shape, dtype) * rng.standard_cauchy(shape) ** tails for shape in ((m, k), (k, n)))
        a, b = a.astype(dtype), b.astype(dtype)
        expected, on_host = ozaki.matmul(a, b, reproducible=True, return_report=True)
        with seen() as calls:
            got, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), reproducible=True, return_report=True)
        same(expected, got)
        assert (on_host.scheme, on_host.slices, on_host.bound) == (report.scheme, report.slices, report.bound)
        assert WIDE.isdisjoint(calls.names) == (tails == 0)
    a, b = matrix(rng, (2, 1, 4, 100), "f8"), matrix(rng, (3, 100, 5), "f8")
    for accuracy in ("fp64", ozaki.Accuracy("row-column", 1e-14), ozaki.Accuracy("normwise", 1e-14)):
        options: dict[str, Any] = {"accuracy": accuracy, "reproducible": True}
        same(ozaki.matmul(a, b, **options), ozaki.matmul(cp.asarray(a), cp.asarray(b), **options))


def foretold(rng: np.random.Generator) -> None:
    """Undecided entries are foretold as on NumPy, by plans and by the programs of repeated calls, which stand."""
    served = 0
    for dtype, left, right in (
        ("f8", (60, 400), (400, 70)),
        ("f4", (3, 40, 300), (300, 50)),
        ("f8", (90, 700), (700, 40)),
    ):
        reach = 25 if dtype == "f8" else 10
        a, b = (matrix(rng, of, dtype) * np.exp2(rng.integers(-reach, reach + 1, of)) for of in (left, right))
        d = np.exp2(np.linspace(-40, 40, left[-1])) if dtype == "f8" and left[0] == 90 else np.ones(left[-1])
        a, b = (a * d).astype(dtype), (b / d[:, None]).astype(dtype)
        x, y = cp.asarray(a), cp.asarray(b)
        with ExitStack() as patches:  # as for large products
            for machine in (Machine, _machine):
                patches.enter_context(mock.patch.multiple(machine, foretelling=0.0, entry_apart=200.0))
            patches.enter_context(mock.patch.object(undecided, "_FIXED", 0.0))
            for options in (
                {"accuracy": "exact"},
                {"accuracy": "fp64" if dtype == "f8" else "fp32", "reproducible": True},
            ):
                expected, of_host = ozaki.matmul(a, b, return_report=True, **options)
                got, report = ozaki.matmul(x, y, return_report=True, **options)
                same(expected, got)
                assert (of_host.undecided is None) == (report.undecided is None)
                assert of_host.inner_scaling == report.inner_scaling
                served += report.undecided is not None
                same(expected, ozaki.matmul(x, y, **options))
                with seen() as calls:
                    same(-expected, ozaki.matmul(-x, y, **options))
                assert report.undecided is None or (calls.repeated and not calls.long)
    assert served > 2


def fastest(rng: np.random.Generator) -> None:
    """Where no accuracy is named, the method runs that is fastest by the rates of the device."""
    halfhalf = (PRESETS["halfhalf"],)
    of_h200 = Machine(devices.of("90", multiprocessors=132, shared_memory=233472))
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
        m, k, n = shape
        assert of_h200.fastest(shapes((m, k), (k, n)), "float32", (scheme, *halfhalf, None)) == expected, shape
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
        assert of_h200.fastest(shapes((n, n), (n, n)), dtype, ways) == expected, (n, dtype, scheme)
    for dtype, k in itertools.product(("f4", "f8"), (0, 1, 2)):
        a, b = cp.asarray(matrix(rng, (9, k), dtype)), cp.asarray(matrix(rng, (k, 5), dtype))
        assert ozaki.matmul(a, b, return_report=True)[1].native
    a, b = (rng.uniform(1, 2, shape).astype("f4") for shape in ((40, 300), (300, 50)))  # words lose none of these
    with with_times(native=np.inf, slices=np.inf):
        c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
        assert (report.scheme, report.reproducible, report.native) == ("halfhalf", False, False), report
        assert report.measure == "componentwise" and report.bound <= native.bound(300, "float32")
        same(ozaki.matmul(a, b, scheme="halfhalf"), c)
        _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), reproducible=True, return_report=True)
        assert report.scheme == "residues"


def no_worse_than_native(rng: np.random.Generator) -> None:
    """Without an accuracy no bound exceeds the native one, for operands that are hard for words or for slices."""
    k = 300
    bound = native.bound(k, "float32")
    scale = np.ldexp(1.0, rng.integers(-30, 31, k)).astype("f4")
    a, b = matrix(rng, (40, k), "f4", 0), matrix(rng, (k, 50), "f4", 0)
    graded = a * scale, b / scale[:, None]
    lost = componentwise_error(ozaki.matmul(*graded, scheme="halfhalf"), *graded)
    assert lost > bound

    def by_products(scheme: Scheme) -> float:
        return float(scheme.products)

    slope = np.ldexp(1.0, np.arange(k) % 9 - 4).astype("f4")
    uneven = a.copy(), b.copy()
    uneven[0][4] *= slope  # a row and a column that are not among those that `Overlap` samples
    uneven[1][:, 2] /= slope
    for (x, y), time, ran in ((uneven, 1e3, "residues"), (uneven, 7.5, "native"), (graded, 1e3, "native")):
        with with_times(words=500.0, native=time, slices=by_products):
            for _ in range(2):  # the second call is repeated
                with seen() as calls:
                    c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
                assert WIDE.isdisjoint(calls.names)  # a native product is faster than that
                assert report.scheme == ran and report.bound <= bound, report
                assert ran == "native" or report.slices > 7
                assert componentwise_error(cp.asnumpy(c), x, y) <= report.bound
                same(cp.asnumpy(c), cp.asnumpy(ozaki.matmul(cp.asarray(x), cp.asarray(y))))
    with with_times(words=1.0, native=10.0, slices=by_products):
        for x, y in (graded, (a, b)):
            ran = "native" if x is graded[0] else "halfhalf"
            _, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
            assert report.scheme == ran and report.bound <= bound, report
            _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
            assert report.scheme == "halfhalf" and report.bound <= bound, report
        for x in (a * scale, np.maximum(a, 0) * scale):  # words lose little beside the largest columns
            for _ in range(3):  # the last one is repeated
                c, report = ozaki.matmul(cp.asarray(x), cp.asarray(b), return_report=True)
                assert report.scheme == "halfhalf" and report.bound <= bound, report
                assert componentwise_error(cp.asnumpy(c), x, b) <= report.bound
                same(cp.asnumpy(c), ozaki.matmul(cp.asarray(x), cp.asarray(b)))
    with with_times(words=8.5, native=1e3, slices=by_products):  # slower than slices for ordinary operands
        scale = np.ldexp(1.0, rng.integers(-12, 13, k)).astype("f4")
        for _ in range(2):
            x, y = a * scale, b / scale[:, None]
            c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
            assert report.scheme in ("halfhalf", "tf32tf32") and report.bound <= bound, report
            same(ozaki.matmul(x, y, scheme=report.scheme), c)
        _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True)
        assert report.scheme == "residues", report
    with with_times(words=1.0, native=1e3, slices=by_products):
        long = matrix(rng, (2, 16500), "f4", 0), matrix(rng, (16500, 3), "f4", 0)  # described as a whole
        tiny = a.copy()
        tiny[3, 5] = np.ldexp(tiny[3, 5], -40)  # words lose it, which a sample shows to be little
        found = []
        for x in (a, a, tiny, tiny, a):
            with seen() as calls:
                c = ozaki.matmul(cp.asarray(x), cp.asarray(b))
            found.append(way_of(calls))
            same(ozaki.matmul(cp.asarray(x), cp.asarray(b), scheme="halfhalf"), c)
        assert found == ["halfhalf", "repeated", "halfhalf", "repeated", "repeated"], found
        small = np.where(np.arange(k) % 2, a, np.ldexp(a, -40)).astype("f4")  # words lose these elements
        assert not held(a, b) and not held(*long) and not held(small, b, accuracy="fp32")
    with with_times(words=1e3, native=10.0, slices=by_products):  # native where residues need many slices
        found = []
        for x, y in ((a, b), (a, b), graded, (a, b), (a, b)):
            with seen() as calls:
                ozaki.matmul(cp.asarray(x), cp.asarray(y))
            found.append(way_of(calls))
        assert found == ["residues", "repeated", "native", "residues", "repeated"], found


def digits_where_ordinary(rng: np.random.Generator) -> None:
    """Without an accuracy, digits for ordinary operands, words or residues for others, ordinary in a sample or not.

    Words or residues are drawn, since each takes seconds.
    """
    k = 2560
    bound = native.bound(k, "float32")
    a, b = (rng.standard_normal(shape).clip(-3.9, 3.9).astype("f4") for shape in ((12, k), (k, 9)))
    usual = a, b
    wide = tuple(np.exp(x) for x in usual)
    early = np.arange(k) < 1024
    late = np.where(early, usual[0], wide[0]), np.where(early[:, None], usual[1], wide[1])
    time, others = ((6.5, "halfhalf"), (20.0, "residues"))[int(rng.integers(2))]
    with with_times(words=time, native=1e3, slices=lambda scheme: float(scheme.products)):
        cases = (*usual, "digits"), (*wide, others), (*late, others)
        results = []
        for x, y, scheme in cases:
            c, report = ozaki.matmul(cp.asarray(x), cp.asarray(y), return_report=True)
            assert report.scheme == scheme and report.bound <= bound, report
            assert componentwise_error(cp.asnumpy(c), x, y) <= report.bound
            slices: dict[str, Any] = {} if scheme == "halfhalf" else {"slices": report.slices}
            same(ozaki.matmul(x, y, scheme=scheme, **slices), c)
            results.append(cp.asnumpy(c))
        found = []
        for i in (0, 1, 1, 0, 0, 2, 2, 0):
            x, y, _ = cases[i]
            with seen() as calls:
                same(results[i], ozaki.matmul(cp.asarray(x), cp.asarray(y)))
            found.append(way_of(calls))
        assert found == ["digits", others, "repeated", "digits", "repeated", others, "repeated", "digits"], found
        assert not held(*usual) and not held(*wide)
        on_device = [cp.asarray(x) for x in usual]
        _, report = ozaki.matmul(*on_device, workspace_limit=2**20, return_report=True)
        assert report.scheme == "digits"
        _, report = ozaki.matmul(*on_device, accuracy=ozaki.Accuracy("row-column", 1e-5), return_report=True)
        assert report.scheme == "digits"


def no_least_product(*arguments: Any) -> Evidence:
    """Evidence of a least product of zero, as for two rows that are nonzero at different inner indices."""
    return Evidence(least_product(*arguments).arrival, lambda _: 0.0)


def words_for_a_target(rng: np.random.Generator) -> None:
    """Words run where the operands of this call let them prove what is asked; else slices."""
    usual = [matrix(rng, (40, 300), "f4", 0) for _ in range(3)]
    b, wide = matrix(rng, (300, 50), "f4", 0), matrix(rng, (300, 250), "f4", 0)
    small, graded = usual[0].copy(), usual[0].copy()
    small[3, 7] *= np.float32(2.0**-40)  # adds next to nothing to the bound
    graded[:, ::2] *= np.float32(2.0**-70)  # too much for a sample to say what words lose
    # None near zero, which TF32 would lose parts of beside large ones.
    apart = tuple(np.copysign(abs(x) + np.float32(0.25), x) for x in (usual[0], b))
    apart[0][:, ::2] *= np.float32(2.0**-40)  # too much for FP16 where large elements meet small ones alone
    apart[1][1::2] *= np.float32(2.0**-40)
    with with_times(slices=1.0):
        got, found = [], []
        with mock.patch.object(proofs, "least_product", no_least_product):
            for a in (*usual[:2], small, graded, graded, usual[2]):
                out = cp.full((40, 50), np.nan, "f4")
                with seen() as calls:
                    ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, accuracy="fp32")
                found.append(way_of(calls))
                got.append((a, out))
            # A program of slices serves calls only while words prove too little.
            assert found == ["halfhalf", "repeated", "halfhalf", "residues", "repeated", "halfhalf"], found
            plan = ozaki.plan(cp.asarray(graded), cp.asarray(b), accuracy="fp32")
            assert not isinstance(plan.scheme, Words) and "tf32tf32 proves too little" in plan.why, plan
        found = []
        for a in (graded, usual[2], graded):  # the least product shows that words lose next to nothing
            out = cp.full((40, 50), np.nan, "f4")
            with seen() as calls:
                ozaki.matmul(cp.asarray(a), cp.asarray(b), out=out, accuracy="fp32")
            found.append(way_of(calls))
            same(ozaki.matmul(a, b, scheme="halfhalf"), out)
        assert found == ["halfhalf", "repeated", "repeated"], found
        tight: dict[str, Any] = {"accuracy": "fp32", "workspace_limit": 7 * 10**5}
        for scale in (1, 64):  # in panels
            x = wide * np.float32(scale)
            same(ozaki.matmul(b.T, x, scheme="halfhalf"), ozaki.matmul(cp.asarray(b.T), cp.asarray(x), **tight))
        for accuracy in ("fp32", 22, ozaki.Accuracy("row-column", 1e-5)):
            plan = ozaki.plan(cp.asarray(small), cp.asarray(b), accuracy=accuracy)
            assert plan.scheme == PRESETS["halfhalf"] and "proves what is asked" in plan.why, plan
            assert ozaki.plan(small, b, scheme="halfhalf", accuracy=accuracy).bound <= plan.bound < 6e-6
        for more in (25, 1e-7, "fp64"):  # more than words prove
            assert not isinstance(ozaki.plan(cp.asarray(a), cp.asarray(b), accuracy=more).scheme, Words)
        x, y = (cp.asarray(each) for each in apart)
        for _ in range(2):  # the second one may be repeated
            c, report = ozaki.matmul(x, y, accuracy="fp32", return_report=True)
            assert report.scheme == "tf32tf32" and "proves what is asked" in report.why, report
            assert componentwise_error(cp.asnumpy(c), *apart) <= report.bound <= 1.1 * 4 * 300**0.5 * 2.0**-24
            same(ozaki.matmul(*apart, scheme="tf32tf32"), ozaki.matmul(x, y, accuracy="fp32"))
    for a, c in got:
        method = {"accuracy": "fp32", "reproducible": True} if a is graded else {"scheme": "halfhalf"}
        same(ozaki.matmul(a, b, **method), c)


def plans_of_other_operands(rng: np.random.Generator) -> None:
    """A plan made from operands is proven anew for those of each product, no less sharply than for the first ones."""
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
                for repeated in range(2):
                    with seen() as calls:
                        same(c.get(), ozaki.matmul(left, y, plan=plan))
                    assert calls.repeated == repeated
            with seen() as calls:
                for _ in range(2):  # a program is kept for operands like these
                    with pytest.raises(ValueError, match=r"^plan: proves a componentwise error of"):
                        ozaki.matmul(cp.asarray(other), cp.asarray(against), plan=plan)
            assert (calls.long, calls.repeated) == (2, 0)
            with pytest.warns(UserWarning, match="plan: proves"):
                _, report = ozaki.matmul(cp.asarray(other), cp.asarray(against), plan=loose, return_report=True)
            assert report.bound > plan.target.tolerance
