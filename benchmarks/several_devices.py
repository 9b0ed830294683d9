"""Products on the GPUs of one process beside one GPU: what checks the model's predictions for `devices=`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

import ozaki
from benchmarks.gpu_model import RESIDUES, of_devices
from benchmarks.measure import WrongAnswerError
from benchmarks.results import RESULTS
from ozaki.distributed.layouts import part_of

FOLDER = RESULTS / "devices"
"""Where results are kept."""

CALLS = 4
"""Timed calls, of which the fastest counts; one before them compiles kernels and compares bits."""

METHOD: dict[str, Any] = {"scheme": "residues", "slices": RESIDUES}

Row = dict[str, Any]


def measured(n: int, counts: Sequence[int]) -> list[Row]:
    """Seconds of an n x n product on each number of GPUs that there is, with those of the model.

    Raises
    ------
    WrongAnswerError
        If several GPUs give other bits than one.
    """
    import cupy as cp

    def on_host(strips: Any) -> Any:
        return np.concatenate([_on(strip.data.device_id, strip.get) for strip in strips])

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
    x, y = (_on(0, lambda: cp.asarray(a)), _on(0, lambda: cp.asarray(b)))
    want = _on(0, lambda: ozaki.matmul(x, y, **METHOD).get())
    one = fastest(lambda: ozaki.matmul(x, y, **METHOD), 1)
    rows: list[Row] = [{"devices": 1, "of": "matmul without devices=", "seconds": one}]
    print(rows[-1], flush=True)
    for count in counts:
        if count > cp.cuda.runtime.getDeviceCount():
            print(f"not run: {count} GPUs", flush=True)
            continue
        devices = list(range(count))
        rows_of = [_strip(cp, device, a[_part(n, device, count)]) for device in devices]
        cols_of = [_strip(cp, device, b[:, _part(n, device, count)]) for device in devices]
        of_shared, on_first = of_devices(n, count)
        ways: dict[str, tuple[Any, Any, float, Callable[[Any], Any]]] = {
            "shared out": (rows_of, cols_of, of_shared, on_host),
            "all on the first": (x, y, on_first, lambda c: _on(0, c.get)),
        }
        for name, (left, right, predicted, gathered) in ways.items():
            if not np.array_equal(gathered(_product(left, right, devices)), want):
                raise WrongAnswerError(f"{count} GPUs, {name}: other bits than one")
            seconds = fastest(partial(_product, left, right, devices), count)
            rows.append({
                "devices": count, "of": name, "seconds": seconds, "model": predicted,
                "times_one": one / seconds, "tflops": 2e-12 * n**3 / seconds,
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def _product(left: Any, right: Any, devices: list[int]) -> Any:
    return ozaki.matmul(left, right, devices=devices, **METHOD)


def fastest(call: Callable[[], Any], count: int) -> float:
    """Seconds of the fastest call, all GPUs at rest before and after it."""
    import cupy as cp

    times = []
    for _ in range(1 + CALLS):
        began = perf_counter()
        call()
        for device in range(count):
            cp.cuda.Device(device).synchronize()
        times.append(perf_counter() - began)
    return min(times[1:])


def _on(device: int, call: Callable[[], Any]) -> Any:
    import cupy as cp

    with cp.cuda.Device(device):
        return call()


def _strip(cp: Any, device: int, x: Any) -> Any:
    return _on(device, lambda: cp.asarray(np.ascontiguousarray(x)))


def _part(n: int, number: int, parts: int) -> slice:
    part = part_of(n, number, parts)
    return slice(part.start, part.stop)
