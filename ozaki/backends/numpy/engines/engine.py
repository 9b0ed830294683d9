"""The protocol of NumPy's engines: exact products of a scheme, on the host."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from ozaki.backends.numpy._limbs import Floats
from ozaki.backends.numpy._scaled import ScaledRows
from ozaki.backends.numpy._undecided import Undecided
from ozaki.multiprecision.numbers import Numbers
from ozaki.records.progress import Progress
from ozaki.records.shapes import Side
from ozaki.schemes import Scaling, Scheme


class Engine(Protocol):
    """Splits the rows of operands by a scheme, and multiplies their slices, exactly, for inner dimension k.

    A plane is a matrix of slices, one for each matrix product; a slab is a part of k. Programs keep engines, so that
    what is not in their fields is computed once (`functools.cached_property`).
    """

    @property
    def scheme(self) -> Scheme: ...
    @property
    def k(self) -> int: ...
    @property
    def slab(self) -> int:
        """Most inner indices that are multiplied at a time: so few that the sums of their products are exact.

        A slab of both operands is held as slices, so `blas.DEPTH` at most, which bounds the workspace.
        """
        ...

    def shortened(self) -> Self | None:
        """The engine with slabs half as long, which take less memory; None if there is none."""
        ...

    def joined(self) -> Self:
        """The engine with one slab for all of k, for slices of whole operands; itself if their sums are not exact."""
        ...

    @property
    def planes(self) -> int:
        """Number of matrix products for each slab."""
        ...

    @property
    def what(self) -> str:
        """Number and kind of the planes, for people."""
        ...

    @property
    def by(self) -> str:
        """What multiplies planes, for people."""
        ...

    @property
    def label(self) -> str:
        """The engine, as reports name it."""
        ...

    @property
    def parts(self) -> int:
        """Real numbers of an element: 2 of an engine that splits complex rows."""
        ...

    @property
    def sum_bytes(self) -> int:
        """Bytes of an element of sums."""
        ...

    @property
    def rounds(self) -> bool:
        """Whether `multiply_into` rounds every product over a k of one slab, so that there are no sums then."""
        ...

    def slice_bytes(
        self, together: int, rows: int, columns: int, threads: int, limbs: int, sides: tuple[Side, ...]
    ) -> int:
        """Bytes of the slices of a slab of so many rows and columns, in `together` matrices, with what threads hold.

        `limbs` are those of the longest multiprecision operand, and `sides` those that are not split already.
        """
        ...

    def whole_panels(self, rows: int, columns: int) -> tuple[int, int]:
        """So many rows and columns or some more: slices of whole operands are cut at multiples of these."""
        ...

    @property
    def sums(self) -> int:
        """Number of matrices, as large as a panel, that products become; 0 if the sums are the products themselves."""
        ...

    @property
    def split_copies(self) -> int:
        """Most arrays, as large as a tile of an operand, that are held while the tile is split, without its slices."""
        ...

    @property
    def rounding_copies(self) -> int:
        """Most arrays, as large as a tile of the result, that are held while the tile is rounded, without its sums."""
        ...

    @property
    def shift(self) -> int:
        """Exponent for which the exact integer Cbar is 2**shift times the value of its limbs."""
        ...

    def symmetric(self) -> Self | None:
        """The engine of a matrix times its own transpose whose slices serve both operands; None if there is none."""
        ...

    def split_rows(self, x: npt.NDArray[Any] | ScaledRows, mu: npt.NDArray[np.int64], side: str, finite: bool) -> Any:
        """The slices of rows of floats: an array of shape (planes, *x.shape), or what is cut as one.

        Parameters
        ----------
        x : shape (batch, rows, k), with any strides, perhaps scaled along k
        mu : exponents of the images, shape (batch, rows)
        side : "left" or "right"
        finite : whether x has no NaN and Inf, which count as zero
        """
        ...

    def split_numbers(self, x: Numbers, mu: npt.NDArray[np.int64], side: str) -> Any:
        """The slices of rows of multiprecision numbers; arguments as for `split_rows`.

        Raises
        ------
        NotImplementedError
            If the scheme has none of them.
        """
        ...

    def multiply(self, a: Any, b: Any, progress: Progress | None = None) -> Floats:
        """The products of a slab, in the form in which NumPy adds them exactly over slabs.

        a and b are slices of m rows of the left operand and of n of the right one, over the same part of k; the shape
        of the sums is (`sums` or planes, batch, m, n). `progress` is told of each plane.
        """
        ...

    def multiply_into(
        self,
        a: Any,
        b: Any,
        mu: npt.NDArray[np.int64],
        nu: npt.NDArray[np.int64],
        out: Any,
        triangle: bool,
        undecided: Undecided | None = None,
    ) -> bool:
        """Write the product over all of k, rounded once, into out, if the engine rounds while it multiplies.

        Slices as for `multiply`; mu and nu are the exponents of the images of rows and columns, and out has the shape
        (batch, m, n). With `triangle`, of each `TRIANGLE` rows the columns beyond the last one of these may be left as
        they are. `undecided` flags entries that are undecided. Returns False, and writes nothing, if the engine does
        not round (`rounds`), or flags none.
        """
        ...

    def multiply_whole(
        self, x: npt.NDArray[Any], y: npt.NDArray[Any], scaling: Scaling, out: Any, most: int
    ) -> int | None:
        """Write the product of rows x and y, rounded once, into out, if the engine takes them as they are.

        Parameters
        ----------
        x, y : rows of floats, not described, of one slab, shapes (batch, m or n, k)
        scaling : the rule of their exponents
        out : shape (batch, m, n)
        most : bytes that may be held

        Returns
        -------
        nonfinite : number of NaN and Inf that were read, and counted as zero; None, and out is undefined, if the engine
            does not take them
        """
        ...

    def limbs(self, sums: Floats) -> Floats:
        """The exact integers of some entries as limbs (`_limbs`), shape (count, entries), the lowest first.

        Each limb is an integer of magnitude below 2**52, and there are so many that the highest is below 2**26 once
        they are carried. Overwrites the sums of the entries, shape (..., entries).
        """
        ...
