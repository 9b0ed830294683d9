"""`recording`: the account of what ran in a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ozaki.account import Account, lines_of
from ozaki.driver.watching import RECORDINGS
from ozaki.locks import Lock
from ozaki.records.report import several


def recording() -> Recording:
    """Keep account of every product, and of every result of `ozaki.linalg`, inside a `with` block.

    It changes nothing that is computed, and asks for no proof of its own. It holds for the thread, or the task of
    asyncio, that enters the block, and for tasks that are started inside. When the block ends, it ends for all of them.
    Another thread is counted where it runs in a copy of the context, as `asyncio.to_thread` makes one, and
    `contextvars.copy_context().run`: so products are not counted that run in threads of PyTorch (gradients on a GPU) or
    of JAX (compiled code, on a GPU or several devices). Blocks may be nested: each counts what runs inside it.

    Returns
    -------
    Recording
        The context manager, which prints as the account.

    Raises
    ------
    RuntimeError
        Where a block is entered that is entered already.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a = np.array([[1e16, 1.0], [3.0, -1e16]])
    >>> with ozaki.recording() as run:
    ...     c = ozaki.matmul(a, a, accuracy="dd")
    ...     x = ozaki.linalg.solve(a, c, accuracy=100, dtype="mp")
    >>> print(run.account)
    1 product ran through ozaki
          1  matmul    (2 x 2) (2 x 2)                 float64     28 residues         componentwise error <= 1.2e-16
    >>> [(entry.operator, entry.shape, entry.measure) for entry in run.results.entries], run.inside > 0
    ([('solve', (2, 2, 2), 'normwise')], True)
    """
    return Recording()


class Recording:
    """What `recording` returns: the account of all blocks that it was entered for.

    Attributes
    ----------
    account : Account
        Products, by the public function that was called: an entry of `einsum` is a product inside it, and `@` of an
        `MPArray` is "matmul". A bound is entered where the call knows it without another pass over its operands, else
        it is None: of a native product whose range nobody looked at, and of a plan that was given and not proven for
        these operands. A call with a report enters the report's.
    results : Account
        Results of `ozaki.linalg`: the shapes are those of the product that the bound speaks of, a x of a solution, of
        factors theirs; `how` is the number of corrections.
    inside : int
        How many products ran inside functions of `ozaki.linalg`, which `account` leaves out.
    """

    def __init__(self) -> None:
        self.account, self.results, self.inside = Account(), Account(), 0
        self._lock = Lock()
        self._blocks: list[Block] = []  # that have not ended

    def __enter__(self) -> Self:
        if self._here():
            raise RuntimeError("recording: entered already; make another one for a block inside")
        block = Block(self)
        with self._lock.held:
            self._blocks.append(block)
        RECORDINGS.enter(block)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock.held:
            for block in (self._here() or self._blocks)[-1:]:  # else: a generator that is closed in another context
                block.is_open = False
                self._blocks.remove(block)
        RECORDINGS.here()  # which drops it

    def _here(self) -> list[Block]:
        """The block of this recording that the running code is in."""
        return [block for block in RECORDINGS.here() if block.recording is self]

    def count_inside(self) -> None:
        """Count a product inside a function of `ozaki.linalg`."""
        with self._lock.held:
            self.inside += 1

    def __str__(self) -> str:
        lines = [str(self.account)]
        if self.results.products:
            inside = several(self.inside, "product")
            lines.append(f"{several(self.results.products, 'result')} of ozaki.linalg, with {inside} inside")
            lines += lines_of(self.results.entries)
        return "\n".join(lines)


class Block:
    """A length of time in which a recording counts."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.is_open = recording, True
