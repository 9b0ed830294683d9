"""The account of the memory that a product holds beside operands and result, and the caller's limit of it."""

from __future__ import annotations

from typing import NoReturn


class Memory:
    """What one product holds, counted where it is allocated; nothing else knows how much the limit leaves.

    Parameters
    ----------
    limit : the most bytes to hold at a time, or None

    Attributes
    ----------
    limit : as above
    held : bytes that are held now
    copied : those of them that are copies of operands, of the addend, and of a result apart from `out`
    most : the most bytes that were held at a time so far
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.held = self.copied = self.most = 0

    @property
    def rest(self) -> int | None:
        """Bytes that may be held beside those that are; None without a limit."""
        return None if self.limit is None else max(self.limit - self.held, 0)

    def hold(self, nbytes: int) -> None:
        """Count bytes that are held from now on, until `free`.

        Raises
        ------
        ValueError
            If the limit leaves too little for them; then they are not counted.
        """
        self.pass_through(nbytes)
        self.held += nbytes

    def hold_copy(self, nbytes: int) -> None:
        """Count a copy, which is held from now on.

        Raises
        ------
        ValueError
            As `hold`.
        """
        if self.limit is not None and self.held + nbytes > self.limit:
            self._refuse(nbytes, self.copied + nbytes)
        self.hold(nbytes)
        self.copied += nbytes

    def free(self, nbytes: int) -> None:
        """Count bytes as freed that `hold` has counted."""
        self.held -= nbytes

    def pass_through(self, nbytes: int) -> None:
        """Count bytes that are held only while something is computed, beside those that are held already.

        Raises
        ------
        ValueError
            If the limit leaves too little for them.
        """
        if self.limit is not None:
            self.require(nbytes)
        self.most = max(self.most, self.held + nbytes)

    def require(self, nbytes: int) -> None:
        """Refuse a limit that leaves less than `nbytes`, which are needed later.

        Raises
        ------
        ValueError
        """
        if self.limit is not None and self.held + nbytes > self.limit:
            if self.copied:
                self._refuse(nbytes, self.copied)
            too_few_bytes(self.limit - self.held, nbytes)

    def _refuse(self, more: int, copied: int) -> NoReturn:
        raise ValueError(
            f"workspace_limit: {self.limit} bytes are too few; at least {self.held + more} are held, of which {copied} "
            "for copies: of operands that are converted or broadcast, whose elements lie in no order, or whose parts "
            "are, of an addend like these, and of an `out` that holds no result"
        )


def too_few_bytes(limit: int, needed: int) -> NoReturn:
    """Refuse a limit of workspace, of which `limit` bytes are left for a product that needs `needed` bytes at least.

    Raises
    ------
    ValueError
    """
    raise ValueError(f"workspace_limit: leaves {limit} bytes for the product, which needs at least {needed} bytes")
