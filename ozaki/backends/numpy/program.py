"""Programs of products by slices on NumPy: what runs, in which parts, and how much it holds, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ozaki.backends.numpy._tiles import COMBINED_SHARE, OBJECTS, TILE
from ozaki.backends.numpy.engines import Engine, engine_of
from ozaki.caches import cached
from ozaki.records.memory import too_few_bytes
from ozaki.records.shapes import SIDES, Side
from ozaki.schemes import Digits, Residues, Scaling, Scheme, scaling_of

_PANEL = 2048
"""Most rows and columns of a panel of the result; bounds the workspace."""

_MOST_BYTES = 2**31
"""Most bytes of workspace of a panel, if no limit is given, unless one of `_FEW_ROWS` rows and columns takes more."""

_FEW_ROWS = 128
"""Rows and columns that a panel has at least, if no limit is given: with fewer, BLAS is slow."""


class Views(NamedTuple):
    """What of operands and result a program depends on: their shapes, and what they are beside numbers of float64.

    Attributes
    ----------
    batch, m, n : shape of the result
    k : inner dimension, as the number of real numbers of a row
    limbs : those of the longest multiprecision operand; 0 without any
    combined : arrays as large as a tile that rounding together with an addend or a factor takes, 0 without
    addend : whether an addend is added
    itself : whether both operands are the same rows, so that the product is symmetric
    adjoint : whether those of the right one are conjugates of the left one's, so that it is Hermitian
    copied : bytes of an element of operands that compiled code cannot read where they are; 0 without any
    written : bytes of an element of a result that compiled code cannot write where it is; 0 without any
    threads : how many there are for compiled code
    sides : of the operands that are not split already
    verified : whether the sums are projected before they are rounded
    """

    batch: int
    m: int
    k: int
    n: int
    limbs: int = 0
    combined: int = 0
    addend: bool = False
    itself: bool = False
    adjoint: bool = False
    copied: int = 0
    written: int = 0
    threads: int = 1
    sides: tuple[Side, ...] = SIDES
    verified: bool = False


@dataclass(frozen=True)
class Program:
    """A product by slices: panels of the result one after another, each over slabs of k.

    Attributes
    ----------
    engine : splits operands, and multiplies and adds their slices
    scaling : the rule of the exponents of rows
    views : what it depends on
    rows, columns : most of a panel
    together : matrices of a batch that are computed at a time
    slabs : where the parts of k begin, the elements of a row that are multiplied at a time
    keeps_columns : whether the slices of columns serve all panels of rows: those of several slabs are not kept
    image : what entries above the diagonal are that are copied from below: transposes or conjugate transposes; None if
        they are computed as all others
    one_split : whether both operands have the same slices, so that panels on the diagonal are multiplied as triangles
    nbytes : bytes that are held while it runs, beside operands, their descriptions and the result
    """

    engine: Engine
    scaling: Scaling
    views: Views
    rows: int
    columns: int
    together: int
    slabs: range
    keeps_columns: bool
    image: Literal["transpose", "conjugate"] | None
    one_split: bool
    nbytes: int

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps once rows are described, in words."""
        views = self.views
        panels = f"for each panel of {min(self.rows, views.m)} x {min(self.columns, views.n)} entries"
        inner = "" if self.keeps_columns else f", {len(self.slabs)} slabs of {self.engine.slab} inner indices"
        kept = "; those of columns serve all rows" if self.keeps_columns and self.rows < views.m else ""
        image = "" if self.image is None else f"; above the diagonal the {self.image} of what is below"
        return (
            f"split                a, b -> {self.engine.what}   {panels}{inner}{kept}",
            f"multiply             {self.engine.planes} products by {self.engine.by}, exact   likewise",
            f"recombine            products -> c   the exact integer, rounded once; likewise{image}",
        )

    def __str__(self) -> str:
        """The steps, a line each."""
        return numbered(*DESCRIBING, *self.steps)


DESCRIBING = (
    "describe             a -> exponents, sums and norms of its rows",
    "describe             b -> those of its columns",
)
"""The steps before each product that does not run natively."""

COMPUTING_APART = "inner products       a, b, entries that rounding left undecided -> c"
"""The step after a product of which undecided entries are computed apart."""


def numbered(*lines: str) -> str:
    """Steps, a line each, with their numbers."""
    return "\n".join(f"{i:>3}  {line}" for i, line in enumerate(lines, 1))


@cached(64)
def product_program(scheme: Scheme, engine_name: str, views: Views, limit: int | None) -> Program:
    """The program of a product that has entries, with the largest panels whose workspace keeps within a limit.

    Of a matrix times its own transpose, panels above the diagonal are the mirror images of those below; so are those of
    complex products, and conjugates if the product is Hermitian. By residues both operands have the same slices.

    Parameters
    ----------
    scheme : with exact slice products, for which there is an engine
    engine_name : as the caller gave it, or "auto"
    views : what the operands and the result are
    limit : most bytes to hold, None for no limit

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
    """
    engine = engine_of(scheme, views.k, engine_name)
    if not views.sides:
        engine = engine.joined()
    image: Literal["transpose", "conjugate"] | None = None
    symmetric = engine.symmetric() if views.itself and not views.addend else None
    if symmetric is not None:
        engine, image = symmetric, "transpose"
    elif isinstance(scheme, Residues) and not views.addend and (views.itself or views.adjoint):
        image = "conjugate" if views.adjoint else "transpose"
    elif isinstance(scheme, Digits) and not views.addend and views.itself:
        image = "transpose"  # the pairs of digits that are left out are symmetric, too
    return program_of(engine, scaling_of(scheme, views.k), views, limit, image, symmetric is not None)


def program_of(
    engine: Engine,
    scaling: Scaling,
    views: Views,
    limit: int | None,
    image: Literal["transpose", "conjugate"] | None = None,
    one_split: bool = False,
) -> Program:
    """The program of a product by an engine; arguments as of `product_program` and attributes of `Program`.

    Raises
    ------
    ValueError
        If the smallest panels exceed the limit.
    """
    engine, panel = _within(engine, views, limit)
    slabs = range(0, engine.k, engine.slab)
    parts = *panel, _together(views, panel), slabs, len(slabs) == 1, image, one_split
    return Program(engine, scaling, views, *parts, _workspace(engine, views, panel))


def _within(engine: Engine, views: Views, limit: int | None) -> tuple[Engine, Panel]:
    """The engine, with shorter slabs where the limit takes these, and the largest panels that keep within it."""
    while True:
        try:
            return engine, _panel_of(engine, views, limit)
        except ValueError:
            if (shorter := engine.shortened()) is None:
                raise
            engine = shorter


class Panel(NamedTuple):
    """Most rows and columns of the result that are computed at a time."""

    rows: int
    columns: int


def _panel_of(engine: Engine, views: Views, limit: int | None) -> Panel:
    """The largest panels whose workspace keeps within `limit` bytes, None for no limit.

    Without a limit, panels have few rows rather than few columns, because the slices of columns serve all rows.
    """
    rows = columns = _PANEL

    def panel() -> Panel:
        return Panel(rows, columns) if views.sides == SIDES else Panel(*engine.whole_panels(rows, columns))

    if limit is None:
        while rows > _FEW_ROWS and _workspace(engine, views, panel()) > _MOST_BYTES:
            rows //= 2
        while columns > _FEW_ROWS and _workspace(engine, views, panel()) > _MOST_BYTES:
            columns //= 2
        return panel()
    while (needed := _workspace(engine, views, panel())) > limit:
        if rows <= 16:
            too_few_bytes(limit, needed)
        rows = columns = rows // 2
    return panel()


def _workspace(engine: Engine, views: Views, panel: Panel) -> int:
    """Bytes that are held while a panel is computed."""
    together, limbs = _together(views, panel), views.limbs
    rows, cols = together * min(views.m, panel.rows), together * min(views.n, panel.columns)
    entries = rows * cols // together
    rounded = entries * engine.parts
    sums = engine.planes + engine.sums  # of a slab; of those before it in its own form
    if engine.k > engine.slab:
        sums += engine.sums or engine.planes
    split = max((size for side, size in zip(SIDES, (rows, cols), strict=True) if side in views.sides), default=0)
    tile_elements = max(
        engine.split_copies * min(TILE, split * engine.slab),
        # Of multiprecision elements their limbs, copied and moved, and the pieces of images twice.
        (2 * engine.split_copies + 2 * limbs + 8) * min(TILE // 4, split * engine.slab) if limbs else 0,
        engine.rounding_copies * min(TILE // 4, rounded),
        min(TILE, entries),  # scratch of `ResidueEngine.sums_of`
        # Both terms, multiplied, moved and added; their limbs are about as many as those of the product alone.
        (2 * engine.rounding_copies + views.combined) * min(TILE // COMBINED_SHARE, rounded) if views.combined else 0,
    )
    slices = engine.slice_bytes(together, rows, cols, views.threads, limbs, views.sides)
    slices += views.copied * split * engine.slab
    if engine.rounds and engine.k <= engine.slab and not (views.combined or views.verified):
        return slices + views.written * entries + OBJECTS
    return engine.sum_bytes * sums * entries + 8 * tile_elements + slices + OBJECTS


def _together(views: Views, panel: Panel) -> int:
    """Number of matrices of a batch that are computed together: as many as fill a panel."""
    (batch, m, _, n), (rows, columns) = views[:4], panel
    fits = m <= rows and n <= columns
    return max(1, min(batch, rows * columns // (m * n), (rows + columns) // (m + n))) if fits else 1
