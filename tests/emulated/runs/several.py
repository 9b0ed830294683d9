"""Products on several devices, and through one whose memory holds a part of them alone: the bits of NumPy."""

from __future__ import annotations

import ctypes
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import cupy_on_numpy
import gpus
import ozaki
import streams
from benchmarks import several_devices as timed
from ozaki.backends.cupy import peers
from ozaki.backends.cupy.steps.engines import cublas_residues
from ozaki.devices import blocks, product
from ozaki.functions import on_devices, products
from runs.operands import hard, matrix, same

METHODS: tuple[dict[str, Any], ...] = ({"scheme": "residues", "slices": 14}, {"accuracy": "fp64"})


def of_blocks(rows: int, cols: int) -> Any:
    """A context in which blocks have at most so many rows and columns."""
    return mock.patch.dict(blocks.LARGEST, dict.fromkeys(blocks.LARGEST, (rows, cols)))


def several_devices(rng: np.random.Generator) -> None:
    """Operands on the host, on either device or on both, and the result where it is asked for."""
    a, b = matrix(rng, (70, 90), "f8"), matrix(rng, (90, 50), "f8")
    of_complex = a[:30] + 1j * a[40:], b + 1j * b[::-1]
    with of_blocks(16, 12):
        for method in METHODS:
            want = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method)
            for x, y in ((a, b), (on(0, a), on(0, b)), (on(0, a), on(1, b)), (on(1, a), b)):
                for devices in ("all", [1, 0], 1, "cuda:0"):
                    c, report = ozaki.matmul(x, y, devices=devices, return_report=True, **method)
                    assert type(c) is type(x) and device_of(c) == device_of(x)
                    same(want, on_host(c))
                    assert sum(last - first for first, last in (each.rows for each in report.devices)) == 70
            out = np.full((70, 50), np.nan)
            assert ozaki.matmul(on(0, a), on(1, b), out, devices="all", **method) is out
            same(want, out)
            with cp.cuda.Device(1):
                out = cp.full((50, 70), np.nan).T  # not contiguous
            with ozaki.recording() as run:
                ozaki.matmul(on(0, a), b, out, devices="all", **method)
            same(want, on_host(out))
            assert [each.count for each in run.account.entries] == [1], run
            with pytest.raises(ValueError, match="out: shares memory with a"):
                ozaki.matmul(a, b, a[:, :50], devices="all", **method)
        same(
            ozaki.matmul(*of_complex, scheme="residues", slices=14),
            ozaki.matmul(*of_complex, devices="all", scheme="residues", slices=14),
        )
        x, y = hard(rng, 40, "f8")
        want = ozaki.matmul(x, y.T, accuracy="fp64", reproducible=True, inner_scaling=False)
        same(want, on_host(ozaki.matmul(on(1, x), y.T, devices="all", accuracy="fp64")))


def through_one_device(rng: np.random.Generator) -> None:
    """Operands larger than what a device has left, through blocks; smaller ones, where it has less than it says."""
    a, b = matrix(rng, (700, 60), "f8"), matrix(rng, (60, 900), "f8")
    want = ozaki.matmul(a, b, scheme="residues", slices=14)
    seen: list[blocks.Blocks] = []

    def cut(*arguments: Any) -> blocks.Blocks:
        seen.append(blocks.blocks_of(*arguments))
        return seen[-1]

    with mock.patch("ozaki.devices.product.blocks_of", cut), mock.patch.object(cupy_on_numpy, "room", [5 * 10**6]):
        out = np.full((700, 900), np.nan)
        ozaki.matmul(a, b, out, devices=0, scheme="residues", slices=14)
        same(want, out)
        assert seen[-1].count > 2, seen
        calls: list[Any] = []
        ozaki.matmul(a, b, devices=0, scheme="residues", slices=14, progress=lambda *of: calls.append(of))
        assert calls[-1] == (seen[-1].count, seen[-1].count, "blocks"), calls
    with mock.patch.object(cupy_on_numpy, "room", [10**4]), pytest.raises(MemoryError, match="device 0: 9000 bytes"):
        ozaki.matmul(a, b, devices=0, scheme="residues", slices=14)
    failures = iter([True, False, True])
    lock = threading.Lock()
    prepare = products._FUNCTIONS.prepare

    def out_of_memory(*arguments: Any) -> Any:
        with lock:
            fails = next(failures, False)
        if fails:
            raise cp.cuda.memory.OutOfMemoryError
        return prepare(*arguments)

    functions = products._FUNCTIONS._replace(prepare=out_of_memory)
    with mock.patch.object(products, "_FUNCTIONS", functions):
        c, report = ozaki.matmul(a, b, devices=0, scheme="residues", slices=14, return_report=True)
    same(want, c)
    assert report.devices[0].smaller == 2 and "halved 2 times" in str(report), report
    with of_blocks(200, 100):
        failures = iter([False] * 5 + [True] + [False] * 9 + [True])
        with mock.patch.object(products, "_FUNCTIONS", functions):
            c, report = ozaki.matmul(
                on(0, a), on(1, b), devices="all", scheme="residues", slices=14, return_report=True
            )
        same(want, on_host(c))
        assert sum(each.smaller for each in report.devices) == 2, report


def given_plans(rng: np.random.Generator) -> None:
    """A plan from other operands is proven for these, and its bound is that of one device."""
    a, b = matrix(rng, (30, 40), "f8"), matrix(rng, (40, 20), "f8")
    graded = np.ldexp(a, np.arange(40) * 20)
    for strict in (True, False):
        plan = ozaki.plan(a, b, accuracy=1e-14, reproducible=True, inner_scaling=False, strict=strict)
        for x, y in ((graded, b), ([on(0, graded[:11]), on(1, graded[11:])], on(1, b))):
            if strict:
                with pytest.raises(ValueError, match="plan: proves a componentwise error of"):
                    ozaki.matmul(x, y, devices="all", plan=plan)
                continue
            with pytest.warns(UserWarning, match="plan: proves a componentwise error of"):
                c, report = ozaki.matmul(x, y, devices="all", plan=plan, return_report=True)
            with pytest.warns(UserWarning, match="plan: proves a componentwise error of"):
                want, of_one = ozaki.matmul(graded, b, plan=plan, return_report=True)
            same(want, np.concatenate([on_host(strip) for strip in c]) if isinstance(c, list) else c)
            assert report.bound == of_one.bound > plan.bound


def refused_of_devices(rng: np.random.Generator) -> None:
    """What is not for devices is named before anything is computed."""
    a, b = matrix(rng, (9, 7), "f8"), matrix(rng, (7, 5), "f8")
    method: dict[str, Any] = {"scheme": "residues", "slices": 14}
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", workspace_limit=10**9, **method)
    read_only, all_of_it = np.zeros((9, 5)), np.zeros((9, 5))
    read_only.setflags(write=False)
    masked = np.ma.masked_array(a, a > 0)
    for x, y, out, given, error, match in (
        (masked, b, None, method, TypeError, "a: masked elements"),
        ([a[:4], masked[4:]], b, None, method, TypeError, "a: masked elements"),
        ([], b, None, method, ValueError, "a: no strips"),
        (a, b, read_only, method, ValueError, "out: is read-only"),
        (a, b, np.broadcast_to(np.zeros(5), (9, 5)), method, ValueError, "out: elements share"),
        (a, b, [all_of_it[:5], all_of_it[4:8]], method, ValueError, "out: strips share memory"),
        (a, b, "c", method, TypeError, "out: str"),
        (a, b, [0.0, 1.0], method, TypeError, "out: float"),
        (a, b, None, method | {"workspace_limit": 10**9}, NotImplementedError, "workspace_limit: not for devices="),
        (a, b, None, {"plan": plan}, NotImplementedError, "workspace_limit: not for devices="),
        (a, b, None, method | {"inner_scaling": True}, NotImplementedError, "inner_scaling: True is not"),
        (a, b, None, method | {"dtype": "f4"}, NotImplementedError, "dtype: 'float32' of float64 operands"),
        (a.astype("f2"), b.astype("f2"), None, {}, TypeError, r"a: dtype float16 .*\(a.astype\('float32'\) is exact"),
        (a.astype("f2"), b.astype("f2"), None, {"accuracy": "fp16"}, ValueError, "devices: .* give a and b as float32"),
    ):
        with pytest.raises(error, match=match):
            ozaki.matmul(x, y, out, devices="all", **given)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "b")
        b.tofile(path)
        mapped, again = (np.memmap(path, "f8", mode, shape=(7, 5)) for mode in ("r", "r+"))
        with pytest.raises(ValueError, match="out: shares memory with b"):
            ozaki.matmul(a[:7], mapped, again, devices="all", **method)
    nothing = ozaki.matmul(on(1, a[:, :0]), on(0, b[:0]), devices="all", **method)
    same(np.zeros((9, 5)), on_host(nothing))
    same(ozaki.matmul(a.astype("f4"), b, **method), ozaki.matmul(a.astype("f4"), b, devices=0, dtype="f8", **method))
    empty = ozaki.matmul([a[:0], a[:0]], b, devices="all", **method)
    assert [strip.shape for strip in empty] == [(0, 5)] * 2


def memory_of_blocks(rng: np.random.Generator) -> None:
    """What blocks take of a device's memory is no more than what they were cut for.

    The int32 sums of cuBLAS, here those of one modulus, lie in the tenth that a room leaves free.
    """
    a, b = matrix(rng, (512, 128), "f8"), matrix(rng, (128, 512), "f8")
    taken, of_cublas = blocks.Room(0, 8, 15), 4 * 128 * 128

    def not_kept(*arguments: Any) -> blocks.Blocks:
        return replace(blocks.blocks_of(*arguments), keeps=False)

    where: blocks.Where
    for where, x, y in (("device", on(0, a), on(0, b)), ("host", a, b)):
        one_modulus = mock.patch.object(cublas_residues, "_ACCUMULATORS", of_cublas)
        with of_blocks(128, 128), mock.patch.object(product, "blocks_of", not_kept), one_modulus:
            before = gpus.most[1] = gpus.held[1]
            ozaki.matmul(x, y, devices=[1], scheme="residues", slices=14)
        most = blocks._held(128, 128, 512, 128, taken, False) + of_cublas
        assert gpus.most[1] - before <= most, where


def interrupted(rng: np.random.Generator) -> None:
    """A caller who interrupts the product while it waits for other devices: these have ended when he knows."""
    started: list[threading.Thread] = []
    begun = threading.Event()
    multiply = products._FUNCTIONS.multiply

    class Thread(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            if self not in started:
                started.append(self)
                begun.wait()
                raise KeyboardInterrupt
            super().join(timeout)

    def slow(*arguments: Any) -> Any:
        if isinstance(threading.current_thread(), Thread):
            begun.set()
            time.sleep(0.02)
        return multiply(*arguments)

    a, b, out = matrix(rng, (80, 20), "f8"), matrix(rng, (20, 90), "f8"), np.zeros((80, 90))
    with (
        of_blocks(8, 9),
        mock.patch.object(product, "threading", SimpleNamespace(**vars(threading) | {"Thread": Thread})),
        mock.patch.object(products, "_FUNCTIONS", products._FUNCTIONS._replace(multiply=slow)),
        pytest.raises(KeyboardInterrupt),
    ):
        ozaki.matmul(a, b, out, devices="all", scheme="residues", slices=14)
    assert started and not any(thread.is_alive() for thread in started)
    assert not out[40:].all(), "nothing was left to compute"


def interrupted_at_the_end(rng: np.random.Generator) -> None:
    """A caller who interrupts the wait for the last blocks: they have been sent when he knows."""
    a, b = matrix(rng, (80, 20), "f8"), matrix(rng, (20, 90), "f8")
    want = ozaki.matmul(a, b, scheme="residues", slices=14)
    finish, synchronize = peers.Mover.finish, streams.Stream.synchronize
    ending = threading.local()

    def finished(mover: Any) -> None:
        ending.first = threading.current_thread() is threading.main_thread()
        finish(mover)

    def synchronized(stream: Any) -> None:
        synchronize(stream)
        if getattr(ending, "first", False):
            ending.first = False
            raise KeyboardInterrupt

    with cp.cuda.Device(1):
        out = cp.zeros((80, 90))
    on_host(out)
    with (
        of_blocks(32, 32),
        mock.patch.object(peers.Mover, "finish", finished),
        mock.patch.object(streams.Stream, "synchronize", synchronized),
        mock.patch.object(streams, "_others_first"),
        pytest.raises(KeyboardInterrupt),
    ):
        ozaki.matmul(on(0, a), on(0, b), out, devices="all", scheme="residues", slices=14)
    same(want[:40], out.view(np.ndarray)[:40])


def forgotten_copies(rng: np.random.Generator) -> None:
    """Columns that another device still reads, when the one that lent them has no memory left for them."""
    b = matrix(rng, (20, 12), "f8")
    cols = range(12)
    for _ in range(8):
        copies = product.Copies([b], [[]])
        with cp.cuda.Device(1):
            lender = peers.Mover(1)
            lent = lender.bring(*copies.take(cols, 1))
        copies.add(cols, lent.array, lent.events, 1)
        with cp.cuda.Device(0):
            reader = peers.Mover(0)
            found = reader.bring(*copies.take(cols, 0))
        del lent
        copies.forget(1)
        with cp.cuda.Device(1):
            lender.finish()
        with cp.cuda.Device(0):
            reader.finish()
            same(b, on_host(found.ready()))


def strides_of_operands(rng: np.random.Generator) -> None:
    """Operands and results of one device whose rows lie apart, backwards, over one another, or across; on another."""
    a, b = matrix(rng, (40, 60), "f8"), matrix(rng, (60, 50), "f8")
    window = np.lib.stride_tricks.sliding_window_view(matrix(rng, (99,), "f8"), 60)
    views = [
        a[:, ::-1],
        a[::-1],
        a[::-1, ::-1],
        a[1:2],
        a[::2, :60],
        a.T[:40].T,
        window,
        np.broadcast_to(a[3], a.shape),
    ]
    views += [np.broadcast_to(a[:, 3:4], a.shape), np.broadcast_to(a[:1, :1], (1, 60)), a[:, :1], a[:0]]
    with of_blocks(16, 32):
        for number, x in enumerate(views):
            y = b[: x.shape[1]]
            want = ozaki.matmul(x, y, scheme="residues", slices=14)
            device, (m, n) = number % 2, want.shape
            left, right = viewed(device, x), viewed(device, y[:, ::-1])[:, ::-1]
            assert left.strides == x.strides
            for devices in ([1 - device], [0, 1]):
                same(want, on_host(ozaki.matmul(left, right, devices=devices, scheme="residues", slices=14)))
            swapped = ozaki.matmul(right.T, left.T, devices=[1 - device], scheme="residues", slices=14)
            same(ozaki.matmul(y.T, x.T, scheme="residues", slices=14), on_host(swapped))
            with cp.cuda.Device(device):
                wider, taller, apart = (cp.zeros(shape) for shape in ((m, n + 9), (n, m), (m, 2 * n)))
            for out in (wider[:, 4:-5], taller.T, apart[::-1, ::-2]):
                ozaki.matmul(left, right, out, devices=[1 - device], scheme="residues", slices=14)
                same(want, on_host(out))
            assert not on_host(wider)[:, :4].any() and not on_host(wider)[:, -5:].any()


def viewed(device: int, x: Any) -> Any:
    """A view of memory of a device with the strides and the elements of an array."""
    low, high = np.lib.array_utils.byte_bounds(x) if x.size else (0, 8)
    whole = np.zeros((high - low) // 8)
    first = (x.ctypes.data - low) // 8 if x.size else 0
    np.lib.stride_tricks.as_strided(whole[first:], x.shape, x.strides)[...] = x
    there = on(device, whole)
    return np.lib.stride_tricks.as_strided(there[first:], x.shape, x.strides, subok=True)


def unfinished_memory(rng: np.random.Generator) -> None:
    """Memory of the result that work of the caller's stream still writes, and strips that are put together late."""
    a, b = matrix(rng, (30, 40), "f8"), matrix(rng, (40, 20), "f8")
    want = ozaki.matmul(a, b, scheme="residues", slices=14)
    for x, y, device in ((a, b, 0), (a, b, 1), (on(0, a), b, 1), (on(1, a), on(0, b), 0)):
        with cp.cuda.Device(device):
            out = cp.empty((30, 20))
            cp.cuda.runtime.memsetAsync(out.data.ptr, 0, out.nbytes, cp.cuda.get_current_stream().ptr)
        ozaki.matmul(x, y, out, devices=[0, 1], scheme="residues", slices=14)
        same(want, on_host(out))
    with mock.patch.object(cp, "concatenate", concatenated_later):
        same(a, on_devices._gathered([a[:13], on(1, a[13:])], 0, 0))
        same(b, on_devices._gathered([on(0, b[:, :9]), on(1, b[:, 9:])], 1, 0))


def concatenated_later(arrays: Any, axis: int) -> Any:
    """cupy.concatenate, by the current stream when it reaches it."""
    shape = list(arrays[0].shape)
    shape[axis] = sum(each.shape[axis] for each in arrays)
    made = cp.empty(shape, arrays[0].dtype)
    into = made.view(np.ndarray)
    parts = [(each.shape, each.dtype, each.data.ptr, each.strides) for each in arrays]

    def concatenate() -> None:
        read = []
        for of, dtype, address, steps in parts:
            reach = dtype.itemsize + sum((size - 1) * step for size, step in zip(of, steps, strict=True))
            read.append(np.ndarray(of, dtype, (ctypes.c_char * reach).from_address(address), 0, steps))
        np.concatenate(read, axis, out=into)

    streams.give(streams.own(), concatenate)
    return made


def nothing_to_multiply(rng: np.random.Generator) -> None:
    """No inner indices, no rows, no columns: results on devices that are not the current one."""
    method: dict[str, Any] = {"scheme": "residues", "slices": 14}
    for m, k, n in ((7, 0, 5), (0, 3, 5), (7, 3, 0), (0, 0, 0)):
        a, b = np.ones((m, k)), np.ones((k, n))
        for x, y in ((a, b), (on(1, a), on(0, b)), (a, on(1, b))):
            for devices in ("all", [1, 0], 1):
                same(a @ b, on_host(ozaki.matmul(x, y, devices=devices, **method)))
        strips = [on(1, a), on(0, a)]
        found = ozaki.matmul(strips, [on(0, b)], devices=[1, 0], **method)
        assert [device_of(strip) for strip in found] == [1, 0]
        same(np.concatenate([a @ b] * 2), np.concatenate([on_host(strip) for strip in found]))
        out = [on(1, np.full((m, n), np.nan)), on(0, np.full((m, n), np.nan))]
        assert ozaki.matmul(strips, [on(0, b)], out, devices=[1, 0], **method) is out
        same(np.concatenate([a @ b] * 2), np.concatenate([on_host(strip) for strip in out]))


def refused_strips(rng: np.random.Generator) -> None:
    """Results that are not the strips of the product."""
    a, b = np.ones((5, 3)), np.ones((3, 4))
    method: dict[str, Any] = {"scheme": "residues", "slices": 14}
    strips = [on(0, a), on(1, a[:0])]
    for out in ([np.ones((3, 4)), np.ones((2, 4))], [np.ones((0, 4)), np.ones((5, 4))]):
        with pytest.raises(ValueError, match="out: shape"):
            ozaki.matmul(strips, [b], out, devices=[0, 1], **method)
    with pytest.raises(ValueError, match="out: 1 strips; expected 2"):
        ozaki.matmul(strips, [b], [np.ones((5, 4))], devices=[0, 1], **method)
    read_only = np.ones((5, 4))
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="out: is read-only"):
        ozaki.matmul(a, b, read_only, devices=[0, 1], **method)


def command_line(rng: np.random.Generator) -> None:
    """`ozaki multiply --devices`."""
    from ozaki._cli.commands import app

    with tempfile.TemporaryDirectory() as folder:
        a, b, c = (str(Path(folder, f"{name}.npy")) for name in "abc")
        x, y = matrix(rng, (30, 20), "f8"), matrix(rng, (20, 25), "f8")
        np.save(a, x)
        np.save(b, y)
        want = ozaki.matmul(x, y, accuracy="fp64", reproducible=True, inner_scaling=False)
        for devices in ("all", "1", "cuda:0,1"):
            words = ["multiply", a, b, "-o", c, "--accuracy", "fp64", "--devices", devices, "--json"]
            app(words, standalone_mode=False)
            same(want, np.load(c))


def measured(rng: np.random.Generator) -> None:
    """The benchmark of several devices, which compares bits itself."""
    found = timed.measured(30, (1, 2, 4))
    assert [(row["devices"], row["of"]) for row in found[1:]] == [
        (count, name) for count in (1, 2) for name in ("shared out", "all on the first")
    ]
    assert all(row["seconds"] > 0 for row in found)


def strips_of_devices(rng: np.random.Generator) -> None:
    """Operands and result shared out: strips of rows of A and C, of columns of B, one on each device."""
    a, b = matrix(rng, (33, 40), "f8"), matrix(rng, (40, 21), "f8")
    for method in METHODS:
        want = ozaki.matmul(a, b, reproducible=True, inner_scaling=False, **method)
        x, y = [on(0, a[:20]), on(1, a[20:])], [on(0, b[:, :9]), on(1, b[:, 9:])]
        c = ozaki.matmul(x, y, devices=[0, 1], **method)
        assert [device_of(strip) for strip in c] == [0, 1]
        same(want, np.concatenate([on_host(strip) for strip in c]))
        out = [on(0, np.zeros((20, 21))), on(1, np.zeros((13, 21)))]
        assert ozaki.matmul(x, y, out, devices=[0, 1], **method) is out
        same(want, np.concatenate([on_host(strip) for strip in out]))
        plan = ozaki.plan(a, b, reproducible=True, inner_scaling=False, **method)
        same(want, np.concatenate([on_host(strip) for strip in ozaki.matmul(x, y, devices=[0, 1], plan=plan)]))


def on(device: int, x: Any) -> Any:
    with cp.cuda.Device(device):
        return cp.asarray(x)


def on_host(x: Any) -> Any:
    if not is_on_device(x):
        return x
    with cp.cuda.Device(x.data.device_id):
        return cp.asnumpy(x)


def device_of(x: Any) -> int | None:
    return x.data.device_id if is_on_device(x) else None


def is_on_device(x: Any) -> bool:
    return isinstance(x, cp.ndarray)
