"""Whether the integer product of a call is right: what its random projections say, and what happens if it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ozaki.process.warning import warn


class VerificationError(RuntimeError):
    """A product of integers that `verify=True` checked is wrong, and so is the one that was computed in its place."""


class Projected(NamedTuple):
    """What the projections of one computation say.

    Attributes
    ----------
    projections : how many there were: of each matrix one modulo each prime
    wrong : of how many of them C x is not A (B x)
    """

    projections: int
    wrong: int


class Verification:
    """The account of a call that checks what it multiplies.

    Attributes
    ----------
    verified : projections that agree, of the product that is returned
    recomputed : how many times a product was computed once more, because projections disagreed
    """

    def __init__(self) -> None:
        self.verified = self.recomputed = 0

    def run(self, compute: Callable[[], Projected]) -> None:
        """Compute a product, and once more if it is wrong.

        Raises
        ------
        VerificationError
            If that one is wrong, too.
        """
        found = compute()
        if found.wrong:
            wrong = f"{found.wrong} of {found.projections} random projections disagree"
            warn(f"verify: the product of integers is wrong ({wrong}); it is computed once more", RuntimeWarning)
            self.recomputed += 1
            found = compute()
            if found.wrong:
                raise VerificationError(
                    f"verify: the product of integers is wrong ({wrong}), and so is the one computed in its place "
                    f"({found.wrong} of {found.projections}): memory, a processor or the library is faulty; out holds "
                    "no result"
                )
        self.verified = found.projections
