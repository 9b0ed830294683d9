"""What a product holds beside operands and result, against the caller's limit of workspace."""

from __future__ import annotations

from math import prod

from ozaki._formats import part_bytes, parts_in
from ozaki._operands import SIDES, dtype_of
from ozaki._pair import Pair
from ozaki._prepared import Prepared
from ozaki._workspace import too_few_bytes


def held_bytes(pair: Pair) -> int:
    """Bytes held until the product is done: copies, and the descriptions of operands that are not prepared."""
    stack = pair.sizes.stack if pair.of_complex_rows else pair.sizes.real_stack
    given = (1, pair.a), (2, pair.b)
    rows = sum(stack[0] * stack[axis] for axis, x in given if not isinstance(x, Prepared))
    return pair.copied + pair.backend.row_bytes * rows


def native_fits(pair: Pair, limit: int | None) -> bool:
    """Whether the native product keeps within `limit` bytes: converted operands, and a result apart from `out`."""
    return limit is None or _native_bytes(pair) <= limit


def _native_bytes(pair: Pair) -> int:
    itemsize = part_bytes(pair.dtype) * parts_in(pair.dtype)
    return pair.copied + sum(itemsize * prod(x.shape) for x in (pair.a, pair.b) if dtype_of("", x) != pair.dtype)


def check_native_limit(pair: Pair, limit: int | None) -> None:
    """Refuse a limit (bytes) that converted operands and a result apart from `out` exceed.

    Raises
    ------
    ValueError
    """
    if not native_fits(pair, limit):
        raise ValueError(
            f"workspace_limit: {limit} bytes are too few for the native product; operands that are converted, and an "
            f"`out` in which nothing can be computed, take {_native_bytes(pair)}"
        )


def check_limit(pair: Pair, limit: int | None, of_parts: bool) -> None:
    """Refuse a limit of workspace (bytes) that `held_bytes` and the describing of operands exceed.

    `of_parts`: as for `Pair.rows`.

    Raises
    ------
    ValueError
    """
    if limit is None:
        return
    _ = pair.addend  # which may be copied
    sides = [side for side, x in zip(SIDES, (pair.a, pair.b), strict=True) if not isinstance(x, Prepared)]
    rows = [pair.rows(side, of_parts) for side in sides]  # which may be copies
    describing = [pair.backend.describing_workspace((*x.shape[:2], pair.sizes.length)) for x in rows]
    if limit > (held := held_bytes(pair)):
        if (needed := max(describing, default=0)) > limit - held:
            too_few_bytes(limit - held, needed)
        return
    if not pair.copied:
        too_few_bytes(limit, held)
    raise ValueError(
        f"workspace_limit: {limit} bytes are too few; {held} are held, of which {pair.copied} for copies: of operands "
        "that are broadcast, whose elements lie in no order, or whose parts are, and of an `out` that holds no result"
    )
