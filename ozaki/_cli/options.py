"""Options and arguments of the commands: their types, their help, and how their text is read."""

from __future__ import annotations

import math
import os
import re
from enum import StrEnum
from typing import Annotated

import typer

import ozaki
from ozaki._cli.echo import cut

_LONGEST_SHAPE = 1000  # characters


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
        help="fp32, fp64, dd, qd, a number of bits, a componentwise tolerance below 1 (1e-20, 2^-60), or "
        "MEASURE:TOLERANCE with componentwise, row-column or normwise. Default: what the native product gives.",
    ),
]
SchemeOption = Annotated[str, typer.Option("--scheme", help="auto, digits, residues, native, halfhalf, ...")]
SlicesOption = Annotated[int | None, typer.Option("--slices", help="Force the number of slices.")]
ReproducibleOption = Annotated[bool, typer.Option("--reproducible", help="Rule out the native product and words.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto takes a GPU if there is one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Left = Annotated[str, typer.Argument(metavar="A", help="A file: .npy, .npz (file.npz:name), .mtx or .mtx.gz.")]
Right = Annotated[str, typer.Argument(metavar="B", help="A file, as A.")]


def parse_accuracy(text: str | None) -> ozaki.Accuracy | str | int | float | None:
    """Return the accuracy that the text of `--accuracy` means; None for None."""
    if text is None:
        return None
    measure, colon, number = text.rpartition(":")
    power = re.fullmatch(r"2(?:\^|\*\*)(-?[0-9]{1,9})", number)
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
