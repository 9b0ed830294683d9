"""The error for a limit of workspace that is too small."""

from __future__ import annotations

from typing import NoReturn


def too_few_bytes(limit: int, needed: int) -> NoReturn:
    """Refuse a limit of workspace, of which `limit` bytes are left for a product that needs `needed` bytes at least.

    Raises
    ------
    ValueError
    """
    raise ValueError(f"workspace_limit: leaves {limit} bytes for the product, which needs at least {needed} bytes")
