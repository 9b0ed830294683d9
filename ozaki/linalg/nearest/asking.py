"""What a caller asks of a result that is rounded to nearest."""

from __future__ import annotations

from typing import Any

from ozaki.planning.checks import check_flag
from ozaki.records.accuracy import Accuracy, of_text
from ozaki.records.formats import is_multiprecision


def to_nearest(accuracy: Any, reproducible: Any) -> tuple[bool, Any]:
    """Whether each entry is to be the nearest float, and the accuracy that is named otherwise: not "exact".

    Raises
    ------
    TypeError
        If `reproducible` is no flag.
    """
    check_flag("reproducible", reproducible)
    accuracy = of_text(accuracy)
    if (isinstance(accuracy, str) and accuracy == "exact") or (isinstance(accuracy, Accuracy) and accuracy.exact):
        return True, None
    return bool(reproducible), accuracy


def check_format(dtype: str) -> None:
    """Refuse formats of many bits: a result in one of those is no array of floats.

    Raises
    ------
    ValueError
    """
    if is_multiprecision(dtype):
        raise ValueError(
            f"reproducible: the result has the format {dtype}; expected dtype='float64', 'float32', 'complex128' or "
            "'complex64', whose nearest numbers are found"
        )
