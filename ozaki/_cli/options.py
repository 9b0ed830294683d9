"""Options and arguments of the commands: their types, their help, and how their text is read."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from ozaki._cli.echo import cut
from ozaki.backends.cupy.devices.models import MODELS
from ozaki.records.accuracy import of_text
from ozaki.records.options import Options, spelled_out

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LONGEST_SHAPE = 1000  # characters


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


class Dtype(StrEnum):
    float32 = "float32"
    float64 = "float64"
    complex64 = "complex64"
    complex128 = "complex128"
    int64 = "int64"
    mp = "mp"


AccuracyOption = Annotated[
    str | None,
    typer.Option(
        "--accuracy",
        help="fp32, fp64, dd, qd, a number of bits up to 100000, a componentwise tolerance below 1 (1e-20, 2^-60), "
        "exact, or MEASURE:TOLERANCE with componentwise, row-column, normwise or relative. Default: what the native "
        "product gives.",
    ),
]
DtypeOption = Annotated[
    Dtype | None,
    typer.Option(
        "--dtype",
        help="The result: float32 or float64, of complex operands complex64 or complex128, rounded once; int64, exact; "
        "mp, multiprecision, with the bits that --accuracy asks for. With int64 and mp integer operands stay integers, "
        "and mp is exact for them. Default: that of the operands, so --accuracy alone gives floats of floats; integer "
        "operands are read as float64, and the product is float64, rounded beyond 2**53.",
    ),
]
_OPTIONS = {
    name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Options._field_defaults[name], annotation=of)
    for name, of in {
        "accuracy": AccuracyOption,
        "dtype": DtypeOption,
        "scheme": Annotated[str, typer.Option("--scheme", help="auto, digits, residues, native, halfhalf, ...")],
        "slices": Annotated[int | None, typer.Option("--slices", help="Force the number of slices.")],
        "reproducible": Annotated[bool, typer.Option("--reproducible", help="Rule out the native product and words.")],
        "inner_scaling": Annotated[
            bool | None,
            typer.Option(
                "--inner-scaling/--no-inner-scaling",
                help="Slice A S and S^-1 B, S of powers of two: fewer slices where columns of A have other units. "
                "Default: where that is so, and no number of slices is named.",
            ),
        ],
    }.items()
}
"""The options of `ozaki.matmul` that commands have, in the order of their help."""

DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto takes a GPU if there is one.")]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="LIST",
        help="GPUs that share the product out, or one that need not hold the operands: all, or numbers as 0,1.",
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="MODEL", help="Plan for a GPU that need not be here: " + ", ".join(MODELS) + "."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Left = Annotated[str, typer.Argument(metavar="A", help="A file: .npy, .npz (file.npz:name), .mtx, .mtx.gz or .txt.")]
Right = Annotated[str, typer.Argument(metavar="B", help="A file, as A.")]


def takes_options(command: _Command) -> _Command:
    """Decorate a command that has the options of a product, which it gets as `**given`, by the names of `matmul`."""
    signature = inspect.signature(command, eval_str=True)
    command.__signature__ = spelled_out(signature, _OPTIONS.values())  # type: ignore[attr-defined]
    return command


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `ozaki.matmul` that those of a command line mean."""
    accuracy, dtype = given["accuracy"], given["dtype"]
    if accuracy in ("bf16", "fp16"):
        raise ValueError(
            f"--accuracy: {accuracy!r} is for Python, as ozaki.matmul(a, b, accuracy={accuracy!r}); the command "
            "multiplies float16 numbers as float32 ones, so use fp32"
        )
    read = {
        "accuracy": None if accuracy is None else of_text(accuracy),
        "dtype": None if dtype is None else str(dtype),
    }
    return {**given, **read}


def devices_of(text: str) -> Any:
    """Return what `devices=` of `ozaki.matmul` takes for the text of --devices."""
    if text.strip() == "all":
        return "all"
    return [int(each) if each.strip().isdigit() else each.strip() for each in text.split(",")]


def refuse_beside_product(options: dict[str, Any], device: Device) -> None:
    """Raise ValueError if options, as `options_of` returns them, or the device say how ozaki is to multiply."""
    given = [f"--{name}" for name, of in _OPTIONS.items() if name != "accuracy" and options[name] != of.default]
    given += ["--device"] if device is not Device.auto else []
    if given:
        which = "this option" if len(given) == 1 else "these options"
        raise ValueError(f"{', '.join(given)}: with --product ozaki computes nothing; remove {which}")


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Return the shape that a text like 4000x3000 names; None for any other text, and for the name of a file.

    Raises
    ------
    ValueError
        If the text is longer than `_LONGEST_SHAPE`, or has a number of more digits than Python reads.
    """
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", text) or os.path.exists(text):
        return None
    if len(text) > _LONGEST_SHAPE:
        raise ValueError(f"{cut(text)}: expected a shape, as 4000x3000")
    return tuple(map(int, text.split("x")))
