"""The command line `ozaki`.

Exit codes: 0 fine, 1 a check failed, 2 bad usage or input.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import typer.core
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import ozaki
from ozaki import _demo, _files, _verify
from ozaki._operands import shapes
from ozaki._report import rounded_up

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


class Commands(typer.core.TyperGroup):
    """Commands whose errors about the input end in a line and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError, OSError, MemoryError, ModuleNotFoundError, NotImplementedError) as error:
            message = str(error) or type(error).__name__
            err.print(f"error: {message}", style="red", markup=False, soft_wrap=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Matrix products to the accuracy you ask for, with a proven error bound.",
)


def main() -> None:
    """Run the command line."""
    app()


# --- options -----------------------------------------------------------------


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


class Dtype(StrEnum):
    float32 = "float32"
    float64 = "float64"


AccuracyOption = Annotated[
    str | None,
    typer.Option(
        "--accuracy",
        help="fp32, fp64, dd, qd, a number of bits, a componentwise tolerance (1e-20, 2^-60), or MEASURE:TOLERANCE "
        "with componentwise, row-column or normwise. Default: what the native product gives.",
    ),
]
SchemeOption = Annotated[str, typer.Option("--scheme", help="auto, digits, residues, native, halfhalf, ...")]
SlicesOption = Annotated[int | None, typer.Option("--slices", help="Force the number of slices.")]
ReproducibleOption = Annotated[bool, typer.Option("--reproducible", help="Rule out the native product and words.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto takes a GPU if there is one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Left = Annotated[str, typer.Argument(metavar="A", help="A file: .npy, .npz (file.npz:name) or .mtx.")]
Right = Annotated[str, typer.Argument(metavar="B", help="A file, as A.")]


def parse_accuracy(text: str | None) -> ozaki.Accuracy | str | int | float | None:
    """Read an accuracy as it is typed."""
    if text is None:
        return None
    measure, colon, number = text.rpartition(":")
    power = re.fullmatch(r"2(?:\^|\*\*)(-?\d+)", number)
    value: str | int | float = _power(text, int(power[1])) if power else number
    if not power:
        for kind in (int, float):
            try:
                value = kind(number)
                break
            except ValueError:
                continue
    if not colon:
        return value
    if isinstance(value, str):
        raise ValueError(f"accuracy: {text!r}; expected MEASURE:TOLERANCE, as componentwise:1e-20")
    return ozaki.Accuracy(measure, float(value))  # type: ignore[arg-type]


def _power(text: str, exponent: int) -> float:
    if exponent > 1023:
        raise ValueError(f"accuracy: {text}; expected a tolerance that float64 holds")
    return math.ldexp(1.0, exponent)


def pick_device(device: Device) -> str:
    """Return "gpu" or "cpu"; an error says what a GPU would need."""
    if device is Device.cpu:
        return "cpu"
    if importlib.util.find_spec("cupy") is None:
        if device is Device.gpu:
            raise ModuleNotFoundError("device: a GPU needs CuPy: pip install 'ozaki[cuda13]' (or 'ozaki[cuda12]')")
        return "cpu"
    if gpus():
        return "gpu"
    if device is Device.gpu:
        raise ValueError("device: no GPU found; see `ozaki info`")
    return "cpu"


def gpus() -> int:
    """The number of GPUs that CuPy, which is there, can use."""
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


# --- commands ----------------------------------------------------------------


@app.command()
def demo(
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Rows of the emulated DGEMM: 2000 on a CPU, 4096 on a GPU.")
    ] = None,
    device: DeviceOption = Device.auto,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw both tables into a file (.png, .svg, .pdf).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Solve NIST's Longley regression by accurate products, and emulate DGEMM beside the native product."""
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError("--plot needs matplotlib: pip install 'ozaki[plot]'")
    where = pick_device(device)
    size = size or _demo.SIZES[where]
    data = _demo.longley()
    solved, timed = [], []
    with progress(as_json, 8 + 1 + len(_demo.REQUESTS)) as step:
        for solution in _demo.solve_longley(data, where):
            solved.append(solution)
            step(solution.method)
        for product in _demo.emulate_dgemm(size, where):
            timed.append(product)
            step(f"{size} x {size}, {product.name}")
    if plot is not None:
        _demo.plot(solved, timed, size, str(plot))
    if as_json:
        print_json(
            {"device": where, "longley": [asdict(x) for x in solved], "size": size, "dgemm": [asdict(x) for x in timed]}
        )
        return
    print_longley(solved)
    print_dgemm(timed, size, where)
    if plot is not None:
        out.print(f"\nDrawn into {plot}", soft_wrap=True, markup=False)


@app.command()
def multiply(
    a: Left,
    b: Right,
    output: Annotated[str, typer.Option("--output", "-o", metavar="C", help="Where the product goes.")],
    accuracy: AccuracyOption = None,
    scheme: SchemeOption = "auto",
    slices: SlicesOption = None,
    reproducible: ReproducibleOption = False,
    device: DeviceOption = Device.auto,
    report: Annotated[bool, typer.Option("--report", help="Print what ran and what is proven.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Multiply two matrices in files."""
    _files.check_writable(output)
    target = parse_accuracy(accuracy)
    xp = _demo.array_library(pick_device(device))
    with progress(as_json, 3) as step:
        x, y = (xp.asarray(_files.read(path)) for path in (a, b))
        _files.check_writable(output, shapes(x.shape, y.shape).result)
        step("multiplying")
        start = time.perf_counter()
        c, account = ozaki.matmul(
            x, y, accuracy=target, scheme=scheme, slices=slices, reproducible=reproducible, return_report=True
        )
        c = _demo.to_host(c)
        seconds = time.perf_counter() - start
        step("writing")
        _files.write(output, c)
        step("done")
    if as_json:
        print_json({"output": output, "shape": c.shape, "dtype": str(c.dtype), "seconds": seconds, **asdict(account)})
    elif report:
        out.print(
            f"{output}: {'x'.join(map(str, c.shape)) or 'a number'}, {c.dtype}, {seconds:.3g} s",
            soft_wrap=True,
            markup=False,
        )
        out.print(str(account), soft_wrap=True, markup=False)


@app.command()
def plan(
    a: Annotated[str, typer.Argument(metavar="A", help="A file, or a shape as 4000x3000.")],
    b: Annotated[str, typer.Argument(metavar="B", help="A file, or a shape.")],
    dtype: Annotated[Dtype | None, typer.Option("--dtype", help="With shapes.")] = None,
    accuracy: AccuracyOption = None,
    scheme: SchemeOption = "auto",
    slices: SlicesOption = None,
    reproducible: ReproducibleOption = False,
    device: DeviceOption = Device.auto,
    as_json: JsonOption = False,
) -> None:
    """Print the scheme and the number of slices that a product would take."""
    shapes = parse_shape(a), parse_shape(b)
    options: dict[str, Any] = {
        "accuracy": parse_accuracy(accuracy),
        "scheme": scheme,
        "slices": slices,
        "reproducible": reproducible,
    }
    if None not in shapes:
        chosen = ozaki.plan(*shapes, dtype=dtype or Dtype.float64, **options)
    elif shapes == (None, None):
        if dtype is not None:
            raise ValueError("dtype: files have their own; give it with shapes only")
        xp = _demo.array_library(pick_device(device))
        with progress(as_json, 1) as step:
            chosen = ozaki.plan(*(xp.asarray(_files.read(path)) for path in (a, b)), **options)
            step("planning")
    else:
        raise ValueError(f"expected two files or two shapes, got {a} and {b}")
    if as_json:
        names = ("shape", "batch", "dtype", "slices", "products", "bound", "a_priori", "engine", "why")
        method = "native" if chosen.scheme is None else chosen.scheme.name
        print_json(
            {**{name: getattr(chosen, name) for name in names}, "scheme": method, "target": asdict(chosen.target)}
        )
    else:
        out.print(str(chosen), soft_wrap=True, markup=False)


@app.command()
def verify(
    a: Left,
    b: Right,
    accuracy: AccuracyOption = None,
    scheme: SchemeOption = "auto",
    slices: SlicesOption = None,
    reproducible: ReproducibleOption = False,
    device: DeviceOption = Device.auto,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows to check.")] = 16,
    cols: Annotated[int, typer.Option("--cols", min=1, help="Columns to check.")] = 64,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which rows and columns.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Multiply, and check sampled entries against exact arithmetic; exit code 1 if the proven bound is broken."""
    target = parse_accuracy(accuracy)
    xp = _demo.array_library(pick_device(device))
    with progress(as_json, 3) as step:
        x, y = (_files.read(path) for path in (a, b))
        step("multiplying")
        c, account = ozaki.matmul(
            xp.asarray(x),
            xp.asarray(y),
            accuracy=target,
            scheme=scheme,
            slices=slices,
            reproducible=reproducible,
            return_report=True,
        )
        step("checking")
        checked = _verify.sampled(_demo.to_host(c), x, y, account.measure, rows, cols, seed)
        step("done")
    holds = account.bound == math.inf or checked.error <= account.bound
    if as_json:
        print_json({"holds": holds, **asdict(checked), "report": asdict(account)})
    else:
        out.print(str(account), soft_wrap=True, markup=False)
        if checked.skipped:
            out.print(f"{checked.skipped} sampled entries over- or underflow, or meet NaN or Inf: not checked")
        table = Table("measure", "entries", "error", "bound", "")
        verdict = "no bound to check" if account.bound == math.inf else "holds" if holds else "BROKEN"
        table.add_row(
            account.measure, str(checked.entries), rounded_up(checked.error), rounded_up(account.bound), verdict
        )
        out.print(table)
    if not holds:
        raise typer.Exit(1)


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Print versions, devices and engines."""
    found = environment()
    if as_json:
        print_json(found)
        return
    table = Table(show_header=False, box=None)
    for name, version in found["versions"].items():
        table.add_row(name, version or "not installed")
    for index, gpu in enumerate(found["gpus"]):
        table.add_row(f"GPU {index}", f"{gpu['name']}, sm_{gpu['capability']}, {gpu['memory'] / 2**30:.0f} GiB")
    if not found["gpus"]:
        table.add_row(
            "GPU",
            "none" if found["versions"]["cupy"] else escape("none (needs CuPy: pip install 'ozaki[cuda13]')"),
            end_section=True,
        )
    for backend, engines in found["engines"].items():
        table.add_row(f"engines on {backend}", ", ".join(engines))
    out.print(table)


def environment() -> dict[str, Any]:
    """Versions, devices and engines, as plain data."""
    packages = ("ozaki", "numpy", "mpmath", "scipy", "matplotlib")
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = ozaki.__version__ if package == "ozaki" else None
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    versions["blas"] = f"{blas['name']} {blas['version']}"
    versions["cupy"] = None
    devices: list[dict[str, Any]] = []
    from ozaki.backends import _numpy

    engines = {"numpy": list(_numpy.engines)}
    if importlib.util.find_spec("cupy") is not None:
        import cupy

        versions["cupy"] = cupy.__version__
        if gpus():
            from ozaki.backends import _cupy

            versions["cuda driver"], versions["cuda runtime"] = (
                f"{v // 1000}.{v % 1000 // 10}"
                for v in (cupy.cuda.runtime.driverGetVersion(), cupy.cuda.runtime.runtimeGetVersion())
            )
            engines["cupy"] = list(_cupy.engines)
            for index in range(gpus()):
                properties = cupy.cuda.runtime.getDeviceProperties(index)
                devices.append(
                    {
                        "name": properties["name"].decode(),
                        "capability": f"{properties['major']}{properties['minor']}",
                        "memory": properties["totalGlobalMem"],
                    }
                )
    return {"versions": versions, "gpus": devices, "engines": engines}


# --- printing ----------------------------------------------------------------


def print_longley(solved: list[_demo.Solved]) -> None:
    table = Table(
        "method", "residuals", "digits", "promised", title="Longley regression: correct digits of the worst coefficient"
    )
    for row in solved:
        promised = "" if row.promised is None else f"{row.promised:.1f}"
        table.add_row(row.method, row.product, f"{row.digits:.1f}", promised)
    out.print(table)
    out.print(
        "Digits are counted against the exact solution, which rounds to NIST's certified values. Promised: what the\n"
        "error bound of the residuals allows at worst.\n",
        soft_wrap=True,
    )


def print_dgemm(timed: list[_demo.Timed], size: int, device: str) -> None:
    table = Table(
        "accuracy",
        "ran",
        "error",
        "proven",
        "rms error",
        "ms",
        title=f"float64, {size} x {size}, on the {device.upper()}",
    )
    for row in timed:
        errors = (rounded_up(x) for x in (row.error, row.bound, row.rms))
        table.add_row(row.name, row.what, *errors, f"{1000 * row.seconds:.1f}")
    out.print(table)
    out.print("Componentwise errors against exact entries, 16 rows by 200 columns. The report of fp64:\n")
    (report,) = (row.report for row in timed if row.name == "fp64")
    out.print(report, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(plain(value), allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Return what JSON can hold: Inf and NaN become null."""
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def progress(silent: bool, steps: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal's standard error; yields a function that takes one step."""
    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=err, transient=True, disable=silent or not err.is_terminal) as bar:
        task = bar.add_task("", total=steps)
        yield lambda text: bar.update(task, advance=1, description=text)


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Return the shape that a word like 4000x3000 names; None for any other word."""
    if not re.fullmatch(r"\d+(x\d+)*", text) or Path(text).exists():
        return None
    return tuple(map(int, text.split("x")))
