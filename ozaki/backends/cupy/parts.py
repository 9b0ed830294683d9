"""Parts of a product on CuPy: some rows of A, some columns of B, at some of the inner indices.

As `backends/numpy/parts.py`, in device memory: what parts have in common comes from descriptions of the whole rows, so
products of parts are integers in the same units, and their sum is the integer that one product over all of k has. All
runs on CuPy's current stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from ozaki.backends.combining import combine_in_pieces
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.devices.device import Device
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.inputs import arrays_of, contiguous_view, result_view
from ozaki.backends.cupy.program.arrays import DTYPES, Array, View, contiguous_steps, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.launches import launch
from ozaki.backends.cupy.program.program import Program
from ozaki.backends.cupy.program.run import Execution
from ozaki.backends.cupy.steps.engines.choice import cublas_engine, has_complex_slices, slice_engine, slices_obstacle
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.epilogue import Combine, Keep, Round
from ozaki.backends.cupy.steps.operands import Described, Scales, Slices
from ozaki.backends.cupy.steps.parts import COLUMNS, add_planes, extremes_kernel, sums_kernel
from ozaki.backends.cupy.steps.unrounded import Planes
from ozaki.backends.cupy.steps.wide import is_wide
from ozaki.backends.numpy import _nonfinite
from ozaki.bounds.description import FIELDS, Description, Ints
from ozaki.bounds.merging import Floats, no_extremes, tops
from ozaki.caches import cached
from ozaki.multiprecision.floats import empty as empty_numbers
from ozaki.multiprecision.limbs import LIMB_BITS
from ozaki.records.combination import Combination
from ozaki.records.memory import Memory
from ozaki.schemes import ComplexResidues, Digits, Residues, Scaling, Scheme, scaling_of
from ozaki.schemes.constants import KernelScheme, product_limbs

# Descriptions ---------------------------------------------------------------------------------------------------------


def extremes(x: Any) -> Floats:
    """The first round of `bounds.merging` for a part of rows, shape (1, rows, indices): (2, rows), on the host."""
    found = no_extremes(x.shape[1])
    if x.size:
        bits = cp.zeros((2, x.shape[1]), np.uint64)
        launch(extremes_kernel(view_of(x)), x.data.ptr, bits.data.ptr)
        largest, least = cp.asnumpy(bits)
        some = largest > 0
        found[0, some] = largest[some].view(np.float64)
        found[1, some] = -(~least[some]).view(np.float64)
    return found


def sums(x: Any, merged: Floats, k: int) -> Ints:
    """The second round of `bounds.merging` for a part of rows; on the host, shape (4, rows).

    `merged` are the extremes of the whole rows, of k real numbers each.
    """
    if not x.size:
        return np.zeros((4, x.shape[1]), np.int64)
    found, units = cp.zeros((4, x.shape[1]), np.int64), cp.asarray(np.ascontiguousarray(tops(merged), np.int32))
    launch(sums_kernel(view_of(x), k), x.data.ptr, units.data.ptr, found.data.ptr)
    on_host: Ints = cp.asnumpy(found)
    return on_host


_SIDE = 1024
"""Rows, columns and inner indices whose signs are multiplied at a time."""


class Touched(_nonfinite.Touched):
    """As that of NumPy, its totals in device memory."""

    _library, _side = cp, _SIDE


_ARRAYS = 12
"""Float64 arrays of so many rows and columns that are held meanwhile, masks included."""


# Products -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """What multiplies parts of a product: engines of a device, of which any leave the same integers.

    Attributes
    ----------
    device : Device
    scheme : of the slices
    k : real numbers of a whole row
    asked : the engine that is asked for
    rows : how many have their slices multiplied at a time
    """

    device: Device
    scheme: KernelScheme
    k: int
    asked: str
    rows: int

    def engine(self, m: int, k: int, n: int, rounds: bool = False) -> Engine:
        """The engine of a part of that size, which keeps products; or with `rounds` one that may round them at once."""
        shape = min(m, self.rows), k, n
        found = slice_engine(self.device, self.scheme, self.asked, 1, shape, quadrants=rounds)
        return found if rounds or found.keeps else cublas_engine(self.device, self.scheme)

    @property
    def label(self) -> str:
        """The device and the engine of large parts of k, for reports."""
        return self.name(_LARGE, _LARGE, _LARGE)

    def name(self, m: int, k: int, n: int, rounds: bool = False) -> str:
        """The device and the engine of parts of that size, for reports; `rounds`: of all of k, rounded at once."""
        return f"{self.device.name}, {self.engine(m, k, n, rounds).label}"

    @property
    def planes(self) -> tuple[int, str]:
        """How many planes un-rounded sums have, and their dtype."""
        if isinstance(self.scheme, Residues):
            return self.scheme.bytes, "B"
        return self.scheme.count, "i" if self.k <= self.scheme.depth() // 128 * 128 else "q"

    def sums_shape(self, m: int, n: int) -> tuple[int, int, int, int]:
        """The shape of un-rounded sums."""
        return self.planes[0], 1, m, round_up(n, COLUMNS)

    def panel_bytes(self, dtypes: tuple[str, str], dtype: str, m: int, k: int, n: int) -> int:
        """Bytes that a part takes beside operands and sums; or, of all of k, beside the result, of that dtype."""
        if 0 in (m, k, n):
            return 0
        left, right = contiguous_view(dtypes[0], (1, m, k)).arrays[0], contiguous_view(dtypes[1], (1, k, n)).arrays[0]
        right = View(right.dtype, (1, n, k), (right.steps[0], 1, n))
        found = _adding_program(self, left, right).room.nbytes
        if k * left.dtype.parts < self.k:
            return found
        return max(found, _rounding_program(self, left, right, contiguous_view(dtype, (1, m, n)).arrays[0]).room.nbytes)

    def touched_bytes(self, m: int, k: int, n: int) -> int:
        """Bytes that it takes, at most, to find the entries of a part that NaN and Inf touch, beside these."""
        return 8 * _ARRAYS * min(_SIDE, max(m, k, n)) ** 2

    def expression_bytes(self, combined: bool) -> int:
        """Bytes, at most, that rounding takes beside the sums, the result and the addend."""
        return _EXPRESSION if combined and is_wide(self.scheme, False) else 0


def obstacle(scheme: Scheme, engine: str) -> str | None:
    """Why parts of products by a scheme are not multiplied, by the engine that is asked for; None if they are."""
    if isinstance(scheme, ComplexResidues):
        return None if has_complex_slices(scheme) else f"{scheme.name} are slices of parts of complex elements"
    if isinstance(scheme, Digits) and engine == "fused":
        return "engine='fused' rounds products of digits at once"
    return slices_obstacle(scheme, engine)


def engine_for(scheme: Scheme, k: int, name: str) -> Parts:
    """What multiplies parts by a scheme on the current device, for k real numbers of a row."""
    assert isinstance(scheme, KernelScheme)
    return Parts(devices.current(), scheme, k, name, ROWS)


def begin(
    scheme: Scheme, engine: str, rows: Description, cols: Description, is_complex: bool
) -> tuple[PartialProduct, Touched]:
    """A product to which nothing was added, and what NaN and Inf make of it, on the current device."""
    of = engine_for(sliced(scheme), rows.k, engine), rows, cols, scaling_of(scheme, rows.k)
    return PartialProduct.of(*of), Touched((rows.nonfinite[0] > 0, cols.nonfinite[0] > 0), is_complex)


def sliced(scheme: Scheme) -> Scheme:
    """The scheme of the slices that are multiplied: of complex residues that of both parts, of others itself."""
    return scheme.slices if isinstance(scheme, ComplexResidues) else scheme


Form = tuple[int, str, int]
"""Of un-rounded sums: planes, dtype, and how many terms they have."""


class PartialProduct:
    """The un-rounded product of some rows of A and columns of B over the inner indices that were added so far.

    Attributes
    ----------
    engine : that of the plan's scheme, for all of k
    fields : the descriptions of the rows and of the columns, int64, shapes (6, 1, m) and (6, 1, n); None of a product
        to which sums alone are added
    mu, nu : exponents of the images of rows and columns, int32, shapes (1, m) and (1, n)
    sums : exact integers in planes, shape `engine.sums_shape`: of residues classes modulo each number, or after
        `wide_sums` sums of their bytes. None before anything was added
    terms : how many parts were added
    """

    def __init__(self, engine: Parts, mu: Any, nu: Any, fields: tuple[Any, Any] | None = None) -> None:
        self.engine, self.mu, self.nu, self.fields = engine, mu, nu, fields
        self.sums: Any = None
        self.terms = 0

    @classmethod
    def of(cls, engine: Parts, left: Description, right: Description, scaling: Scaling) -> PartialProduct:
        """That of rows and columns with these descriptions, before anything was added."""
        mu, nu = (cp.asarray(each.exponents(scaling).astype(np.int32)) for each in (left, right))
        fields = (cp.asarray(np.stack([getattr(each, name) for name in FIELDS])) for each in (left, right))
        of_left, of_right = fields
        return cls(engine, mu, nu, (of_left, of_right))

    def of_rows(self, rows: slice) -> PartialProduct:
        """That of some of the rows, before anything was added, for sums of other parts."""
        return PartialProduct(self.engine, self.mu[:, rows].copy(), self.nu)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.mu.shape[1], self.nu.shape[1]

    def add_product(self, x: Any, y: Any, _finite: tuple[bool, bool]) -> None:
        """Split a part of k of both operands, shapes (1, m, indices) and (1, n, indices), multiply the slices, and add.

        NaN and Inf count as zero. Waits for the device.
        """
        if 0 in (*self.shape, x.shape[2]):
            return
        assert self.fields is not None
        program = _adding_program(self.engine, view_of(x), view_of(y))
        _run(program, (x, y, *self.fields, self._own_sums()))
        cp.cuda.get_current_stream().synchronize()  # so that whoever measures time sees that of the product
        self.terms += 1

    def round_product(self, x: Any, y: Any, _finite: tuple[bool, bool], out: Any) -> bool:
        """Multiply all of k, and round into out, shape (m, n), contiguous, without sums; True. Waits for the device."""
        if 0 in (*self.shape, x.shape[2]):
            return False
        assert self.fields is not None
        _run(_rounding_program(self.engine, view_of(x), view_of(y), view_of(out[None])), (x, y, *self.fields, out))
        cp.cuda.get_current_stream().synchronize()
        return True

    @property
    def form(self) -> Form | None:
        """The form of the sums; None before anything was added."""
        return None if self.sums is None else (len(self.sums), str(self.sums.dtype), self.terms)

    def part(self, rows: slice) -> Any:
        """The sums of some rows, contiguous; None before anything was added."""
        return None if self.sums is None else cp.ascontiguousarray(self.sums[:, :, rows])

    def room(self, form: Form, rows: int) -> Any:
        """A new array for the sums that another part has of so many rows; undefined."""
        planes, dtype, _ = form
        return cp.empty((planes, 1, rows, self.engine.sums_shape(rows, self.shape[1])[3]), dtype)

    def add(self, sums: Any, terms: int) -> None:
        """Add the sums of another part, of the same engine and shape, which has so many terms; the first are kept."""
        self.terms += terms
        if self.sums is None:
            self.sums = sums
        elif sums.dtype != self.sums.dtype or _are_wide(self.engine, sums):
            own = self.wide_sums()
            own += widened(sums)
        elif sums.size:
            _run(_adding_sums(self.engine, view_of(sums)), (sums, self.sums))

    def round_into(self, out: Any, combination: Combination | None = None) -> None:
        """Round A B, or an expression with it, once into out, shape (m, n), contiguous; the sums are freed."""
        if 0 in out.shape:
            return
        whole, self.sums = self._own_sums(), None
        scheme = self.engine.scheme
        if combination is None or not is_wide(scheme, False):
            self._round(whole, slice(None), out[None], combination)
            return
        (m, n), bits = out.shape, LIMB_BITS * product_limbs(scheme)
        rows = max(1, _ENTRIES // n)
        for r in range(0, m, rows):
            some = slice(r, min(r + rows, m))
            every_bit = empty_numbers((1, some.stop - r, n), bits, cp)
            self._round(cp.ascontiguousarray(whole[:, :, some]), some, every_bit, None)
            at = combination.at((slice(None), some))
            combine_in_pieces(every_bit, at, out[None, some], Memory(_EXPRESSION))

    def wide_sums(self) -> Any:
        """The sums in a format in which those of thousands of parts may be added; zeros before anything was added."""
        if self.sums is None:
            self._own_sums()
        self.sums = widened(self.sums)
        return self.sums

    def copy(self) -> PartialProduct:
        """One with sums of its own."""
        found = PartialProduct(self.engine, self.mu, self.nu, self.fields)
        found.sums, found.terms = None if self.sums is None else self.sums.copy(), self.terms
        return found

    def _own_sums(self) -> Any:
        """The sums as engines hold them; zeros before anything was added."""
        if self.sums is None:
            self.sums = cp.zeros(self.engine.sums_shape(*self.shape), self.engine.planes[1])
        self.sums = narrowed(self.engine, self.sums)
        return self.sums

    def _round(self, sums: Any, rows: slice, out: Any, combination: Combination | None) -> None:
        """Round the sums of some rows into out, shape (1, rows, n), floats or numbers of all bits."""
        mu = self.mu[:, rows].copy()
        c = None if combination is None else combination.c
        b = Builder()
        planes, of_rows, of_cols = (
            b.given(name, view_of(each)) for name, each in (("sums", sums), ("mu", mu), ("nu", self.nu))
        )
        addend = None if c is None else b.given("addend", view_of(c))
        result = result_view(out).array("c", b.given)
        epilogue: Round | Combine = Round(result)
        if combination is not None:
            assert isinstance(result, Array)
            alpha, beta = combination.values
            epilogue = Combine(result, alpha, beta if addend is not None else 0.0, addend or result)
        product = Planes(self.engine.scheme, planes, Scales(of_rows), Scales(of_cols))
        product.finish(b, self.engine.device, epilogue)
        _run(b.program(), (sums, mu, self.nu, *(() if c is None else (c,)), *arrays_of(out)))


def _are_wide(engine: Parts, sums: Any) -> bool:
    """Whether these are sums of bytes of residues, in place of the bytes."""
    return isinstance(engine.scheme, Residues) and sums.dtype == np.int32


def widened(sums: Any) -> Any:
    """Bytes of residues as int32, which holds sums of millions of them; digits, which are wide already."""
    return sums if sums.dtype != np.uint8 else sums.astype(np.int32)


def narrowed(engine: Parts, sums: Any) -> Any:
    """The same as engines hold them: the residues of what sums of their bytes stand for."""
    if not _are_wide(engine, sums):
        return sums
    assert isinstance(engine.scheme, Residues)
    found, byte, first = cp.empty(sums.shape, np.uint8), 0, 0
    for digits, count in enumerate(engine.scheme.by_digits, 1):
        for modulus in engine.scheme.moduli[first : first + count]:
            residue = sums[byte].astype(np.int64)
            for digit in range(1, digits):
                residue += sums[byte + digit].astype(np.int64) << (8 * digit)
            residue %= modulus
            for digit in range(digits):
                found[byte + digit] = ((residue >> (8 * digit)) & 255).astype(np.uint8)
            byte += digits
        first += count
    return found


ROWS = 4096
"""Rows whose slices are multiplied at a time, so that they and their products take little memory beside the sums."""

_LARGE = 4096
"""Rows, columns and inner indices of a large part."""

_ENTRIES = 2**20
"""Entries, about, of which every bit is held at a time where the kernels round no expression."""

_EXPRESSION = 2**29
"""Bytes that these, and their sums with the addend, take at most."""


def _run(program: Program, arrays: Iterable[Any]) -> None:
    """Run a program on all arrays that it is given."""
    execution = Execution()
    execution.bind(program.given, arrays)
    execution.run(program)


@cached(64)
def _adding_program(engine: Parts, left: View, right: View) -> Program:
    """The program that multiplies a part of k and adds the product to sums.

    It is given the rows of A and the columns of B, shapes (1, m, indices) and (1, n, indices), the descriptions of the
    whole rows and columns, and the sums.
    """
    b, x, y = _of_part(engine, left, right)
    (_, m, k), n = left.shape, right.shape[1]
    sums = b.given("sums", _contiguous(engine.planes[1], engine.sums_shape(m, n)))
    chosen = engine.engine(m, k, n)
    for first, last, slices, columns in _split(b, engine, chosen, x, y):
        product = chosen.multiply(b, engine.scheme, slices, columns, Keep((1, last - first, n)))
        assert isinstance(product, Planes)
        b.release(slices.planes, slices.mu)
        add_planes(b, engine.scheme, product.planes, sums.part(2, first, last))
        product.release(b)
    return b.program()


@cached(64)
def _rounding_program(engine: Parts, left: View, right: View, out: View) -> Program:
    """The program that multiplies all of k and rounds the product: as `_adding_program`, with the result last."""
    b, x, y = _of_part(engine, left, right)
    result = b.given("c", out)
    chosen = engine.engine(out.shape[1], left.shape[2], out.shape[2], rounds=True)
    for first, last, slices, columns in _split(b, engine, chosen, x, y):
        chosen.multiply(b, engine.scheme, slices, columns, Round(result.part(1, first, last)))
        b.release(slices.planes, slices.mu)
    return b.program()


def _of_part(engine: Parts, left: View, right: View) -> tuple[Builder, Described, Described]:
    """A builder that is given a part of k of both operands, and the descriptions of the whole rows and columns."""
    b = Builder()
    b.title = f"a part of ({left.shape[1]} x {left.shape[2]}) ({right.shape[2]} x {right.shape[1]})"
    x, y = b.given("a", left), b.given("b", right)
    of_left, of_right = (
        b.given(f"{of.buffer.name}.fields", _contiguous("q", (len(FIELDS), 1, of.shape[1]))) for of in (x, y)
    )
    return b, Described(x, of_left, length=engine.k), Described(y, of_right, length=engine.k)


def _split(
    b: Builder, engine: Parts, chosen: Engine, x: Described, y: Described
) -> Iterator[tuple[int, int, Slices, Slices]]:
    """Some rows at a time: the first and the one after the last, their slices, and those of all columns."""
    m = x.x.shape[1]
    columns = chosen.split(b, y, "right", engine.scheme)
    for first in range(0, m, engine.rows):
        last = min(first + engine.rows, m)
        some = x.some_rows(b, (0, 1), (first, last))
        slices = chosen.split(b, some, "left", engine.scheme)
        some.release_rows(b, x)
        yield first, last, slices, columns


@cached(64)
def _adding_sums(engine: Parts, view: View) -> Program:
    """The program that adds sums to others of the same shape."""
    b = Builder()
    more, own = b.given("sums of another part", view), b.given("sums", view)
    add_planes(b, engine.scheme, more, own)
    return b.program()


def _contiguous(char: str, shape: tuple[int, ...]) -> View:
    return View(DTYPES[char], shape, contiguous_steps(shape))
