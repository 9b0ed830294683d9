"""NumPy: the same image and the same bits, through float64 BLAS (docs/design.md, section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ozaki._description import Described
from ozaki._plan import Plan
from ozaki.backends import Way, _limbs, _words
from ozaki.backends._limbs import Floats
from ozaki.backends._numpy_describe import TILE, along_memory, row_tiles, scale, turned
from ozaki.backends._numpy_describe import describe as describe
from ozaki.backends._numpy_describe import read as read
from ozaki.backends._numpy_describe import read_least as read_least
from ozaki.backends._numpy_proof import narrow_product as narrow_product
from ozaki.backends._numpy_proof import wide_product as wide_product
from ozaki.backends._numpy_proof import worst_ratios as worst_ratios
from ozaki.backends._words import WordSlices
from ozaki.schemes import Digits, Residues, Scheme, Words, scaling_of
from ozaki.schemes.digits import Rectangle, rectangles
from ozaki.schemes.formats import H100, TensorCore
from ozaki.schemes.residues import Remainders, exact_moduli, remainders

name = "numpy"
engines: tuple[str, ...] = ("float64", "int8")
waits = False

_PANEL = 2048
"""Rows of an output panel at most, and inner indices of a slab: bounds the workspace."""

_PIECE_BITS = 27
"""An image is cut into pieces of this many bits before it is reduced."""

_LEAST_DEPTH = 1024
"""Residues are at most as wide as this many inner indices allow: a sum of residues times pieces stays below 2**51,
where `_reduce` finds the least residue. (An image of 171 bits, the widest, is 7 pieces: 8 2**26 2**21.5 < 2**51.)"""


def asarray(x: Any) -> npt.NDArray[Any]:
    if np.ma.is_masked(x):
        raise TypeError("masked elements have no product; fill them, as filled(0) does")
    return np.asarray(x)


def empty(shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    return np.empty(shape, dtype)


def owns(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def check_device(operands: tuple[tuple[str, Any], ...]) -> None:
    """All arrays lie in host memory."""


def contiguous(x: npt.NDArray[Any]) -> bool:
    return type(x) is np.ndarray and x.flags.c_contiguous


def overlap(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    return np.may_share_memory(x, y)


def fastest(stack: tuple[int, int, int], k: int, dtype: str, ways: tuple[Way, ...]) -> Way:
    """The native product if it will do: one out of slices costs several in float64, one out of words far more."""
    return None if None in ways else ways[0]


def native_obstacle(dtype: str) -> str | None:
    """Nothing keeps NumPy's product from being an IEEE one."""
    return None


def native(a: npt.NDArray[Any], b: npt.NDArray[Any], dtype: str, out: npt.NDArray[Any]) -> None:
    """The native product out = a b, in `dtype`, of matrices or of stacks."""
    np.matmul(a.astype(dtype, copy=False), b.astype(dtype, copy=False), out=out)


# Executing a plan ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slices:
    """One operand, split: `planes` of shape (planes, batch, rows, k), float64 integers, and the exponents mu."""

    described: Described
    planes: Floats
    mu: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Engine:
    """How a scheme's exact product goes through float64 BLAS."""

    scheme: Scheme
    k: int
    slab: int
    remainders: Remainders | None
    rectangles: tuple[Rectangle, ...]

    @property
    def planes(self) -> int:
        """Matrix products for each slab of k."""
        return len(self.remainders.moduli) if self.remainders else len(self.rectangles)

    @property
    def limbs(self) -> int:
        """Limbs of a sum of digit products, in units of the last digit kept."""
        assert isinstance(self.scheme, Digits)
        return -(-(self.scheme.bits * (self.scheme.count + 1) + self.k.bit_length() + 1) // _limbs.LIMB_BITS)

    @property
    def sums(self) -> int:
        """Matrices that hold sums over slabs, beside the products of a slab."""
        return (self.planes if self.k > self.slab else 0) if self.remainders else self.limbs


def _engine(plan: Plan) -> _Engine:
    assert isinstance(plan.scheme, Scheme)
    slab = max(1, min(plan.shape[1], _PANEL))
    int8 = plan.engine == "int8"
    if isinstance(plan.scheme, Residues):
        at_least = plan.scheme.range * 2 + plan.scheme.range // 128
        moduli = plan.scheme.moduli if int8 else exact_moduli(max(slab, _LEAST_DEPTH), 53, at_least)
        return _Engine(plan.scheme, plan.shape[1], slab, remainders(moduli), ())
    room = 52 - (slab - 1).bit_length()
    span = 2 if int8 else max(2, (room + 2) // plan.scheme.bits)
    return _Engine(plan.scheme, plan.shape[1], slab, None, rectangles(plan.scheme.count, span))


def engine_name(plan: Plan) -> str:
    if plan.scheme is None:
        return "NumPy"
    if isinstance(plan.scheme, Words):
        return f"NumPy, model of {plan.scheme.core.name} tensor cores"
    return "NumPy, int8 slices" if plan.engine == "int8" else "NumPy, float64 BLAS"


def _workspace(engine: _Engine, stack: tuple[int, int, int], panel: int) -> int:
    """Bytes held while a panel is computed."""
    rows, cols = min(stack[1], panel), min(stack[2], panel)
    sliced = engine.planes * (rows + cols) * engine.slab
    return 8 * _together(stack, panel) * ((engine.planes + engine.sums) * rows * cols + sliced) + 8 * 16 * TILE


def _together(stack: tuple[int, int, int], panel: int) -> int:
    """Matrices of a batch that are computed together: as many as fill a panel."""
    batch, m, n = stack
    return max(1, min(batch, panel * panel // (m * n), 2 * panel // (m + n))) if max(m, n) <= panel else 1


def _panel(engine: _Engine, stack: tuple[int, int, int], limit: int | None) -> int:
    """Rows of a panel within the caller's limit."""
    panel = _PANEL
    while limit is not None and (needed := _workspace(engine, stack, panel)) > limit:
        if panel <= 16:
            raise ValueError(f"workspace_limit: leaves {limit} bytes for slices, which need at least {needed}")
        panel //= 2
    return panel


def split(operand: Described, side: str, plan: Plan) -> Slices | WordSlices:
    """The slices of a whole operand."""
    assert plan.scheme is not None
    if isinstance(plan.scheme, Words):
        return _words.split(operand, plan.scheme)
    engine = _engine(plan)
    mu = _exponents(operand, plan.scheme)
    return Slices(operand, _slices_of(operand, mu, engine, side, slice(None), slice(None), slice(None)), mu)


def split_in_one_read(plan: Plan, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
    """Nothing: no read is spared."""


def _exponents(operand: Described, scheme: Scheme) -> npt.NDArray[np.int64]:
    return operand.on_host.exponents(scaling_of(scheme, operand.k))


def axpby(
    alpha: np.floating[Any],
    x: npt.NDArray[Any],
    beta: np.floating[Any],
    y: npt.NDArray[Any] | None,
    out: npt.NDArray[Any],
) -> None:
    np.multiply(x, alpha, out=x)
    if y is not None:
        x += y.astype(x.dtype, copy=False) * beta
    if out is not x:
        out[...] = x


def underflows(operand: Described, words: Words) -> int:
    """Elements that underflow in a split into words."""
    return _words.underflows(operand, words)


def core() -> TensorCore:
    """As the presets have it."""
    return H100


def words_obstacle(words: Words) -> str | None:
    """Nothing: every tensor core is modelled."""
    return None


def same_slices(plan: Plan, other: Plan) -> bool:
    """Nothing else decides how slices lie."""
    return True


def product(plan: Plan, x: npt.NDArray[Any], y: npt.NDArray[Any], out: npt.NDArray[Any]) -> int:
    """Compute out = x y^T of rows that nothing is known of; returns the bytes of workspace."""
    return execute(plan, describe(x), describe(y), out)


def execute(
    plan: Plan, left: Described | Slices | WordSlices, right: Described | Slices | WordSlices, out: npt.NDArray[Any]
) -> int:
    """Compute out, shape (batch, m, n); returns the bytes of workspace."""
    if isinstance(plan.scheme, Words):
        assert not isinstance(left, Slices) and not isinstance(right, Slices)
        used = _words.execute(plan.scheme, left, right, out, plan.workspace_limit)
    else:
        assert not isinstance(left, WordSlices) and not isinstance(right, WordSlices)
        used = _execute(plan, left, right, out)
    operands = [x if isinstance(x, Described) else x.described for x in (left, right)]
    flags = [x.on_host.nonfinite for x in operands]
    if any(f.any() for f in flags):
        _patch(operands[0].x, operands[1].x, flags, out)
    return used


def _execute(plan: Plan, left: Described | Slices, right: Described | Slices, out: npt.NDArray[Any]) -> int:
    """The exact schemes, finite elements only."""
    assert isinstance(plan.scheme, Scheme)
    engine = _engine(plan)
    panel = _panel(engine, out.shape, plan.workspace_limit)
    mu, nu = (x.mu if isinstance(x, Slices) else _exponents(x, plan.scheme) for x in (left, right))
    for b, rows in _panels(out.shape, panel):
        for c in range(0, out.shape[2], panel):
            cols = slice(c, min(c + panel, out.shape[2]))
            sums = _multiply(engine, left, right, mu, nu, _at(left, b), _at(right, b), rows, cols)
            _recombine(engine, sums, mu[_at(left, b), rows], nu[_at(right, b), cols], out[b, rows, cols])
    return _workspace(engine, out.shape, panel)


def _panels(stack: tuple[int, int, int], panel: int) -> Iterator[tuple[slice, slice]]:
    """Cut (batch, m) into panels; small products of a batch go together."""
    batch, m, _ = stack
    together = _together(stack, panel)
    for b in range(0, batch, together):
        for r in range(0, m, panel):
            yield slice(b, min(b + together, batch)), slice(r, min(r + panel, m))


def _at(operand: Described | Slices, b: slice) -> slice:
    """The same batch entries, or the only one."""
    described = operand.described if isinstance(operand, Slices) else operand
    return slice(0, 1) if described.x.shape[0] == 1 else b


def _slices_of(
    operand: Described | Slices, mu: npt.NDArray[np.int64], engine: _Engine, side: str, b: slice, rows: slice, hs: slice
) -> Floats:
    """The slices of some rows and inner indices, shape (planes, batch, rows, k)."""
    if isinstance(operand, Slices):
        return operand.planes[:, b, rows, hs]
    x = operand.x[b, rows, hs]
    mu = mu[b, rows]
    # The memory order of x is kept, so that a transposed operand is read and written along its rows.
    planes = np.empty((engine.planes, *turned(x, x).shape))
    nonfinite = bool(operand.on_host.nonfinite.any())
    for at, piece, exponents in along_memory(x, mu):
        image = _image(piece, exponents, nonfinite)
        if engine.remainders:
            _residues(image, engine.remainders, side, planes[(slice(None), *at)])
        else:
            _digit_blocks(image, engine, side, planes[(slice(None), *at)])
    return turned(planes, x)


def _image(x: npt.NDArray[Any], mu: npt.NDArray[np.int64], nonfinite: bool) -> Floats:
    """RN(2**mu x), ties to even, as float64."""
    values = x.astype(np.float64, copy=False)
    if nonfinite:
        values = np.where(np.isfinite(values), values, 0.0)
    image = scale(values, mu)
    return np.rint(image, out=image)


def _residues(image: Floats, crt: Remainders, side: str, out: Floats) -> None:
    """out[t] = image (times the CRT inverse on the left) mod moduli[t], symmetric; of a tile, contiguous."""
    bits = int(np.frexp(np.abs(image).max(initial=0.0))[1])
    count = max(-(-bits // _PIECE_BITS), 1)
    pieces = np.empty((count, image.size))
    pieces[0] = image.reshape(-1)
    for below, above in pairwise(pieces):
        np.rint(below * 2.0**-_PIECE_BITS, out=above)
        below -= above * 2.0**_PIECE_BITS
    factors = crt.inverses if side == "left" else (1,) * len(crt.moduli)
    table = [
        [_symmetric(f << (_PIECE_BITS * j), m) for j in range(count)] for f, m in zip(factors, crt.moduli, strict=True)
    ]
    totals = out.reshape(len(out), -1)
    np.matmul(np.array(table, np.float64), pieces, out=totals)  # exact: see _LEAST_DEPTH
    for total, m in zip(totals, crt.moduli, strict=True):
        _reduce(total, m, pieces[0], total)


def _symmetric(x: int, m: int) -> int:
    """The residue of x of least absolute value."""
    return (x + m // 2) % m - m // 2


def _reduce(x: Floats, m: int, scratch: Floats, out: Floats) -> None:
    """out = x mod m, which may be x; abs(out) <= m/2 (1 + 2**-20); x an integer up to 2**53."""
    np.multiply(x, 1.0 / m, out=scratch)
    np.rint(scratch, out=scratch)
    scratch *= m
    np.subtract(x, scratch, out=out)


def _digit_blocks(image: Floats, engine: _Engine, side: str, out: Floats) -> None:
    """out[r] = the block of digits that rectangle r takes from this side, as one integer."""
    assert isinstance(engine.scheme, Digits)
    p, bits = engine.scheme.count, engine.scheme.bits
    leading = [_leading_digits(image, s, p, bits) for s in range(p + 1)]
    for r, block in enumerate(engine.rectangles):
        first, count = (block.s0, block.rows) if side == "left" else (block.t0, block.cols)
        out[r] = leading[first + count] - leading[first] * 2.0 ** (bits * count)


def _leading_digits(image: Floats, s: int, p: int, bits: int) -> Floats:
    """The first s balanced digits of p as one integer: floor((image + B) / w), B = half of w - 1 in every digit."""
    if s == 0:
        return np.zeros_like(image)
    low = bits * (p - s)
    if low == 0:
        return image
    whole = np.floor(image * 2.0**-low)
    rest = image - whole * 2.0**low
    below = (2 ** (bits - 1)) * ((2**low - 1) // (2**bits - 1))
    whole += rest >= _at_least(2**low - below)
    return whole


def _at_least(x: int) -> float:
    """Smallest float64 >= x."""
    nearest = float(x)
    return nearest if int(nearest) >= x else float(np.nextafter(nearest, np.inf))


def _multiply(
    engine: _Engine,
    left: Described | Slices,
    right: Described | Slices,
    mu: npt.NDArray[np.int64],
    nu: npt.NDArray[np.int64],
    at_left: slice,
    at_right: slice,
    rows: slice,
    cols: slice,
) -> Floats:
    """The exact product of two panels, shape (planes, batch, m, n): by residues, or as limbs of the digits' sum."""
    k = (left.described if isinstance(left, Slices) else left).k
    sums: Floats | None = None
    for h in range(0, k, engine.slab):
        hs = slice(h, min(h + engine.slab, k))
        a = _slices_of(left, mu, engine, "left", at_left, rows, hs)
        b = _slices_of(right, nu, engine, "right", at_right, cols, hs)
        product: Floats = np.matmul(a, b.swapaxes(-1, -2))
        del a, b  # before the next ones
        if engine.remainders is None:
            sums = np.zeros((engine.limbs, *product.shape[1:])) if sums is None else sums
            _add_digit_products(engine, product, sums)
        else:
            if k > engine.slab:  # else it is reduced when it is recombined
                _reduce_planes(product, engine.remainders)
            sums = product if sums is None else np.add(sums, product, out=sums)
        del product
    assert sums is not None
    return sums


def _reduce_planes(product: Floats, crt: Remainders) -> None:
    """Each plane modulo its modulus, in place."""
    scratch = np.empty(TILE)
    for plane, m in zip(product.reshape(len(product), -1), crt.moduli, strict=True):
        for i in range(0, plane.size, TILE):
            tile = plane[i : i + TILE]
            _reduce(tile, m, scratch[: tile.size], tile)


def _add_digit_products(engine: _Engine, product: Floats, limbs: Floats) -> None:
    """Add the rectangles' products to the limbs by their weights, in units of the last digit kept."""
    assert isinstance(engine.scheme, Digits)
    p, bits = engine.scheme.count, engine.scheme.bits
    planes, limbs = product.reshape(len(product), -1), limbs.reshape(len(limbs), -1)
    for i in range(0, planes.shape[1], TILE // 4):
        for block, plane in zip(engine.rectangles, planes[:, i : i + TILE // 4], strict=True):
            last = block.s0 + block.rows + block.t0 + block.cols
            _limbs.add_shifted(limbs[:, i : i + TILE // 4], plane, bits * (p + 1 - last))


def _recombine(
    engine: _Engine, sums: Floats, mu: npt.NDArray[np.int64], nu: npt.NDArray[np.int64], out: npt.NDArray[Any]
) -> None:
    """The exact integers, rounded once into out, shape (batch, m, n)."""
    shift = engine.scheme.bits * (engine.scheme.count - 1) if isinstance(engine.scheme, Digits) else 0
    batch, m, n = out.shape
    for at in row_tiles(batch, m, n, share=4):
        limbs = sums[(slice(None), *at)].reshape(len(sums), -1)
        if engine.remainders:
            limbs = _limbs_of_residues(engine.remainders, limbs)
        rows = at if mu.shape[0] == batch else (slice(0, 1), at[1])
        cols = at[0] if nu.shape[0] == batch else slice(0, 1)
        _limbs.round_scaled(limbs, shift - mu[rows], -nu[cols], out[at])


def _limbs_of_residues(crt: Remainders, residues: Floats) -> Floats:
    """Chinese remainders: limbs = weights y - q product, one small matrix product."""
    count = len(crt.moduli)
    y = np.empty((count + 1, residues.shape[1]))
    for t, m in enumerate(crt.moduli):
        _reduce(residues[t], m, y[count], y[t])
    np.matmul(np.array([1.0 / m for m in crt.moduli]), y[:count], out=y[count])
    np.rint(y[count], out=y[count])
    limbs: Floats = np.matmul(_weight_limbs(crt), y)
    return limbs


@lru_cache(maxsize=1024)
def _weight_limbs(crt: Remainders) -> Floats:
    """Limbs of the weights and of -product, shape (limbs, moduli + 1)."""
    count = -(-(crt.product.bit_length() + 1) // _limbs.LIMB_BITS)
    half, base = 2 ** (_limbs.LIMB_BITS - 1), 2**_limbs.LIMB_BITS
    table = np.zeros((count, len(crt.moduli) + 1))
    for column, weight in enumerate((*crt.weights, -crt.product)):
        for limb in range(count):
            digit = weight if limb == count - 1 else (weight + half) % base - half
            table[limb, column] = digit
            weight = (weight - digit) // base
    return table


def _patch(
    left: npt.NDArray[Any], right: npt.NDArray[Any], flags: list[npt.NDArray[np.int64]], out: npt.NDArray[Any]
) -> None:
    """What IEEE arithmetic gives in rows and columns with NaN or Inf (docs/design.md, section 8)."""
    for b in range(out.shape[0]):
        i, j = (min(b, len(x) - 1) for x in (left, right))
        rows, cols = (np.flatnonzero(flag[at]) for flag, at in zip(flags, (i, j), strict=True))
        for some, others in ((rows, np.arange(out.shape[2])), (np.arange(out.shape[1]), cols)):
            for r in range(0, len(some), _PATCH):
                for c in range(0, len(others), _PATCH):
                    at = np.ix_(some[r : r + _PATCH], others[c : c + _PATCH])
                    out[b][at] = _sign_product(left[i], right[j], *at)


_PATCH = 256
"""Rows, columns and inner indices that are looked at together: a few hundred KiB."""


def _sign_product(
    a: npt.NDArray[Any], b: npt.NDArray[Any], rows: npt.NDArray[np.intp], cols: npt.NDArray[np.intp]
) -> Floats:
    """Entries of a b^T, of which only NaN and Inf matter: finite elements count as their signs."""
    total = np.zeros((rows.size, cols.size))
    for h in range(0, a.shape[1], _PATCH):
        x, y = (of[at.ravel(), h : h + _PATCH] for of, at in ((a, rows), (b, cols)))
        total += np.matmul(_signs(x), _signs(y).T)
    total[np.isnan(total)] = np.nan  # one NaN, whatever the processor made
    return total


def _signs(x: npt.NDArray[Any]) -> Floats:
    """The sign of finite elements; NaN and Inf as they are."""
    return np.where(np.isfinite(x), np.sign(x), x).astype(np.float64)
