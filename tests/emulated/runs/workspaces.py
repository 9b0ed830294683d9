"""Memory: panels within a limit, and what is held."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
from ozaki.backends.cupy.engines import _cublas, _hopper, _hopper_tiles

import ozaki
from ozaki.backends.cupy import _choice as _engines
from ozaki.backends.cupy import backend as _cupy
from ozaki.schemes import Digits, Residues, Scheme
from runs.operands import matrix, same


def within_limits(rng: np.random.Generator) -> None:
    """The own kernel in panels, where what it keeps aside leaves room for them; else cuBLAS, in smaller ones."""
    a, b = matrix(rng, (40, 260), "f4"), matrix(rng, (260, 50), "f4")
    with mock.patch.object(_engines, "FROM", 1):
        for scheme in (Residues(3), Digits(2)):
            options: dict[str, Any] = {"scheme": scheme.name, "slices": scheme.count}
            expected = ozaki.matmul(a, b, **options)
            enough = 2 * _engines.workspace_of(_hopper, scheme, 260, 1, 256, 384)
            for limit, engine in ((enough, _hopper), (enough - 1, _cublas)):
                given = {"workspace_limit": limit, "return_report": True, **options}
                c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), **given)
                same(expected, c)
                assert report.engine.endswith(engine.label) and report.workspace_bytes <= limit, (report, limit)
    a, b = matrix(rng, (300, 26), "f4"), matrix(rng, (26, 270), "f4")
    for limit, name in ((10**5, "residues"), (10**5, "digits"), (25 * 10**4, "halfhalf")):  # which take several
        options = {"scheme": name} | ({} if name == "halfhalf" else {"slices": 3, "engine": "cublas"})
        whole = ozaki.matmul(cp.asarray(a), cp.asarray(b), **options)
        for limited, calls in ((limit, 2), (10**9, 1)):  # panels are never done from the tape
            with (
                mock.patch.object(_cupy, "_take", side_effect=_cupy._take) as take,
                mock.patch.object(_cupy, "product", side_effect=_cupy.product) as product,
            ):
                for _ in range(2):
                    c = ozaki.matmul(cp.asarray(a), cp.asarray(b), workspace_limit=limited, **options)
                    same(whole.get(), c)
            assert (take.call_count > 4) == (limited == limit) and product.call_count == calls, (scheme, limited)
        plan = ozaki.plan(a.shape, b.shape, dtype="float32", workspace_limit=limit, **options)
        for times in (1, 8):  # the exponents of panels are not those of the call before
            left, right = (
                ozaki.prepare(cp.asarray(a), "left", plan),
                ozaki.prepare(cp.asarray(times * b), "right", plan),
            )
            same((times * whole).get(), ozaki.matmul(left, right, plan=plan))


def panels(rng: np.random.Generator) -> None:
    """No panel takes more than the limit: the last ones are smaller, but multiplied in more parts of k."""
    with mock.patch.object(_hopper_tiles, "cluster_blocks", return_value=132):
        for m, k, n in rng.integers((300, 1000, 300), (3000, 9000, 30000), (100, 3)).tolist():
            scheme = Residues(int(rng.choice((7, 14))))
            size = partial(_engines.workspace_of, _hopper, scheme, k, 1)
            limit = int(size(m, n) * rng.uniform(0.2, 1)) + size(*_engines.units_of(_hopper, scheme, k))
            rows, cols = _engines._panel(0, _hopper, scheme, k, 1, m, n, limit)
            for r, c in itertools.product(range(0, m, rows), range(0, n, cols)):
                assert size(min(rows, m - r), min(cols, n - c)) <= limit, (scheme, m, k, n, limit)


def workspaces(rng: np.random.Generator) -> None:
    """What is expected is held: once for a batch that is multiplied one by one, and of digits kept aside at most."""
    a, b = matrix(rng, (3, 40, 260), "f4"), matrix(rng, (3, 260, 50), "f4")
    schemes: tuple[Scheme, ...] = (Residues(3), Digits(4))
    for scheme, engine in itertools.product(schemes, ("cublas", "hopper")):
        options: dict[str, Any] = {"scheme": scheme.name, "slices": scheme.count, "engine": engine}
        _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True, **options)
        module = {"cublas": _cublas, "hopper": _hopper}[engine]
        expected = _engines.workspace_of(module, scheme, 260, 3, 40, 50)
        at_most = isinstance(scheme, Digits) and engine == "hopper"
        assert report.workspace_bytes == expected or (at_most and report.workspace_bytes < expected), (scheme, engine)
        given = {"workspace_limit": expected, **options}
        same(
            ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count),
            ozaki.matmul(cp.asarray(a), cp.asarray(b), **given),
        )


def planned_within_limits(rng: np.random.Generator) -> None:
    """In parts, whose proofs come to the plan that is made without a limit, level by level, and hold no more."""
    for k, spread in ((70, 3), (1100, 3), (40, 60)):
        a, b = matrix(rng, (70, k), "f8", spread), matrix(rng, (k, 40), "f8", spread)
        a[:, 5:] *= rng.random((70, k - 5)) < 0.5
        for accuracy in ("fp64", ozaki.Accuracy("row-column", 1e-15)):
            options: dict[str, Any] = {"accuracy": accuracy, "reproducible": True}
            expected, whole = ozaki.matmul(a, b, return_report=True, **options)
            limit = max(
                _cupy.proof_workspace(level, (1, size, k), (1, size, k))
                for level, size in (("sampled", 30), ("narrow", 30), ("wide", 12))
            )
            with mock.patch.object(_cupy, "some_rows", side_effect=_cupy.some_rows) as parts:
                c, report = ozaki.matmul(
                    cp.asarray(a), cp.asarray(b), workspace_limit=max(limit, 10**6), return_report=True, **options
                )
                plan = ozaki.plan(cp.asarray(a), cp.asarray(b), workspace_limit=limit, **options)
            same(expected, c)
            assert (plan.scheme, plan.bound) == (ozaki.plan(a, b, **options).scheme, whole.bound), (k, accuracy)
            assert report.workspace_bytes <= max(limit, 10**6)
            assert parts.call_count > 2 or whole.measure != "componentwise"
