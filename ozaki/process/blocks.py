"""Blocks of `with` statements that hold for the code which enters them: for a thread, or a task of asyncio."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar


class Block(Protocol):
    """A block that was entered.

    Attributes
    ----------
    is_open : whether it has not ended
    """

    is_open: bool


B = TypeVar("B", bound=Block)


class Blocks(Generic[B]):
    """The blocks of one kind that the running code is in.

    A block holds in the context that enters it, and in copies of that, until it ends in any context: a generator may be
    closed in another one than that in which it began.
    """

    def __init__(self, name: str) -> None:
        self._of_context: ContextVar[tuple[B, ...]] = ContextVar(name, default=())

    def here(self) -> tuple[B, ...]:
        """Those that are open, the innermost last; others are dropped from this context."""
        blocks = self._of_context.get()
        if blocks and not all(block.is_open for block in blocks):
            blocks = tuple(block for block in blocks if block.is_open)
            self._of_context.set(blocks)
        return blocks

    def enter(self, block: B) -> None:
        """Let a block hold from now on."""
        self._of_context.set((*self.here(), block))
