"""Memory: panels within a limit, what is held, and what reports say of it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy import repeated as kept
from ozaki.backends.cupy.steps.engines.choice import cublas_engine, fused_engine, panel_of
from ozaki.backends.cupy.steps.engines.engine import units_of, workspace_of
from ozaki.backends.cupy.steps.proof import proof_workspace
from ozaki.records.accuracy import Accuracy
from ozaki.records.plan import Plan
from ozaki.schemes import Digits, Residues
from ozaki.schemes.constants import KernelScheme
from runs.device import in_place_of_the_device, seen
from runs.operands import matrix, same


class Held:
    """Bytes of workspace that are allocated: now, and at most at any time."""

    now = most = 0

    def add(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


@contextmanager
def held_bytes() -> Iterator[Held]:
    """Count the device memory that calls allocate as workspace within a `with` statement."""
    held, alloc = Held(), cp.cuda.alloc

    def allocated(size: int) -> Any:
        memory = alloc(size)
        held.add(size)
        weakref.finalize(memory, held.add, -size).atexit = False
        return memory

    with mock.patch.object(cp.cuda, "alloc", allocated):
        yield held


def of_rows(m: int, n: int) -> int:
    """Bytes that do not count as workspace: some for each row and column, and small buffers."""
    return 256 * (m + n) + 2**16


def within_limits(rng: np.random.Generator) -> None:
    """The fused engine runs in panels if the limit leaves room for one; else cuBLAS, in smaller panels."""
    a, b = matrix(rng, (40, 260), "f4"), matrix(rng, (260, 50), "f4")
    here = devices.current()
    assert here.family.tiles is not None
    tiles = replace(here.family.tiles, smallest=1)
    small = replace(here, family=replace(here.family, tiles=tiles))
    with in_place_of_the_device(small):
        for scheme in (Residues(3), Digits(2)):
            options: dict[str, Any] = {"scheme": scheme.name, "slices": scheme.count}
            expected = ozaki.matmul(a, b, **options)
            own, cublas = fused_engine(small, scheme), cublas_engine(small, scheme)
            enough = 2 * workspace_of(own, scheme, 260, 1, 256, 384)
            for limit, label in ((enough, own.label), (enough - 1, cublas.label)):
                given = {"workspace_limit": limit, "return_report": True, **options}
                c, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), **given)
                same(expected, c)
                assert report.engine.endswith(label) and report.workspace_bytes <= limit, (report, limit)
    a, b = matrix(rng, (300, 26), "f4"), matrix(rng, (26, 270), "f4")
    for limit, name in ((10**5, "residues"), (10**5, "digits"), (25 * 10**4, "halfhalf")):  # of several panels
        options = {"scheme": name} | ({} if name == "halfhalf" else {"slices": 3, "engine": "cublas"})
        whole = ozaki.matmul(cp.asarray(a), cp.asarray(b), **options)
        for limited in (limit, 10**9):
            for repeated in range(2):
                with seen() as calls, held_bytes() as held:
                    c = ozaki.matmul(cp.asarray(a), cp.asarray(b), workspace_limit=limited, **options)
                same(whole.get(), c)
                assert calls.repeated == repeated
                splits = sum(name.startswith(("split", "tops_split")) for name in calls.names)
                assert (splits > 4) == (limited == limit) and splits >= 2, (name, limited, splits)
                assert held.most <= limited + of_rows(300, 270), (name, limited, held.most)
        plan = ozaki.plan(a.shape, b.shape, dtype="float32", workspace_limit=limit, **options)
        for times in (1, 8, 1):  # other shared exponents than in the call before
            left, right = (
                ozaki.prepare(cp.asarray(a), "left", plan),
                ozaki.prepare(cp.asarray(times * b), "right", plan),
            )
            same((times * whole).get(), ozaki.matmul(left, right, plan=plan))


def panels(rng: np.random.Generator) -> None:
    """No panel takes more than the limit, the last ones included: they are smaller, but may have more parts of k."""
    engine = fused_engine(devices.of("90", multiprocessors=132, shared_memory=233472), Residues(14))
    for m, k, n in rng.integers((300, 1000, 300), (3000, 9000, 30000), (100, 3)).tolist():
        scheme = Residues(int(rng.choice((7, 14))))
        size = partial(workspace_of, engine, scheme, k, 1)
        limit = int(size(m, n) * rng.uniform(0.2, 1)) + size(*units_of(engine, scheme, k))
        target = Accuracy("row-column", 0.5)
        plan = Plan((m, k, n), (), "float64", scheme, target, inf, inf, True, workspace_limit=limit)
        rows, cols = panel_of(engine, plan, (1, m, n))
        for r, c in itertools.product(range(0, m, rows), range(0, n, cols)):
            assert size(min(rows, m - r), min(cols, n - c)) <= limit, (scheme, m, k, n, limit)


def workspaces(rng: np.random.Generator) -> None:
    """Calls hold as many bytes as `workspace_of` says; fused digits may hold fewer."""
    a, b = matrix(rng, (3, 40, 260), "f4"), matrix(rng, (3, 260, 50), "f4")
    schemes: tuple[KernelScheme, ...] = (Residues(3), Digits(4))
    for scheme, name in itertools.product(schemes, ("cublas", "fused")):
        options: dict[str, Any] = {"scheme": scheme.name, "slices": scheme.count, "engine": name}
        engine = (cublas_engine if name == "cublas" else fused_engine)(devices.current(), scheme)
        expected = workspace_of(engine, scheme, 260, 3, 40, 50)
        at_most = isinstance(scheme, Digits) and name == "fused"
        for limit in (None, expected):
            for _ in range(2):
                with held_bytes() as held:
                    c = ozaki.matmul(cp.asarray(a), cp.asarray(b), workspace_limit=limit, **options)
                same(ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count), c)
                assert held.most <= expected + of_rows(3 * 40, 3 * 50), (scheme, name, held.most)
                assert held.most >= expected or at_most, (scheme, name, held.most)
            assert held.now == 0
        with held_bytes() as held:
            _, report = ozaki.matmul(cp.asarray(a), cp.asarray(b), return_report=True, **options)
        assert report.workspace_bytes == expected or (at_most and report.workspace_bytes < expected), (scheme, name)
        assert report.workspace_bytes <= held.most <= report.workspace_bytes + of_rows(3 * 40, 3 * 50)


def planned_within_limits(rng: np.random.Generator) -> None:
    """Within a limit proofs run in panels, hold no more, and lead to the plan that is made without a limit."""
    for k, spread in ((70, 3), (1100, 3), (40, 60)):
        a, b = matrix(rng, (70, k), "f8", spread), matrix(rng, (k, 40), "f8", spread)
        a[:, 5:] *= rng.random((70, k - 5)) < 0.5
        x, y = cp.asarray(a), cp.asarray(b)
        for accuracy in ("fp64", ozaki.Accuracy("row-column", 1e-15)):
            options: dict[str, Any] = {"accuracy": accuracy, "reproducible": True}
            expected, whole = ozaki.matmul(a, b, return_report=True, **options)
            limit = max(
                proof_workspace(devices.current(), level, (1, size, k), (1, size, k), 1)
                for level, size in (("sampled", 30), ("narrow", 30), ("wide", 12))
            )
            most = max(limit, 10**6)
            for _ in range(2):
                with held_bytes() as held:
                    same(expected, ozaki.matmul(x, y, workspace_limit=most, **options))
                assert held.most <= most + of_rows(70, 40), (k, accuracy, held.most, most)
            with seen() as product, held_bytes() as held:
                c, report = ozaki.matmul(x, y, workspace_limit=most, return_report=True, **options)
            same(expected, c)
            assert report.workspace_bytes <= most and held.most <= report.workspace_bytes + of_rows(70, 40)
            with seen() as proof, held_bytes() as held:
                plan = ozaki.plan(x, y, workspace_limit=limit, **options)
            assert held.most <= limit + of_rows(70, 40), (k, accuracy, held.most, limit)
            assert (plan.scheme, plan.bound) == (ozaki.plan(a, b, **options).scheme, whole.bound), (k, accuracy)
            copies = (product.names + proof.names).count("copy")  # the descriptions of the rows of panels are copied
            in_one_launch = "stack_facts" in proof.names and "magnitudes" not in proof.names  # without any workspace
            assert copies > 2 or whole.measure != "componentwise" or in_one_launch, (k, copies)
        kept.forget()
