"""The commands of the command line, and their help."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

import ozaki
from ozaki._cli import dgemm, files, judging, longley, picture, planning, trade_off, verdict
from ozaki._cli.devices import EXTRAS, backend_on, environment, pick_device, placed, places, recorded, to_host
from ozaki._cli.echo import printable
from ozaki._cli.ending import Commands
from ozaki._cli.grading.grading import grades
from ozaki._cli.grading.inputs import LEAST_SIZE, TESTS, inputs
from ozaki._cli.grading.measuring import measured
from ozaki._cli.grading.showing import show
from ozaki._cli.grading.ways import ways
from ozaki._cli.options import (
    Device,
    DeviceOption,
    DevicesOption,
    GpuOption,
    JsonOption,
    Left,
    Right,
    devices_of,
    options_of,
    parse_shape,
    refuse_beside_product,
    takes_options,
)
from ozaki._cli.printing import error_of, format_of, out, print_dgemm, print_json, print_longley, progress
from ozaki._cli.selftest import hash_on, published
from ozaki._cli.selftest.outcome import Bits, in_words
from ozaki._cli.selftest.products import PRODUCTS
from ozaki._cli.verify import sampled
from ozaki.call.operands import holds_complex
from ozaki.functions.on_devices import DevicesReport
from ozaki.records.accuracy import of_text
from ozaki.records.report import Report, ReportKind, bytes_in_words, rounded_up, several
from ozaki.records.shapes import shapes

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Matrix products to the accuracy you ask for, with a proven error bound.",
)


OUTPUT_HELP = (
    "Where the product goes: .npy, .npz, .mtx, .mtx.gz or .txt. A multiprecision one goes to .npz, or, as decimal "
    "digits, to .txt, which implies --dtype mp."
)


PRODUCT_HELP = (
    "A product that something else computed, a file as A: how accurate it is, and which accuracy of ozaki gives "
    "nearly all digits. It has to meet --accuracy, if that is given."
)


PLOT_HELP = (
    "Draw what each count of slices, and the native product, proves for A and B over the time that it would take, "
    "which is modelled, into a file (.png, .svg, .pdf)."
)


RELATIVE_HELP = "The report, and the largest error of an entry relative to itself that is proven."


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(ozaki.__version__)
        raise typer.Exit


@app.callback()
def of_all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Matrix products to the accuracy you ask for, with a proven error bound."""


@app.command()
def demo(
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Rows of the emulated DGEMM: 2000 on a CPU, 4096 on a GPU.")
    ] = None,
    device: DeviceOption = Device.auto,
    plot: Annotated[str | None, typer.Option("--plot", help="Draw both tables into a file (.png, .svg, .pdf).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Solve NIST's Longley regression by accurate products, and emulate DGEMM beside the native product."""
    if plot is not None:
        picture.check(plot)
    where = pick_device(device)
    size = size or dgemm.SIZES[where]
    data = longley.longley()
    solved, timed = [], []
    with progress(as_json, 8 + 1 + len(dgemm.REQUESTS)) as step:
        for solution in longley.solve_longley(data, where):
            solved.append(solution)
            step(solution.method)
        for product in dgemm.emulate_dgemm(size, where):
            timed.append(product)
            step(f"{size} x {size}, {product.name}")
    if plot is not None:
        picture.plot(solved, timed, size, plot)
    if as_json:
        print_json(
            {"device": where, "longley": [asdict(x) for x in solved], "size": size, "dgemm": [asdict(x) for x in timed]}
        )
        return
    print_longley(solved)
    print_dgemm(timed, size, where)
    if plot is not None:
        out.print(f"\nDrawn into {printable(plot)}", soft_wrap=True, markup=False)


@app.command()
@takes_options
def multiply(
    a: Left,
    b: Right,
    output: Annotated[str, typer.Option("--output", "-o", metavar="C", help=OUTPUT_HELP)],
    *,
    device: DeviceOption = Device.auto,
    devices: DevicesOption = None,
    report: Annotated[bool, typer.Option("--report", help="Print what ran and what is proven.")] = False,
    relative: Annotated[bool, typer.Option("--relative", help=RELATIVE_HELP)] = False,
    as_json: JsonOption = False,
    **given: Any,
) -> None:
    """Multiply two matrices in files."""
    if devices is not None and (relative or device is not Device.auto):
        raise ValueError(f"--devices beside {'--relative' if relative else '--device'}; remove one of them")
    files.check_writable(output)
    options = options_of({**given, "dtype": given["dtype"] or files.implied_dtype(output)})
    if options["dtype"] is not None:
        files.check_holds(output, options["dtype"])
    where = "cpu" if devices is not None else pick_device(device)
    with progress(as_json, 3) as step:
        x, y = files.read_operands(a, b, options["dtype"])
        files.check_writable(output, shapes(x.shape, y.shape).result)
        if options["dtype"] is None and (isinstance(x, ozaki.MPArray) or isinstance(y, ozaki.MPArray)):
            files.check_holds(output, "mp")
        if holds_complex(x) or holds_complex(y):
            files.check_holds(output, "complex128")
        step("multiplying")
        start = time.perf_counter()
        asked: Literal[True] | ReportKind = "relative" if relative else True
        account: Report | DevicesReport
        if devices is None:
            operands = placed(x, where), placed(y, where)
            c, account = ozaki.matmul(*operands, **options, progress=step.of_product, return_report=asked)
        else:
            names = devices_of(devices)
            c, account = ozaki.matmul(x, y, **options, devices=names, progress=step.of_product, return_report=True)
        c = to_host(c)
        seconds = time.perf_counter() - start
        step("writing")
        files.write(output, c)
        step("done")
    if as_json:
        shape = list(c.shape)
        facts = account.facts if isinstance(account, DevicesReport) else asdict(account)
        print_json({"output": output, "shape": shape, "dtype": format_of(c), "seconds": seconds, **facts})
    elif report or relative:
        out.print(
            f"{printable(output)}: {'x'.join(map(str, c.shape)) or 'a number'}, {format_of(c)}, {seconds:.3g} s",
            soft_wrap=True,
            markup=False,
        )
        out.print(str(account), soft_wrap=True, markup=False)


@app.command()
@takes_options
def plan(
    a: Annotated[str, typer.Argument(metavar="A", help="A file, or a shape as 4000x3000.")],
    b: Annotated[str, typer.Argument(metavar="B", help="A file, or a shape.")],
    *,
    device: DeviceOption = Device.auto,
    gpu: GpuOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="List every way that was weighed.")] = False,
    plot: Annotated[str | None, typer.Option("--plot", metavar="FILE", help=PLOT_HELP)] = None,
    steps: Annotated[bool, typer.Option("--steps", help="List the steps of the product.")] = False,
    as_json: JsonOption = False,
    **given: Any,
) -> None:
    """Print what a product would take: scheme, slices and bound, where it would run, why, and about how long."""
    if plot is not None:
        picture.check(plot)
    of_a, of_b = parse_shape(a), parse_shape(b)
    if plot is not None and (of_a is not None or of_b is not None):
        raise ValueError("--plot takes files, whose elements decide what is proven; remove it to plan shapes")
    options = options_of(given)
    model = None if gpu is None else recorded(gpu, device)
    where = "gpu" if model else pick_device(device)
    if of_a is not None and of_b is not None:
        options["dtype"] = options["dtype"] or "float64"
        planned = planning.of_shapes(of_a, of_b, options, where, model or backend_on(where))
    elif model is not None:
        raise ValueError("--gpu takes shapes such as 4096x4096; remove it to plan files")
    elif of_a is None and of_b is None:
        with progress(as_json, 1 + (plot is not None)) as step:
            x, y = (placed(each, where) for each in files.read_operands(a, b, options["dtype"]))
            backend = backend_on(where)
            planned = planning.of_operands(x, y, options, where, backend)
            step("planning")
            if plot is not None:
                trade_off.draw(trade_off.of_operands(x, y, options, planned, backend), plot)
                step("drawing")
    else:
        raise ValueError(f"expected two files or two shapes, got {a} and {b}")
    if as_json:
        print_json(planned.as_json())
    else:
        out.print(str(planned), soft_wrap=True, markup=False)
        if explain:
            out.print(planned.explained(), soft_wrap=True, markup=False)
        if steps:
            out.print(planned.steps, soft_wrap=True, markup=False)
        if plot is not None:
            out.print(f"Drawn into {printable(plot)}", soft_wrap=True, markup=False)


@app.command()
@takes_options
def verify(
    a: Left,
    b: Right,
    *,
    device: DeviceOption = Device.auto,
    product: Annotated[str | None, typer.Option("--product", metavar="C", help=PRODUCT_HELP)] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows to check.")] = 16,
    cols: Annotated[int, typer.Option("--cols", min=1, help="Columns to check.")] = 64,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which rows and columns.")] = 0,
    as_json: JsonOption = False,
    **given: Any,
) -> None:
    """Multiply, and check sampled entries against exact arithmetic; with --product C, check a product of yours.

    The exit code is 1 if the proven bound is broken; with --product, if C is
    not the product of A and B, misses --accuracy, or has NaN or Inf of its own.
    It is 1, too, if nothing was checked: if the product has no entries, or if
    every sampled entry over- or underflows or meets NaN or Inf of A or B.
    """
    options = options_of(given)
    if product is not None:
        refuse_beside_product(options, device)
        _verify_product(product, a, b, options["accuracy"], (rows, cols, seed), as_json)
        return
    where = pick_device(device)
    with progress(as_json, 3) as step:
        x, y = files.read_operands(a, b, options["dtype"])
        step("multiplying")
        operands = placed(x, where), placed(y, where)
        c, account = ozaki.matmul(*operands, **options, progress=step.of_product, return_report=True)
        step("checking")
        found = account.measure, rows, cols, seed, account.bound, account.exponent
        checked = sampled(to_host(c), x, y, *found)
        step("done")
    holds = checked.entries > 0 and (account.bound == math.inf or checked.error <= account.bound)
    if as_json:
        print_json({"holds": holds, **asdict(checked), "report": asdict(account)})
    else:
        out.print(str(account), soft_wrap=True, markup=False)
        if checked.skipped and checked.entries:
            out.print(f"{checked.skipped} sampled entries over- or underflow, or meet NaN or Inf: not checked")
        if not checked.entries:
            out.print(verdict.nothing_checked(checked.skipped), soft_wrap=True)
            raise typer.Exit(1)
        table = Table("measure", "entries", "error", "bound", "")
        judgement = "no bound to check" if account.bound == math.inf else "holds" if holds else "BROKEN"
        table.add_row(
            account.measure,
            str(checked.entries),
            error_of(checked.error, account.exponent),
            rounded_up(account.bound, account.exponent),
            judgement,
        )
        out.print(table)
    if not holds:
        raise typer.Exit(1)


def _verify_product(product: str, a: str, b: str, accuracy: Any, sample: tuple[int, int, int], as_json: bool) -> None:
    """Print a verdict on a product in a file; `sample` is how many rows and columns to check, and the seed."""
    with progress(as_json, 3) as step:
        x, y = (files.read(path, integers=True) for path in (a, b))
        c = files.read(product, integers=True, halves=False)  # judged by its format, of which nothing is known here
        expected = shapes(x.shape, y.shape).result
        if c.shape != expected:
            raise ValueError(f"--product: {product} has shape {c.shape}; the product of A and B has shape {expected}")
        step("checking")
        judged = judging.judge(c, x, y, accuracy, *sample)
        step("done")
    if as_json:
        print_json(verdict.as_json(judged, product))
    else:
        out.print(verdict.in_words(judged, printable(product)), soft_wrap=True, markup=False)
    if not judged.holds:
        raise typer.Exit(1)


@app.command()
def grade(
    *,
    accuracy: Annotated[str | None, typer.Option("--accuracy", help="As of other commands. Default: fp64.")] = None,
    scheme: Annotated[str, typer.Option("--scheme", help="auto, digits or residues.")] = "auto",
    slices: Annotated[int | None, typer.Option("--slices", help="A number of slices instead of an accuracy.")] = None,
    size: Annotated[
        list[int] | None,
        typer.Option("--size", min=LEAST_SIZE, help="Rows of the matrices; may be repeated. Default: 16, 64 and 256."),
    ] = None,
    of_complex: Annotated[bool, typer.Option("--complex", help="Multiply complex numbers.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random elements.")] = 0,
    device: DeviceOption = Device.auto,
    as_json: JsonOption = False,
) -> None:
    """Grade ozaki's product, and the native ones, by the tests of "How to grade the accuracy of the BLAS".

    Errors are measured against exact entries. Grade A: each is at most 5 n
    2^-52 of abs(A) abs(B), on all data, and grows no faster than n. B and C are
    for products that keep to this relative to the norms of rows and columns, or
    of matrices. The exit code is 1 if ozaki's product earns no A.
    """
    if scheme == "native":
        raise ValueError("--scheme: the native product is graded anyway; expected auto, digits or residues")
    sizes, where = sorted(set(size or (16, 64, 256))), pick_device(device)
    named = {} if slices is not None and accuracy is None else {"accuracy": of_text(accuracy or "fp64")}
    compared, found = ways(where, **named, scheme=scheme, slices=slices), []
    with progress(as_json, len(sizes) * len(TESTS)) as step:
        for n in sizes:
            for given in inputs(n, seed, of_complex):
                found += measured(given, compared)
                step(f"n = {n}, {given.test}")
    graded = grades(found)
    if as_json:
        print_json({"device": where, "grades": [asdict(x) for x in graded], "tests": [asdict(x) for x in found]})
    else:
        show(found, graded)
    if graded[0].grade != "A":
        raise typer.Exit(1)


@app.command(name="compile")
def compile_kernels(as_json: JsonOption = False) -> None:
    """Compile the kernels of common products for this machine's GPU, so that no product waits for the compiler."""
    pick_device(Device.gpu)
    from ozaki.backends.cupy.program.compiling import compile_common

    start, left = time.perf_counter(), compile_common()
    count = next(left)
    with progress(as_json, count) as step:
        for remaining in left:
            step(f"compiling, {remaining} left")
    seconds = time.perf_counter() - start
    if as_json:
        print_json({"kernels": count, "seconds": seconds})
    else:
        out.print(f"{count} kernels, {seconds:.3g} s")


@app.command()
def selftest(
    device: Annotated[
        Device, typer.Option("--device", help="Where to compute; auto takes the CPU and every GPU that there is.")
    ] = Device.auto,
    as_json: JsonOption = False,
) -> None:
    """Compute a fixed set of products, and compare their bits with published ones; exit code 1 if any differ."""
    known, where = published(), places(device)
    found = []
    with progress(as_json, len(where) * len(PRODUCTS)) as step:
        for place in where:
            bits = Bits(place.name, known)
            for product in PRODUCTS:
                bits.add(product, hash_on(place, product))
                step(f"{place.name}: {product.group}")
            found.append(bits)
    same = not any(bits.differing for bits in found)
    if as_json:
        print_json({"same": same, "ozaki": ozaki.__version__, "devices": [bits.as_json() for bits in found]})
    else:
        out.print(in_words(found), soft_wrap=True, markup=False)
    if not same:
        raise typer.Exit(1)


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Print versions, devices, engines, what is compiled for this processor, and where kernels of GPUs are kept."""
    found = environment()
    if as_json:
        print_json(found)
        return
    table = Table(show_header=False, box=None)
    for name, version in found["versions"].items():
        table.add_row(name, version or escape(f"not installed (pip install '.[{EXTRAS[name]}]' in a checkout)"))
    for index, gpu in enumerate(found["gpus"]):
        table.add_row(f"GPU {index}", f"{gpu['name']}, sm_{gpu['capability']}, {gpu['memory'] / 2**30:.0f} GiB")
    if not found["gpus"]:
        table.add_row(
            "GPU",
            "none" if found["versions"]["cupy"] else "none (needs CuPy: the extra cuda13 or cuda12)",
            end_section=True,
        )
    for backend, engines in found["engines"].items():
        table.add_row(f"engines on {backend}", ", ".join(engines))
    cpu, threads = found["cpu"], found["threads"]
    by = f", by {several(threads['ozaki'], 'thread')}" if cpu["code"] else ""
    table.add_row("int8 products", f"{escape(cpu['what'])}{by}")
    blas, cpus, most = threads["blas"], threads["cpus"], threads["blas_in_products"]
    lowered = f"; products by slices take {most}" if blas and blas > most else ""
    table.add_row("threads of BLAS", f"{blas or 'unknown'}, of a process that may use {several(cpus, 'CPU')}{lowered}")
    kernels = found["kernels"]
    held, most = (bytes_in_words(kernels[each]) for each in ("bytes", "most_bytes"))
    table.add_row("compiled kernels of GPUs", f"{held} of at most {most} in {escape(kernels['folder'])}")
    out.print(table)
