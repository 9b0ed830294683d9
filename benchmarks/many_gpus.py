"""Predictions for many GPUs, and how far one bears them out: `python -m benchmarks.many_gpus [--check | --measure]`.

It writes the tables of docs/explanation/many_gpus.md, from the model in benchmarks/gpu_model.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import distributed, host_operands, row_files, several_devices
from benchmarks import gpu_model as model
from benchmarks.devices import device_of
from benchmarks.readme import replaced
from benchmarks.results import ROOT, git_commit, newest_of_devices, slug
from ozaki.distributed.sharing import shared_out

DOCUMENT = ROOT / "docs" / "explanation" / "many_gpus.md"

COUNTS = (1, 2, 4, 8, 64, 1024)
SIZES = (32768, 65536, 131072, 262144, 1_000_000)

OF_LAYERS = ((16384, 2**20, 16384), (131072, 131072, 131072))
"""Shapes, (m, k, n), of the table of layers."""

MOST_LAYERS = 64

STRIPS, WINOGRAD_FROM = 32768, model.WINOGRAD_FROM
"""n of the table of one process, and the least rows, inner indices and columns of Strassen-Winograd."""


def main(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if the page is stale.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Only time the GPUs of this host beside the model.")
    ] = False,
    n: Annotated[int, typer.Option(min=1, help="Rows and columns of what is timed.")] = 32768,
    output: Annotated[
        Path, typer.Option(help="Folder for what was timed.", show_default="benchmarks/results/devices")
    ] = several_devices.FOLDER,
) -> None:
    """Put the tables into the page."""
    if measure:
        measure_devices(n, output)
        return
    old = DOCUMENT.read_text(encoding="utf-8")
    new = with_tables(old)
    if check and new != old:
        typer.echo(f"stale: {DOCUMENT}; run `python -m benchmarks.many_gpus`", err=True)
        raise typer.Exit(1)
    DOCUMENT.write_text(new, encoding="utf-8")


def measure_devices(n: int, output: Path) -> None:
    """Time products on 1, 2, 4 and 8 GPUs of this host, as many as there are, and write a result file."""
    where, now = device_of("gpu"), datetime.now(UTC)
    result = {
        "date": now.isoformat(timespec="seconds"),
        "commit": git_commit(),
        "device": where.name,
        "versions": where.versions(),
        "n": n,
        "rows": several_devices.measured(n, COUNTS[:4]),
    }
    path = output / f"{now:%Y-%m-%d-%H%M}-{slug(where.name)}.json"
    row_files.write(path, result)
    print(path)


def with_tables(text: str) -> str:
    """The page with the tables between its markers replaced."""
    for name, table in TABLES.items():
        text = replaced(text, table(), f"<!-- {name}:begin -->", f"<!-- {name}:end -->")
    return text


def constants() -> str:
    """What the model is made of."""
    of, quadrants = model.kernels(), model.kernels(winograd=True)
    files = f"`benchmarks/results/{model.FILES[model.DEVICE]}`, n = {model.SIZE}"
    assumed = "not measured yet"
    return _table([
        ["what", "one H200", "where from"],
        ["describe an element", _pico(of.describe), files],
        ["split an element into 14 residues; for Strassen-Winograd",
         f"{_pico(of.split)}; {_pico(quadrants.split)}", "the same"],
        ["slice products", f"{of.operations / 1e12:.0f}; {quadrants.operations / 1e12:.0f} TOPS", "the same"],
        ["round an entry", f"{_pico(of.recombine)}; {_pico(quadrants.recombine)}", "the same"],
        ["add another part of k to an entry", _pico(of.add), f"{assumed}: 42 bytes at copy bandwidth, a floor"],
        ["NVLink, received by NCCL", _rate(model.NVLINK), "measured: all-gather on two H100, 225 to 254"],
        ["NVLink, received by copy engines", _rate(model.PEER), "measured: rows of a wider matrix, between two H200"],
        ["InfiniBand, received", _rate(model.INFINIBAND), f"{assumed}: 400 Gbit/s a GPU, as [built]({BASEPOD})"],
        ["PCIe, received from the host's memory", _rate(model.PCIE), "measured: `benchmarks/host_operands.py`"],
        ["post a message", f"{1e6 * model.MESSAGE:.0f} µs", f"{assumed}: a guess"],
        ["memory that a product may take", f"{model.MEMORY * model.LARGEST_PART / 1e9:.0f} GB",
         f"0.9 of {model.MEMORY / 1e9:.0f} GB: a guess"],
    ])  # fmt: skip


BASEPOD = "https://docs.nvidia.com/dgx-basepod/reference-architecture-infrastructure-foundation-enterprise-ai/latest/core-components.html"


def one_gpu() -> str:
    """The model beside what was measured on one GPU."""
    lines = [["device", "n", "measured, ms", "model, ms", "model / measured"]]
    for device in model.SPEEDS:
        for n, seconds in model.measured(device).items():
            found = model.on_one((n, n, n), model.kernels(device, n >= WINOGRAD_FROM))
            ratio = f"{found / seconds:.2f}"
            lines.append([device, str(n), f"{1e3 * seconds:.3g}", f"{1e3 * found:.3g}", ratio])
    return _table(lines)


def one_process() -> str:
    """`devices=` on the GPUs of one host."""
    lines = [["GPUs", "shared out, s", "TFLOP/s", "times one", "all on the first, s", "TFLOP/s", "times one"]]
    one = model.on_one((STRIPS,) * 3, model.kernels(winograd=True))
    for count in (2, 4, 8):
        found = model.of_devices(STRIPS, count)
        lines.append([str(count), *(
            cell
            for seconds in found
            for cell in (f"{seconds:.3f}", f"{2e-12 * STRIPS**3 / seconds:.0f}", f"{one / seconds:.2f}")
        )])  # fmt: skip
    return _table(lines)


def measured_devices() -> str:
    """`devices=` as measured, beside the model."""
    lines = [["device", "n", "GPUs", "where", "measured, s", "model, s", "TFLOP/s", "times one"]]
    for result in newest_of_devices(several_devices.FOLDER):
        for row in result["rows"]:
            if "model" in row:
                lines.append([
                    result["device"], str(result["n"]), str(row["devices"]), row["of"], f"{row['seconds']:.3f}",
                    f"{row['model']:.3f}", f"{row['tflops']:.0f}", f"{row['times_one']:.2f}",
                ])  # fmt: skip
    return _table(lines)


def many() -> str:
    """Square products on many GPUs."""
    fastest = max(2e-12 * n**3 / seconds for n, seconds in model.measured().items())
    lines = [[
        "n", "GPUs", "tiles x layers", "blocks", "memory of a GPU", "time", "without overlap", "TFLOP/s",
        "of linear", "products", "most is", "link needed, GB/s",
    ]]  # fmt: skip
    for n in SIZES:
        for count in COUNTS:
            found = _predicted((n, n, n), count)
            (rows, cols), (of_rows, of_cols) = found.sharing.grid.shape, found.sharing.blocks
            host = ", from hosts" if found.from_host else ""
            lines.append([
                str(n), str(count), f"{rows} x {cols} x {found.sharing.layers}", f"{of_rows} x {of_cols}",
                f"{found.held / 1e9:.0f} GB{host}", _time(found.seconds), _time(found.apart), f"{found.tflops:.0f}",
                f"{found.tflops / count / fastest:.2f}", f"{found.multiply / found.seconds:.0%}", found.limit,
                "" if count == 1 and not found.from_host else f"{found.needed / 1e9:.0f}",
            ])  # fmt: skip
    return _table(lines)


def layers() -> str:
    """Products by other numbers of layers."""
    numbers = [2**i for i in range(MOST_LAYERS.bit_length())]
    lines = [["(m, k, n)", "GPUs", *(f"{number}" for number in numbers), "taken"]]
    for shape in OF_LAYERS:
        for count in COUNTS[3:]:
            cells = [
                _time(model.predict(shape, count, shared_out(shape, count, layers=number)).seconds)
                if number <= count
                else ""
                for number in numbers
            ]
            lines.append([str(shape), str(count), *cells, str(shared_out(shape, count).layers)])
    return _table(lines)


def processes() -> str:
    """Processes on one machine beside one, as measured."""
    lines = [[
        "machine", "product", "processes", "tiles", "times one, by time passed", "by time computed",
        "received, MB, most", "model",
    ]]  # fmt: skip
    for result in newest_of_devices(distributed.FOLDER):
        for row in result["rows"]:
            lines.append([
                result["device"], f"({row['m']} x {row['k']}) ({row['k']} x {row['n']})", str(row["processes"]),
                " x ".join(map(str, row["grid"])), f"{row['seconds_times_one']:.2f}",
                f"{row['computing_times_one']:.2f}", f"{max(row['received']) / 1e6:g}", f"{max(row['model']) / 1e6:g}",
            ])  # fmt: skip
    return _table(lines)


def from_host() -> str:
    """Operands and result in memory of the host, through one GPU, beside the same on it, and beside the link."""
    lines = [[
        "device", "n", "through the GPU, s", "on the GPU, s", "link alone, s", "larger of both / through",
        "to GPU; from it, GB/s",
    ]]  # fmt: skip
    for result in newest_of_devices(host_operands.FOLDER):
        for row in result["rows"]:
            rates = "; ".join(f"{row[f'{way}_gpu_bytes_per_s'] / 1e9:.0f}" for way in ("to", "from"))
            lines.append([
                result["device"], str(row["n"]), f"{row['through']:.2f}", f"{row['on_gpu']:.2f}", f"{row['link']:.2f}",
                f"{row['of_larger']:.2f}", rates,
            ])  # fmt: skip
    return _table(lines)


@cache
def _predicted(shape: model.Shape, count: int) -> model.Prediction:
    return model.predict(shape, count)


TABLES = {
    "constants": constants,
    "one-gpu": one_gpu,
    "one-process": one_process,
    "devices": measured_devices,
    "many-gpus": many,
    "layers": layers,
    "processes": processes,
    "from-host": from_host,
}
"""What makes the tables, by the names of their markers."""


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rest))


def _pico(seconds: float) -> str:
    return f"{1e12 * seconds:.2g} ps"


def _rate(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e9:.0f} GB/s"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds / 3600:.2g} h"


if __name__ == "__main__":
    typer.run(main)
