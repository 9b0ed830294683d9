"""Refusals of limits of workspace, before anything is computed."""

from __future__ import annotations

from ozaki.backends.results import nbytes
from ozaki.call.operands import SIDES, dtype_of
from ozaki.call.pair import Pair
from ozaki.records.prepared import Prepared


def native_fits(pair: Pair) -> bool:
    """Whether the native product keeps within the limit: converted operands, and a result apart from `out`."""
    rest = pair.memory.rest
    return rest is None or pair.multiprecision or _converted_bytes(pair) <= rest  # there is none of multiprecision


def _converted_bytes(pair: Pair) -> int:
    """Bytes of the copies of operands that a native product makes, because their dtype is not the result's."""
    return sum(nbytes(tuple(x.shape), pair.dtype) for x in (pair.a, pair.b) if dtype_of("", x) != pair.dtype)


def check_native_limit(pair: Pair) -> None:
    """Refuse a limit that converted operands and a result apart from `out` exceed.

    Raises
    ------
    ValueError
    """
    if not native_fits(pair):
        needed = pair.memory.held + _converted_bytes(pair)
        raise ValueError(
            f"workspace_limit: {pair.memory.limit} bytes are too few for the native product; operands that are "
            f"converted, and an `out` in which nothing can be computed, take {needed}"
        )


def check_describing(pair: Pair, of_parts: bool) -> None:
    """Refuse a limit that the copies of operands, their descriptions and the describing exceed.

    `of_parts`: as for `Pair.rows`.

    Raises
    ------
    ValueError
    """
    sides = [side for side, x in zip(SIDES, (pair.a, pair.b), strict=True) if not isinstance(x, Prepared)]
    rows = [pair.rows(side, of_parts) for side in sides]  # which may be copies
    if pair.memory.limit is None:
        return
    held = most = 0
    for x in rows:
        kept, passing = pair.backend.describing_bytes(x)
        held += kept
        most = max(most, held + passing)
    pair.memory.require(most)
