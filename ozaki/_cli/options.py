"""Options and arguments of the commands: their types, their help, and how their text is read."""

from __future__ import annotations

import math
import os
import re
from decimal import Context, Decimal
from enum import StrEnum
from math import floor
from typing import Annotated, Any

import typer

import ozaki
from ozaki._cli.echo import cut
from ozaki._formats import MOST_BITS
from ozaki.backends.cupy.devices.models import MODELS

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
SchemeOption = Annotated[str, typer.Option("--scheme", help="auto, digits, residues, native, halfhalf, ...")]
SlicesOption = Annotated[int | None, typer.Option("--slices", help="Force the number of slices.")]
ReproducibleOption = Annotated[bool, typer.Option("--reproducible", help="Rule out the native product and words.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto takes a GPU if there is one.")]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="MODEL", help="Plan for a GPU that need not be here: " + ", ".join(MODELS) + "."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Left = Annotated[str, typer.Argument(metavar="A", help="A file: .npy, .npz (file.npz:name), .mtx, .mtx.gz or .txt.")]
Right = Annotated[str, typer.Argument(metavar="B", help="A file, as A.")]


def options_of(
    accuracy: str | None, dtype: str | None, scheme: str, slices: int | None, reproducible: bool
) -> dict[str, Any]:
    """Return the options of `ozaki.matmul` that those of a command line mean."""
    return {
        "accuracy": parse_accuracy(accuracy),
        "dtype": None if dtype is None else str(dtype),
        "scheme": scheme,
        "slices": slices,
        "reproducible": reproducible,
    }


def refuse_beside_product(options: dict[str, Any], device: Device) -> None:
    """Raise ValueError if options, as `options_of` returns them, or the device say how ozaki is to multiply."""
    given = [f"--{name}" for name in ("dtype", "slices") if options[name] is not None]
    given += ["--scheme"] if options["scheme"] != "auto" else []
    given += ["--reproducible"] if options["reproducible"] else []
    given += ["--device"] if device is not Device.auto else []
    if given:
        which = "this option" if len(given) == 1 else "these options"
        raise ValueError(f"{', '.join(given)}: with --product ozaki computes nothing; remove {which}")


def parse_accuracy(text: str | None) -> ozaki.Accuracy | str | int | float | None:
    """Return the accuracy that the text of `--accuracy` means; None for None."""
    if text is None:
        return None
    measure, colon, number = text.rpartition(":")
    power = re.fullmatch(r"2(?:\^|\*\*)(-?[0-9]{1,9})", number)
    tiny = _tiny(text, int(power[1]), Decimal(1)) if power else _tiny_decimal(text, number)
    if tiny is not None:
        return ozaki.Accuracy(measure if colon else "componentwise", tiny[0], exponent=tiny[1])  # type: ignore[arg-type]
    value: str | int | float = _power(text, int(power[1])) if power else number
    if not power and number.isascii() and "_" not in number:  # Python reads other digits too, and 1_0 as 10
        for kind in (int, float):
            try:
                value = kind(number)
                break
            except ValueError:
                continue
    if not colon:
        return value
    if isinstance(value, str):
        raise ValueError(f"accuracy: {cut(text)!r}; expected MEASURE:TOLERANCE, as componentwise:1e-20")
    return ozaki.Accuracy(measure, value)  # type: ignore[arg-type]


_LEAST = -1000
"""Tolerances below 2**_LEAST are given in units of a power of two: floats end soon after."""


def _tiny_decimal(text: str, number: str) -> tuple[float, int] | None:
    """Return a decimal number below 2**_LEAST, as 1e-400, as (tolerance, exponent); None for anything else."""
    if not re.fullmatch(r"[0-9]{1,30}(\.[0-9]{0,30})?[eE]-[0-9]{1,6}", number):
        return None
    digits, _, power = number.lower().partition("e")
    return _tiny(text, 0, Decimal(digits).scaleb(int(power)))


def _tiny(text: str, exponent: int, factor: Decimal) -> tuple[float, int] | None:
    """Return factor 2**exponent below 2**_LEAST as (tolerance, exponent of two); None for a larger number, and for 0.

    Raises
    ------
    ValueError
        About the option `text`, if the number is below 2**-100000.
    """
    if not factor:
        return None
    tens = Context(prec=30)
    whole = exponent + floor(tens.divide(tens.log10(factor), tens.log10(Decimal(2)))) + 1
    if whole > _LEAST:
        return None
    if whole <= -MOST_BITS:
        raise ValueError(f"accuracy: {cut(text)!r}; expected a tolerance of at least 2^-{MOST_BITS}")
    return float(tens.divide(factor, tens.power(2, whole - exponent))) * (1 - 2.0**-53), whole


def _power(text: str, exponent: int) -> float:
    """Return 2**exponent; raise about the option `text` if it overflows."""
    if exponent > 1023:
        raise ValueError(f"accuracy: {cut(text)}; expected a tolerance that float64 holds")
    return math.ldexp(1.0, exponent)


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
