"""The memory that a product holds beside its operands and its result."""

from __future__ import annotations

from typing import NoReturn


def too_few_bytes(limit: int, needed: int) -> NoReturn:
    """Refuse a limit that the smallest panel exceeds.

    Raises
    ------
    ValueError
    """
    raise ValueError(f"workspace_limit: leaves {limit} bytes for the product, which needs at least {needed}")
