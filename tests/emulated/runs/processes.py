"""Products of processes whose shares lie on GPUs, here threads that each have a device: the bits of NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from ozaki import distributed
from ozaki.backends.cupy import devices, parts
from ozaki.backends.cupy.steps.engines import winograd
from ozaki.distributed import BlockCyclic, ProcessGrid, Replicated, Slab, sharing
from ozaki.distributed.communicators.direct import Direct
from ozaki.distributed.communicators.threads import Threads, run
from ozaki.driver import works
from runs.device import held_bytes
from runs.operands import hard, matrix, same

PATIENCE = 300.0
"""Seconds that a thread waits for another, which may compile kernels for its emulated device meanwhile."""

METHODS: tuple[dict[str, Any], ...] = (
    {"scheme": "residues", "slices": 14},
    {"accuracy": "fp64"},
    {"accuracy": "exact"},
    {"accuracy": ozaki.Accuracy("row-column", 1e-12)},
    {"accuracy": ozaki.Accuracy("relative", 1e-9)},
)


def shared(x: np.ndarray, of: Any, communicator: Any) -> Any:
    """The share of this thread, on its device."""
    rows, cols = of.share(x.shape, communicator.rank, communicator.size)
    return distributed.array(cp.asarray(np.ascontiguousarray(x[np.ix_(rows, cols)])), of, communicator)


def shares_on_devices(rng: np.random.Generator) -> None:
    a, b = matrix(rng, (45, 60), "f8"), matrix(rng, (60, 37), "f8")
    a[3, 7], b[9, 2] = np.nan, np.inf
    c = matrix(rng, (45, 37), "f8")
    blocks = BlockCyclic(ProcessGrid((2, 1)), (4, 7))
    for of_a, of_b, of_c in ((Slab.X, Slab.Y, Slab.X), (Slab.Y, Slab.X, blocks), (blocks, Replicated(), Replicated())):
        for method in METHODS:

            def work(communicator: Any, of: Any = (of_a, of_b, of_c), method: Any = method) -> tuple[Any, ...]:
                with cp.cuda.Device(communicator.rank):
                    x, y = shared(a, of[0], communicator), shared(b, of[1], communicator)
                    found, report = distributed.matmul(x, y, of[2], return_report=True, **method)
                    data: Any = found.local.data
                    assert data.device_id == communicator.rank and report.nonfinite == 2
                    more = distributed.gemm(-1.5, x, y, 0.5, shared(c, of[2], communicator), **method)
                    return cp.asnumpy(found.gather()), cp.asnumpy(more.gather())

            want = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method)
            plus = ozaki.gemm(-1.5, a, b, 0.5, c, reproducible=True, inner_scaling=False, **method)
            for found, more in run(2, work, PATIENCE):
                same(want, found)
                same(plus, more)


def through_memory_of_the_host(rng: np.random.Generator) -> None:
    """Shares on GPUs of processes whose engine moves arrays of the host alone."""
    a, b = matrix(rng, (25, 60), "f8"), matrix(rng, (60, 17), "f8")

    def work(communicator: Any) -> Any:
        with cp.cuda.Device(communicator.rank):
            x, y = shared(a, Slab.X, communicator), shared(b, Slab.X, communicator)
            return cp.asnumpy(distributed.matmul(x, y, Slab.Y, scheme="residues", slices=14).gather())

    with mock.patch.object(Threads, "_start_on_gpu", Direct._start_on_gpu):
        for found in run(2, work, PATIENCE):
            same(ozaki.matmul(a, b, scheme="residues", slices=14), found)


def on_device(communicator: Any) -> Any:
    """The device of a thread, of which there are two."""
    return cp.cuda.Device(communicator.rank % 2)


def in_panels(size: int, a: np.ndarray, b: np.ndarray, c: np.ndarray, given: Any, **method: Any) -> None:
    """Compare a product and an expression of so many threads with those of one call, bit for bit."""

    def work(communicator: Any) -> tuple[Any, ...]:
        with on_device(communicator):
            x, y = shared(a, Slab.X, communicator), shared(b, Slab.Y, communicator)
            found, report = distributed.matmul(x, y, return_report=True, **given, **method)
            more = distributed.gemm(-1.5, x, y, 0.5, shared(c, Slab.Y, communicator), **given, **method)
            return cp.asnumpy(found.gather()), cp.asnumpy(more.gather()), report

    want, of_one = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, return_report=True, **method)
    plus = ozaki.gemm(-1.5, a, b, 0.5, c, reproducible=True, inner_scaling=False, **method)
    for found, more, report in run(size, work, PATIENCE):
        same(want, found)
        same(plus, more)
        assert report.sharing.layers == given.get("layers", report.sharing.layers), report
        assert "accuracy" not in method or report.bound == of_one.bound, (report, of_one)


def panels_on_devices(rng: np.random.Generator) -> None:
    """Panels of a few inner indices, in layers, of real operands."""
    a, b = hard(rng, 70, "f8")
    b = b[:35]
    c = matrix(rng, (41, 35), "f8")
    c[2, 3], c[5, 5] = np.nan, np.inf
    with mock.patch.object(sharing, "WIDTH", int(rng.choice([9, 16, 33]))), mock.patch.object(parts, "ROWS", 16):
        for size, layers, method in (
            (2, 1, {"scheme": "residues", "slices": 14}),
            (3, 3, {"scheme": "residues", "slices": 14}),
            (3, 1, {"scheme": "digits", "slices": 7}),
            (2, 2, {"scheme": "digits", "slices": 7}),
            (2, 2, {"accuracy": "fp64"}),
            (2, 1, {"accuracy": ozaki.Accuracy("normwise", 1e-11)}),
        ):
            in_panels(size, a, b.T, c, {"layers": layers}, **method)
        in_panels(2, a, b.T, c, {"layers": 2, "engine": "cublas"}, scheme="residues", slices=14)
        with np.errstate(over="ignore"):
            x, y = a[:19].astype("f4"), b.T.astype("f4")
        in_panels(2, x, y, c[:19].astype("f4"), {"layers": 2}, accuracy="fp32")
        in_panels(2, a[:19], y, c[:19], {"layers": 2}, scheme="residues", slices=12)


def panels_of_transposes(rng: np.random.Generator) -> None:
    """A matrix and its transpose, shared out in blocks, in digits for FP16, too; and formats of their own."""
    a = matrix(rng, (50, 23), "f8")
    blocks = BlockCyclic(ProcessGrid((3, 1)), (4, 7))
    methods: tuple[dict[str, Any], ...] = (
        {"scheme": "residues", "slices": 12, "dtype": "float32"},
        {"scheme": "digits", "slices": 5},
    )
    with mock.patch.object(sharing, "WIDTH", 11):
        for method in methods:

            def work(communicator: Any, method: Any = method) -> tuple[Any, ...]:
                with on_device(communicator):
                    x = shared(a, blocks, communicator)
                    grid = ProcessGrid((1, 1))
                    found = (
                        distributed.matmul(x.T, x, Slab.X, grid=grid, **method),
                        distributed.gemm(0.0, x, x.T, 1.0, distributed.matmul(x, x.T, **method), layers=3, **method),
                    )
                    return tuple(cp.asnumpy(each.gather()) for each in found)

            outer = ozaki.matmul(a, a.T, reproducible=True, **method)
            for inner, same_as_outer in run(3, work, PATIENCE):
                same(ozaki.matmul(a.T, a, reproducible=True, **method), inner)
                same(outer, same_as_outer)
        b, c = matrix(rng, (23, 30), "f8"), matrix(rng, (50, 30), "f8")
        in_panels(2, a, b, c, {"layers": 2}, scheme="fp16-digits", slices=7)


def single_panels(rng: np.random.Generator) -> None:
    """All of k in one panel, which is rounded at once, by whatever engine; many rows in several parts."""
    a, b = hard(rng, 70, "f8")
    c = matrix(rng, (41, 41), "f8")
    with mock.patch.object(parts, "ROWS", 16):
        for method in ({"scheme": "residues", "slices": 14}, {"scheme": "digits", "slices": 6}):
            in_panels(2, a, b.T, c, {"layers": 1}, **method)
        in_panels(1, a, b.T, c, {"layers": 1}, scheme="residues", slices=60)
        if "residues" in devices.current().family.fused:
            with mock.patch.object(winograd, "faster", return_value=True):
                in_panels(2, a, b.T, c, {"layers": 1, "engine": "fused"}, scheme="residues", slices=14)
                in_panels(2, a, b.T, c, {"layers": 2, "engine": "fused"}, scheme="residues", slices=14)
        in_panels(2, a + 0j, b.T + 1j, c + 0j, {"layers": 1}, scheme="residues", slices=12)


def panels_of_many_bits(rng: np.random.Generator) -> None:
    """Residues of several digits, and exact products without entries that are computed apart."""
    a, b = matrix(rng, (21, 50), "f8", 300), matrix(rng, (50, 18), "f8", 300)
    a[2, 5], b[7, 8] = np.inf, np.nan
    c = matrix(rng, (21, 18), "f8", 200)
    c[3, 3] = -np.inf
    with mock.patch.object(sharing, "WIDTH", 16), mock.patch.object(parts, "ROWS", 16):
        in_panels(2, a, b, c, {"layers": 2}, scheme="residues", slices=60)
        in_panels(2, a[:5], b[:, :6], c[:5, :6], {"layers": 2, "engine": "cublas"}, scheme="residues", slices=140)
        for x in (a, np.rint(a)):
            in_panels(2, np.ldexp(x, -250), b, c, {"layers": 2}, accuracy="exact")


def panels_of_complex(rng: np.random.Generator) -> None:
    """Complex residues, and digits, which are not multiplied in panels."""
    a, b = (matrix(rng, shape, "f8") + 1j * matrix(rng, shape, "f8") for shape in ((23, 40), (40, 30)))
    c = matrix(rng, (23, 30), "f8") + 1j * matrix(rng, (23, 30), "f8")
    a[1, 3], b[4, 5], c[2, 2] = np.nan, 1j * np.inf, np.inf
    with mock.patch.object(sharing, "WIDTH", 12), mock.patch.object(parts, "ROWS", 16):
        for size, layers in ((2, 1), (3, 3)):
            for method in ({"scheme": "residues", "slices": 14}, {"accuracy": "fp64"}):
                in_panels(size, a, b, c, {"layers": layers}, **method)
        x, y, z = (each.astype("c8") for each in (a, b, c))
        in_panels(2, x, y, z, {"layers": 2}, accuracy="fp32")


def panels_at_the_edges(rng: np.random.Generator) -> None:
    """Nothing, one row, one inner index, and fewer of these than layers."""
    with mock.patch.object(sharing, "WIDTH", 3):
        for m, k, n in ((5, 1, 4), (5, 2, 4), (1, 7, 1), (0, 5, 3), (4, 0, 3), (3, 5, 0), (1, 1, 1)):
            a, b, c = matrix(rng, (m, k), "f8"), matrix(rng, (k, n), "f8"), matrix(rng, (m, n), "f8")
            for given in ({"layers": 1}, {"layers": 3}, {}):
                in_panels(3, a, b, c, given, scheme="residues", slices=14)
                in_panels(3, a, b, c, given, accuracy="fp64")


def panels_within_limits(rng: np.random.Generator) -> None:
    """What processes hold on their devices beside their shares stays within a limit, or they say what it takes."""
    a, b, c = matrix(rng, (300, 900), "f8"), matrix(rng, (900, 310), "f8"), matrix(rng, (300, 310), "f8")
    a[3, 3], b[5, 5] = np.nan, np.inf
    for method, limits in (
        ({"scheme": "residues", "slices": 14}, (20 * 10**6, 8 * 10**6)),
        ({"scheme": "digits", "slices": 8}, (30 * 10**6, 12 * 10**6)),
        ({"accuracy": "fp64"}, (30 * 10**6,)),
    ):
        for layers, limit in (*((1, limit) for limit in limits), (2, limits[-1])):
            options = {"layers": layers, "workspace_limit": limit, **method}

            def work(communicator: Any, given: Any = options) -> Any:
                with on_device(communicator):
                    x, y = shared(a, Slab.X, communicator), shared(b, Slab.X, communicator)
                    with held_bytes() as held:
                        found, report = distributed.matmul(x, y, Slab.X, return_report=True, **given)
                    assert held.most <= given["workspace_limit"] + found.local.nbytes, (held.most, given)
                    more = distributed.gemm(2.0, x, y, 1.0, shared(c, Slab.X, communicator), **given)
                    with pytest.raises(ValueError, match=r"workspace_limit: leaves 1000 bytes"):
                        distributed.matmul(x, y, **given | {"workspace_limit": 1000})
                    return cp.asnumpy(found.gather()), cp.asnumpy(more.gather()), report.sharing

            want = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method)
            plus = ozaki.gemm(2.0, a, b, 1.0, c, reproducible=True, inner_scaling=False, **method)
            for found, more, shared_out in run(2, work, PATIENCE):
                same(want, found)
                same(plus, more)
                assert limit == limits[0] or shared_out.width < 900 or shared_out.blocks != (1, 1)


def refused_on_devices(rng: np.random.Generator) -> None:
    a = matrix(rng, (6, 6), "f8")

    def work(communicator: Any) -> bool:
        with cp.cuda.Device(communicator.rank):
            x = shared(a, Slab.X, communicator)
            for options, match in (
                ({"layers": 2, "engine": "fused", "scheme": "digits", "slices": 5}, "layers: engine='fused' rounds"),
                (
                    {"workspace_limit": 10**9, "engine": "fused", "scheme": "digits", "slices": 5},
                    "workspace_limit: engine='fused' rounds",
                ),
                ({"inner_scaling": True}, "inner_scaling: True is not"),
            ):
                with pytest.raises(NotImplementedError, match=match):
                    distributed.matmul(x, x, **options)
            plan = ozaki.plan(a, a, accuracy="fp64", reproducible=True)
            with pytest.raises(NotImplementedError, match="plan: with inner scaling is not"):
                distributed.matmul(x, x, plan=replace(plan, inner_scaling=True))
            with pytest.raises(ValueError, match="b: shares in host memory"):
                distributed.matmul(x, distributed.share_of(a, Slab.X, communicator))
            with pytest.raises(ValueError, match="b: shares on GPUs, but those of a in host memory"):
                distributed.matmul(distributed.share_of(a, Slab.X, communicator), x)
        return True

    assert all(run(2, work, PATIENCE))

    def alone(communicator: Any) -> bool:
        """What one GPU alone refuses is known to the other process at once, in its proof and in its panels."""
        with cp.cuda.Device(communicator.rank):
            x = shared(a, Slab.X, communicator)
            expected = NotImplementedError if communicator.rank == 1 else distributed.ProcessError
            for options in ({"accuracy": "fp64"}, {"scheme": "residues", "slices": 14, "workspace_limit": 10**9}):
                with pytest.raises(expected, match="no kernels here"):
                    distributed.matmul(x, x, **options)
        return True

    def refuse(self: Any, *of: Any) -> Any:
        if cp.cuda.runtime.getDevice() == 1:
            raise NotImplementedError("no kernels here")
        return real[type(self)](self, *of)

    real: dict[type, Any] = {works.Works: works.Works.measure, parts.Parts: parts.Parts.panel_bytes}
    with (
        mock.patch.object(works.Works, "measure", refuse),
        mock.patch.object(parts.Parts, "panel_bytes", refuse),
    ):
        assert all(run(2, alone, PATIENCE))


def current_devices(rng: np.random.Generator) -> None:
    """Shares on other devices than the current ones: computed where a lies; b on another one is refused."""
    a, b = matrix(rng, (25, 30), "f8"), matrix(rng, (30, 17), "f8")
    a = a + 1j * a[::-1]

    def work(communicator: Any) -> Any:
        with on_device(communicator):
            x, y = shared(a, Slab.X, communicator), shared(b + 0j, Slab.Y, communicator)
        with cp.cuda.Device(1 - communicator.rank):
            elsewhere = shared(b + 0j, Slab.Y, communicator)
            with pytest.raises(ValueError, match=f"a: on device {communicator.rank}, b: on device"):
                distributed.matmul(x, elsewhere, scheme="residues", slices=14)
            c = distributed.matmul(x, y, scheme="residues", slices=14)
            found, turned = c.gather(), x.conj().gather()
        with on_device(communicator):
            return cp.asnumpy(found), cp.asnumpy(turned)

    for found, turned in run(2, work, PATIENCE):
        same(ozaki.matmul(a, b + 0j, scheme="residues", slices=14), found)
        same(a.conj(), turned)
