"""A product of each kind on a GPU, in less than a minute, compared with NumPy's bits; run it first on a new machine.

python3 -m tests.gpu.smoke
python3 tests/gpu/smoke.py

Each product is computed four times with other data, the third time on another stream. One line for each product says
how many calls a kept program served; the exit code is 1 if a result is wrong, or a call fails.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))  # for a checkout that is not installed

import cupy as cp
import numpy as np

import ozaki
from ozaki import reference
from ozaki.backends.cupy import devices, repeated
from ozaki.schemes import PRESETS

LARGE = 8192
"""Rows, inner indices and columns from which on residues are multiplied in Winograd's form."""

SHAPE = 300, 500, 200
"""m, k, n of most products."""


class WrongError(Exception):
    """A wrong result."""


def main() -> int:
    """Run all cases; return the exit code."""
    device = devices.current()
    print(f"{device.name}, compute capability {device.capability}, CuPy {cp.__version__}", flush=True)
    failed, start = [], time.perf_counter()
    for name, call in cases(device):
        began, error = time.perf_counter(), ""
        with counting() as counted:
            try:
                call()
                cp.cuda.Device().synchronize()
            except WrongError as wrong:
                error = str(wrong)
            except Exception as exception:
                traceback.print_exc()
                error = f"{type(exception).__name__}: {exception}"
        if error:
            failed.append(name)
        seconds = time.perf_counter() - began
        print(f"{name:<36} {error or 'ok':<8} {counted.describe():<22} {seconds:5.1f} s", flush=True)
    print(
        f"{len(failed)} failed{': ' if failed else ''}{', '.join(failed)}; {time.perf_counter() - start:.0f} s in all"
    )
    return int(bool(failed))


# What is run --------------------------------------------------------------------------------------------------------


def cases(device: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield names of cases, and functions that run them and raise `WrongError` if a result is wrong."""
    engines = ["cublas", "fused"] if device.family.fused else ["cublas"]
    for dtype in ("f4", "f8"):
        native = Case(dtype, {"scheme": "native"}, ("whole",), expected=lambda a, b, _: a @ b)
        yield f"native {dtype}", native.run
    for engine in engines:
        for scheme, slices, dtype in (("residues", 14, "f8"), ("residues", 7, "f4"), ("digits", 3, "f4")):
            options = {"scheme": scheme, "slices": slices, "engine": engine}
            yield f"{slices} {scheme} {dtype}, {engine}", Case(dtype, options, ("normal", "apart")).run
    for scheme, slices in (("digits", 7), ("fp16-digits", 8)):
        yield f"{slices} {scheme} f8", Case("f8", {"scheme": scheme, "slices": slices}).run
    if device.family.core is not None:
        for name in ("halfhalf", "tf32tf32", "single-bf16", "markidis"):
            words = replace(PRESETS[name], core=device.family.core)
            yield f"words {name}", Case("f4", {"scheme": words}, shape=(140, 300, 70), zeros_signed=False).run
    for accuracy, dtype in (("fp64", "f8"), ("fp32", "f4")):
        options = {"accuracy": accuracy, "reproducible": True}
        kinds = ("normal", "normal", "heavy", "whole")  # the last two have other plans
        yield f'accuracy="{accuracy}", reproducible', Case(dtype, options, kinds, shape=(300, 1400, 270)).run
        yield f'accuracy="{accuracy}"', Bounded(dtype, {"accuracy": accuracy}, 600).run
    options = {"accuracy": ozaki.Accuracy("row-column", 1e-14), "reproducible": True}
    yield "row-column 1e-14", Case("f8", options, ("normal", "apart")).run
    for dtype, size in (("f4", 1024), ("f8", 512)):
        yield f"nothing named {dtype}", Bounded(dtype, {}, size).run
    residues = {"scheme": "residues", "slices": 14}
    yield "prepared", Case("f8", residues, got=prepared).run
    yield "gemm", Case("f8", residues, expected=gemm_of_numpy, got=gemm).run
    yield "stack of both", Case("f8", residues, stacks=((3,), (3,))).run
    yield "stacks broadcast", Case("f4", {"scheme": "digits", "slices": 3}, stacks=((2, 1), (1, 2))).run
    yield (
        "stack, native",
        Case("f8", {"scheme": "native"}, ("whole",), stacks=((3,), ()), expected=lambda a, b, _: a @ b).run,
    )
    yield "panels under a limit", Case("f8", residues, shape=(700, 500, 650), got=in_panels).run
    yield (
        "proof in panels under a limit",
        Case("f8", {"accuracy": "fp64", "reproducible": True}, shape=(500, 300, 450), got=in_panels).run,
    )
    for engine in engines:
        options = residues | {"engine": engine}
        yield f"NaN and Inf, {engine}", Case("f8", options, ("normal", "nonfinite", "nonfinite", "normal")).run
    if LARGE and device.family.fused:
        yield f"residues at {LARGE}", winograd


@dataclass
class Case:
    """A product whose result must have the bits of NumPy's.

    Attributes
    ----------
    dtype : dtype of the operands
    options : options of `ozaki.matmul`
    kinds : kinds of data, as `drawn` takes them, used in turn
    shape : m, k, n
    stacks : batches of both operands
    zeros_signed : whether signs of zeros must agree
    expected : function of both operands and the options: the result by NumPy
    got : function of both operands and the options: a list of results on the device
    """

    dtype: str
    options: dict[str, Any]
    kinds: tuple[str, ...] = ("normal",)
    shape: tuple[int, int, int] = SHAPE
    stacks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    zeros_signed: bool = True
    expected: Callable[..., Any] = field(default=lambda a, b, options: ozaki.matmul(a, b, **options))
    got: Callable[..., Any] = field(default=lambda a, b, options: [ozaki.matmul(a, b, **options)])

    def run(self) -> None:
        """Four calls with other data, the third on another stream."""
        m, k, n = self.shape
        other = cp.cuda.Stream(non_blocking=True)
        rng = np.random.default_rng(0)
        for i in range(4):
            a, b = (
                drawn(rng, (*stack, *size), self.dtype, self.kinds[i % len(self.kinds)])
                for stack, size in zip(self.stacks, ((m, k), (k, n)), strict=True)
            )
            on_host = {name: of for name, of in self.options.items() if name != "engine"}
            with np.errstate(all="ignore"):
                expected = self.expected(a, b, on_host)
            x, y = cp.asarray(a), cp.asarray(b)
            cp.cuda.Device().synchronize()
            if i == 2:
                with other:
                    results = self.got(x, y, self.options)
                other.synchronize()
            else:
                results = self.got(x, y, self.options)
            for result in results:
                compare(f"call {i + 1}", expected, cp.asnumpy(result), self.zeros_signed)


@dataclass
class Bounded:
    """A square product, computed as the library chooses, whose error must not exceed what its plan proves."""

    dtype: str
    options: dict[str, Any]
    size: int

    def run(self) -> None:
        """Four calls with other data."""
        rng = np.random.default_rng(1)
        for i, kind in enumerate(("normal", "normal", "heavy", "normal")):
            a, b = (drawn(rng, (self.size, self.size), self.dtype, kind) for _ in "ab")
            x, y = cp.asarray(a), cp.asarray(b)
            c = cp.asnumpy(ozaki.matmul(x, y, **self.options))
            bound = ozaki.plan(x, y, **self.options).bound
            error = float(np.max(reference.componentwise_error(c[:3, :20], a[:3], b[:, :20])))
            if not (error <= bound and np.isfinite(c).all()):
                raise WrongError(f"call {i + 1}: error {error:.3g}, bound {bound:.3g}")


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: str) -> Any:
    """Random elements, by kind: N(0, 1), "apart": columns of other scales, "heavy": exp(3 N), "whole", "nonfinite"."""
    x = rng.standard_normal(shape)
    if kind == "apart":
        x = np.ldexp(x, rng.integers(-12, 13, shape[-1]))
    if kind == "heavy":
        x = np.exp(3 * x)
    if kind == "whole":
        x = np.rint(3 * x)
    if kind == "nonfinite":
        x.reshape(-1)[rng.integers(0, x.size, 4)] = [np.nan, np.inf, -np.inf, np.inf]
    return x.astype(dtype)


def prepared(a: Any, b: Any, options: dict[str, Any]) -> list[Any]:
    """Products with the left, the right, and both operands prepared."""
    plan = ozaki.plan(a.shape, b.shape, dtype=a.dtype.name, **options)
    left, right = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
    return [ozaki.matmul(x, y, plan=plan) for x, y in ((left, b), (a, right), (left, right))]


def gemm(a: Any, b: Any, options: dict[str, Any]) -> list[Any]:
    """gemm with an addend: into new memory, into the addend, and into every second column of an array."""
    c = cp.asarray(addend(a, b))
    wide = cp.full((c.shape[0], 2 * c.shape[1]), np.nan)
    into_c, into_columns = c.copy(), wide[:, ::2]
    outs = [None, into_c, into_columns]
    return [ozaki.gemm(-1.5, a, b, 0.7, into_c if out is into_c else c, out=out, **options) for out in outs]


def gemm_of_numpy(a: Any, b: Any, options: dict[str, Any]) -> Any:
    """The result of `gemm` by NumPy."""
    return ozaki.gemm(-1.5, a, b, 0.7, addend(a, b), **options)


def addend(a: Any, b: Any) -> Any:
    """A random addend in host memory, always the same for given shapes."""
    return np.random.default_rng(2).standard_normal((a.shape[0], b.shape[1]))


def in_panels(a: Any, b: Any, options: dict[str, Any]) -> list[Any]:
    """Products within a half and a third of the workspace of one without a limit, each with a report and without."""
    c, whole = ozaki.matmul(a, b, return_report=True, **options)
    results = [c]
    for part in (2, 3):
        limit = whole.workspace_bytes // part
        c, report = ozaki.matmul(a, b, workspace_limit=limit, return_report=True, **options)
        if report.workspace_bytes > limit:
            raise WrongError(f"{report.workspace_bytes} bytes of workspace, limit {limit}")
        results += [c, ozaki.matmul(a, b, workspace_limit=limit, **options)]
    return results


def winograd() -> None:
    """Winograd's form has the bits of cuBLAS's products, for two pairs of operands."""
    for seed in range(2):
        rng = cp.random.default_rng(seed)
        a, b = (rng.standard_normal((LARGE, LARGE), dtype="f8") for _ in "ab")
        options: dict[str, Any] = {"scheme": "residues", "slices": 14}
        _, report = ozaki.matmul(a, b, return_report=True, **options)
        c = ozaki.matmul(a, b, **options)
        if "Winograd" not in report.engine:
            raise WrongError(f"ran on {report.engine}")
        if not bool((c == ozaki.matmul(a, b, engine="cublas", **options)).all()):
            raise WrongError(f"call {seed + 1}: not the bits of cuBLAS's products")


# How it is judged ---------------------------------------------------------------------------------------------------


def compare(label: str, expected: Any, found: Any, zeros_signed: bool) -> None:
    """Raise `WrongError` unless all bits are the same; any NaN equals any other."""
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        raise WrongError(f"{label}: {found.dtype} {found.shape}, expected {expected.dtype} {expected.shape}")
    bits = f"i{expected.itemsize}"
    differ = np.ascontiguousarray(expected).view(bits) != np.ascontiguousarray(found).view(bits)
    differ &= ~(np.isnan(expected) & np.isnan(found))
    if not zeros_signed:
        differ &= ~((expected == 0) & (found == 0))
    if differ.any():
        at = tuple(int(i) for i in np.argwhere(differ)[0])
        values = f"{float(found[at]).hex()}, expected {float(expected[at]).hex()}"
        raise WrongError(f"{label}: {differ.sum()} of {differ.size} differ, first at {at}: {values}")


class counting:  # noqa: N801
    """Counts the calls within a `with` statement, and how many of them a kept program served."""

    def __enter__(self) -> counting:
        self.calls = self.answered = 0
        self._patch = mock.patch.object(repeated, "repeated", self._counted(repeated.repeated))
        self._patch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.stop()

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(call: Any) -> Any:
            found = function(call)
            self.calls += 1
            self.answered += found is not None
            return found

        return counted

    def describe(self) -> str:
        """The counts as a text for the line of a case."""
        return f"{self.answered} of {self.calls} repeated"


if __name__ == "__main__":
    sys.exit(main())
