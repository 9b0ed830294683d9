"""Residues of any number of moduli: of three digits, in narrow blocks, in parts of k, panels and batches; hard numbers.

Exact integers and rationals are the reference, or NumPy, whose bits are those of rationals (tests/test_multiprecision).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from chosen import Chosen
from ozaki import MPArray, mparray
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.products import program_of
from ozaki.backends.cupy.program.steps import Launch
from ozaki.backends.cupy.steps import wide
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines import cublas_residues, shares
from ozaki.backends.cupy.steps.engines.choice import cublas_engine
from ozaki.backends.cupy.steps.engines.cublas_residues import CublasResidues
from ozaki.backends.cupy.steps.engines.engine import Engine, units_of, workspace_of
from ozaki.backends.cupy.steps.engines.fused_residues import FusedResidues
from ozaki.backends.cupy.steps.epilogue import Round
from ozaki.backends.cupy.steps.numbers import NumbersArray, describe_numbers
from ozaki.backends.cupy.steps.operands import Slices
from ozaki.backends.numpy import _describe as describing
from ozaki.backends.numpy import _numbers as on_host
from ozaki.bounds.description import FIELDS
from ozaki.multiprecision.floats import empty
from ozaki.multiprecision.numbers import Numbers
from ozaki.schemes import Residues
from ozaki.schemes.moduli import digits_of
from ozaki.schemes.residues import remainders
from runs.device import Part, guarded, seen
from runs.operands import same

Operand = MPArray | np.ndarray


# Operands, and what their products are --------------------------------------------------------------------------------


def operand(rng: np.random.Generator, shape: tuple[int, ...], bits: int, spread: int = 0) -> MPArray:
    """Numbers of up to so many bits, one in eight zero, and a row of zeros; spread over binary orders."""
    whole = np.empty(shape, object)
    for index in np.ndindex(*shape):
        size = int(rng.integers(1, bits + 1)) if rng.random() < 0.2 else bits
        value = int.from_bytes(rng.bytes(bits // 8 + 1), "little") % 2**size
        whole[index] = 0 if rng.random() < 0.125 else int(rng.choice((1, -1))) * value
    if shape[-2] > 2:
        whole[..., 1, :] = 0
    x: MPArray = mparray(whole, bits=bits)
    if spread:
        x = x.ldexp(rng.integers(-spread, spread + 1, shape) + rng.integers(-9, 9, (*shape[:-1], 1)) * spread)
    return x


def in_memory(x: MPArray, turned: bool) -> MPArray:
    """The same numbers; `turned`: with neighbours along the rows next to each other."""
    return x.swapaxes(-1, -2).copy().swapaxes(-1, -2) if turned else x


def power(exponent: int) -> Fraction:
    return Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent)


def rationals(x: Any) -> np.ndarray:
    """The elements as Fractions; NaN and Inf count as zeros."""
    found = np.empty(x.shape, object)
    if not isinstance(x, Numbers):
        for index in np.ndindex(*x.shape):
            found[index] = Fraction(float(x[index])) if np.isfinite(x[index]) else Fraction(0)
        return found
    for index in np.ndindex(*x.shape):
        limbs = x.limbs[(slice(None), *index)].tolist()
        whole = sum(limb << 32 * i for i, limb in enumerate(reversed(limbs)))
        found[index] = int(x.signs[index]) * whole * power(int(x.exponents[index]) - 32 * len(limbs))
    return found


def rounded(value: Fraction, bits: int) -> Fraction:
    """The nearest number of so many bits, ties to even."""
    if value == 0:
        return value
    top = abs(value.numerator).bit_length() - value.denominator.bit_length()
    top += abs(value) >= power(top)  # now 2^(top-1) <= abs(value) < 2^top
    return round(value / power(top - bits)) * power(top - bits)


def leading_bits(rng: np.random.Generator) -> None:
    """The leading bits of rows, their tops and bottoms, and what they are described by."""
    for bits, spread in ((20, 0), (53, 9), (54, 300), (64, 700), (65, 0), (96, 2000), (97, 10**6), (300, 30)):
        x = operand(rng, (2, int(rng.integers(3, 40)), int(rng.integers(1, 600))), bits, spread)
        x = mparray(x.ldexp(int(rng.integers(-(2**50), 2**50)))) if rng.random() < 0.5 else x
        values, tops, bottoms = on_host.leading(x)
        for turned in (False, True):
            with guarded():
                part = Part()
                described = describe_numbers(part.b, part.numbers(ozaki.ascupy(in_memory(x, turned))))
                fields = part.fields(described)
                assert described.tops is not None
                assert np.array_equal(part.value(described.tops), tops)
                found = part.value(described.x.swapped()).swapaxes(1, 2) if turned else part.value(described.x)
            same(values, found.copy() + 0.0)
            expected = describing.describe(values).fields.copy()
            filled = (values != 0).any(axis=2)
            expected[FIELDS.index("bottom")][filled] = bottoms[filled]
            assert np.array_equal(fields, expected), (bits, spread)


# Steps alone, against exact integers ----------------------------------------------------------------------------------


def sliced(part: Part, engine: Engine, scheme: Residues, x: Operand, side: str, unsigned: bool = False) -> Slices:
    """An operand, shape (batch, rows, k), described and split."""
    name = "a" if side == "left" else "b"
    if isinstance(x, MPArray):
        described = describe_numbers(part.b, part.numbers(ozaki.ascupy(x), name))
    else:
        described = describe(part.b, part.given(cp.asarray(x), name))
    if unsigned:
        layout = replace(engine.layout(scheme, side, *x.shape), unsigned=True)
        return wide.split_wide(part.b, described, side, scheme, layout, part.device.block_memory)
    return engine.split(part.b, described, side, scheme)


def images(part: Part, slices: Slices, scheme: Residues, x: Operand) -> tuple[np.ndarray, np.ndarray]:
    """The integers RN(2^e x), and e of each row; their norms keep within what the scheme has room for."""
    scale = part.value(slices.mu).astype(object)
    if slices.described.tops is not None:
        scale = scale - part.value(slices.described.tops)
    found = rationals(x)
    for index in np.ndindex(*x.shape):
        found[index] = round(found[index] * power(int(scale[index[:2]])))
    assert ((found**2).sum(axis=2) <= scheme.largest**2).all()
    assert max(abs(found).max(), 1).bit_length() >= scheme.largest.bit_length() - 12 or not found.any()
    return found, scale


def check_product(
    engine: Engine, scheme: Residues, a: Operand, b: Operand, dtype: str = "mp100", parts: int = 1
) -> None:
    """Multiply rows, shapes (batch, m, k) and (batch, n, k), and compare with the exact integers, rounded once."""
    part = Part()
    left, right = (sliced(part, engine, scheme, x, side) for x, side in ((a, "left"), (b, "right")))
    shape = max(len(a), len(b)), a.shape[1], b.shape[1]
    bits = int(dtype[2:]) if dtype.startswith("mp") else 0
    real = empty(shape, bits, cp) if bits else cp.full(shape, np.nan, dtype)
    out: Any = part.numbers(real, "c") if bits else part.given(real, "c")
    engine.multiply(part.b, scheme, left, right, Round(out))
    (x, e), (y, f) = images(part, left, scheme, a), images(part, right, scheme, b)
    got = rationals(ozaki.asnumpy(MPArray(real.signs, real.exponents, real.limbs, bits)) if bits else cp.asnumpy(real))
    for index in np.ndindex(*shape):
        i, row, col = index
        at_a, at_b = (i * (len(each) > 1) for each in (a, b))
        whole = int((x[at_a, row] * y[at_b, col]).sum())
        assert abs(whole) <= scheme.range
        exact = whole * power(-int(e[at_a, row]) - int(f[at_b, col]))
        expected = rounded(exact, bits) if bits else Fraction(float(np.dtype(dtype).type(float(exact))))
        assert got[index] == expected, (scheme, index, float(got[index]), float(expected))


@contextmanager
def everywhere() -> Iterator[None]:
    """Let the kernels for any number of moduli split and round floating-point numbers, however few the moduli are."""
    with mock.patch.object(Residues, "several", True):
        yield


def three_digits(rng: np.random.Generator) -> None:
    """Residues of one digit, two and three: their slices, and products of them; of floats, too."""
    engine = CublasResidues(devices.current())
    schemes = Chosen.of(3, 9, 10), Chosen.of(17, 0, 1), Chosen.of(1, 1, 8), Chosen.of(33, 17, 11)
    with everywhere(), guarded():
        for i, scheme in enumerate(schemes):
            k = int(rng.integers(1, 40))
            a, b = operand(rng, (2, 3, k), 300, 40), operand(rng, (2, 5, k), 90)
            check_product(engine, scheme, in_memory(a, i % 2 == 0), in_memory(b, i % 2 == 1))
            check_product(engine, scheme, a[:1], b, "float64")
            floats = rng.standard_normal((1, 2, k)) * 2.0 ** rng.integers(-60, 60, (1, 2, k))
            floats[0, 1, 0] = (np.nan, np.inf, 5e-324, -np.inf)[i]
            check_product(engine, scheme, floats, np.asfortranarray(floats[:, ::-1]), "mp500")
        for scheme, unsigned, side in itertools.product(schemes, (False, True), ("left", "right")):
            check_slices(engine, scheme, operand(rng, (2, 3, int(rng.integers(1, 40))), 200, 30), side, unsigned)


def check_slices(engine: Engine, scheme: Residues, x: MPArray, side: str, unsigned: bool) -> None:
    """Slices are digits of the residues of images, on the left times the inverses of the Chinese remainders."""
    part = Part()
    slices = sliced(part, engine, scheme, x, side, unsigned)
    layout = slices.layout
    planes = part.value(slices.planes).view("u1" if unsigned else "i1").astype(np.int64)
    planes = planes.reshape(scheme.products, len(x), layout.rows, layout.k)
    assert not planes[:, :, x.shape[1] :].any() and not planes[..., x.shape[2] :].any()
    planes = planes[:, :, : x.shape[1], : x.shape[2]]
    image, _ = images(part, slices, scheme, x)
    first = 0
    for m, inverse in zip(scheme.moduli, remainders(scheme.moduli).inverses, strict=True):
        digits = digits_of(m)
        own = planes[first : first + digits]
        value = sum((own[i] << 7 * i for i in range(digits)), start=np.zeros_like(own[0]))
        assert unsigned or 2 * abs(value).max() <= m
        assert not unsigned or value.max() < m
        expected = image * (inverse if side == "left" else 1) % m
        assert (value % m == expected).all(), (scheme, m, side, unsigned)
        pairs = [(i, j) for i in range(digits) for j in range(i + 1, digits)]
        for s, (i, j) in enumerate(pairs, first + digits):
            assert (planes[s] == own[i] + own[j]).all(), (scheme, m)
        first += digits * (digits + 1) // 2


def parts_of_k(rng: np.random.Generator) -> None:
    """Accumulators that are full after 128 inner indices: residues of every kind are added to those before."""
    engine = CublasResidues(devices.current())
    with mock.patch.object(cublas_residues, "ACCUMULATOR_DEPTH", 128), guarded():
        for scheme, k in ((Chosen.of(3, 9, 10), 300), (Residues(51), 129), (Chosen.of(2, 3, 2), 128)):
            a, b = operand(rng, (1, 3, k), 300, 9), operand(rng, (2, 5, k), 200)
            with seen() as calls:
                check_product(engine, scheme, a, b)
            combining = kernels_of(calls, "reduce") + kernels_of(calls, "combine_digits")
            adding = sum(kernel.pieces[4 if kernel.function == "reduce" else 3] for kernel in combining)
            assert adding == 2 * (-(-k // 128) - 1) * sum(number > 0 for number in scheme.by_digits), adding


def parts_of_pairs(rng: np.random.Generator) -> None:
    """Hopper's kernel adds products to residues of two bytes: later products of digits, and later parts of k.

    There are more moduli than it takes at a time.
    """
    tiles = devices.current().tiles
    engine = FusedResidues(devices.current())
    for scheme, k, deepest in ((Chosen.of(2, 3, 0), 5 * tiles.depth + 9, 2), (Chosen.of(2, 66, 0), 40, 512)):
        with everywhere(), guarded(), mock.patch.object(shares, "UNSIGNED_DEPTH", deepest * tiles.depth):
            a, b = operand(rng, (1, 3, k), 200, 9), operand(rng, (2, 5, k), 200)
            with seen() as calls:
                check_product(engine, scheme, a, b)
            pieces, groups = -(-tiles.blocks(k) // deepest), 1 + 3 * (1 + (scheme.count > 66))
            assert calls.names.count("residue_gemm") == pieces * groups
            if pieces > 1:
                check_product(engine, scheme, in_memory(a, True), b[:1], "float64")


# Whole products, against NumPy ----------------------------------------------------------------------------------------


def moved(x: Any) -> Any:
    return ozaki.ascupy(x) if isinstance(x, MPArray) else cp.asarray(x)


def same_numbers(expected: Any, got: Any) -> None:
    if not isinstance(expected, MPArray):
        same(expected, got)
        return
    got = ozaki.asnumpy(got)
    assert expected.bits == got.bits and expected.shape == got.shape
    for plane, of in zip(("signs", "exponents", "limbs"), (got.signs, got.exponents, got.limbs), strict=True):
        assert np.array_equal(getattr(expected, plane), of), plane


def as_numpy(a: Any, b: Any, **options: Any) -> Any:
    """Multiply on the device and on NumPy, compare, and return the product."""
    expected = ozaki.matmul(a, b, **options)
    same_numbers(expected, ozaki.matmul(moved(a), moved(b), **options))
    return expected


def kernels_of(calls: Any, function: str) -> list[Any]:
    return [step.kernel for step in calls.steps if step.name == function]


@contextmanager
def shared_memory(of_images: int, of_entries: int) -> Iterator[None]:
    """Let blocks that split and that round have so many bytes of shared memory before they own fewer columns.

    Blocks that round hold the sums of eight limbs at a time.
    """
    caches = wide._split_kernel, wide._recombine_kernel
    limits: dict[str, Any] = {"_SHARED": of_images, "_SHARED_OF_ENTRIES": of_entries, "_MOST_EIGHTS": 1}
    with mock.patch.multiple(wide, **limits):
        for cache in caches:
            cache.cache_clear()
        yield
    for cache in caches:
        cache.cache_clear()


def narrow_blocks(rng: np.random.Generator) -> None:
    """Blocks of 16 columns, as for very long images and integers; at all edges of blocks, with several rows and one."""
    engine = CublasResidues(devices.current())
    for pitch, n in ((12, 17), (0, 33), (0, 1)):
        limit = wide._bytes_of_images(pitch, wide._MANY, 1) - 1 if pitch else 0
        with shared_memory(limit, 0), everywhere(), guarded(), seen() as calls:
            k = int(rng.choice((1, 15, 16, 17, 129)))
            a, b = operand(rng, (3, k), 120, 20), operand(rng, (k, n), 120)
            for turned in (False, True):
                as_numpy(in_memory(a, turned), in_memory(b, turned), scheme="residues", slices=30, dtype="mp150")
            as_numpy(a.astype("float64"), b.astype("float32"), scheme="residues", slices=9, dtype="float64")
            check_product(engine, Chosen.of(3, 9, 10), a[None], b.swapaxes(0, 1)[None])
        split, round_ = kernels_of(calls, "split_numbers"), kernels_of(calls, "recombine_numbers")
        assert {kernel.macros["GROUPS"] for kernel in (*split, *round_)} == {2} and len(split) == 8
        assert ({kernel.pieces[-1] for kernel in split} == {0}) == (pitch == 0)  # one row a block, or several
    with shared_memory(wide._SHARED, 15_000), seen() as calls:  # eight groups of columns
        as_numpy(operand(rng, (3, 9), 90), operand(rng, (9, 70), 90))
    assert {kernel.macros["GROUPS"] for kernel in kernels_of(calls, "recombine_numbers")} == {8}


def panels_of_numbers(rng: np.random.Generator) -> None:
    """Panels within a limit, of batches, of prepared operands and of others: entries at all edges."""
    for slices, dtype, shape in ((12, "mp90", (2, 41, 9, 70)), (52, "float64", (1, 41, 20, 70))):
        batch, m, k, n = shape
        scheme = Residues(slices)
        engine = cublas_engine(devices.current(), scheme)
        limit = workspace_of(engine, scheme, k, batch, *units_of(engine, scheme, k))
        a, b = operand(rng, (batch, m, k), 120, 20), operand(rng, (batch, k, n), 120)
        leading = 8 * (a.size + b.size)
        options: dict[str, Any] = {"scheme": "residues", "slices": slices, "dtype": dtype}
        expected = ozaki.matmul(a, b, **options)
        x, y = moved(a), moved(b)
        with guarded():
            for limited in (limit + leading, 2 * limit + leading):
                with seen() as calls:
                    got = ozaki.matmul(x, y, workspace_limit=limited, **options)
                same_numbers(expected, got)
                assert len(kernels_of(calls, "split_numbers")) > 4, calls.names
            plan = ozaki.plan(a.shape, b.shape, **options)
            left, right = ozaki.prepare(x, "left", plan), ozaki.prepare(y, "right", plan)
            for limit_of_plan in (None, 2 * limit):
                same_numbers(expected, ozaki.matmul(left, right, plan=replace(plan, workspace_limit=limit_of_plan)))


def hard_numbers(rng: np.random.Generator) -> None:
    """NaN and Inf beside wide schemes, few elements, zeros, long numbers, far exponents, ties, carries."""
    a, b = operand(rng, (3, 6), 100, 20), operand(rng, (6, 4), 100)
    one_row, one_column, inner = a[:1], b[:, :1], operand(rng, (3, 1), 70)
    zeros = mparray(np.zeros((6, 4)), bits=70)
    with guarded():
        for left, right in (
            *((one_row, b), (a, one_column), (one_row, one_column), (inner, operand(rng, (1, 4), 70)), (a, zeros)),
            *((a[:0], b), (a, b[:, :0]), (a[:, :0], b[:0]), (a[:, :1] * 0, one_row)),
        ):
            for options in ({}, {"dtype": "float64", "accuracy": 60}):
                as_numpy(left, right, **options)
        floats = rng.standard_normal((3, 6)) * 2.0 ** rng.integers(-100, 100, (3, 6))
        floats[0, 1], floats[2, 2], floats[1] = np.nan, np.inf, 0
        for x, y in ((floats, floats.T), (floats.astype("f4"), floats.T), (floats, np.asfortranarray(b.astype("f8")))):
            with seen() as calls:
                as_numpy(x, y, scheme="residues", slices=int(rng.integers(50, 60)))
            assert "split_numbers" in calls.names and "patch" in calls.names
        # More limbs than there are bits, in operands and results.
        long = mparray(np.array([[3, -5, 0], [2**40 + 1, 7, 1]], object), bits=2000)
        as_numpy(long, long.swapaxes(0, 1), accuracy=100)
        as_numpy(long, long.swapaxes(0, 1), accuracy=40, dtype="mp900")
        for e, f in ((2**60 - 1000, -(2**60) + 1000), (-(2**60) + 1000, -(2**59)), (2**60 - 1000, 2**59)):
            for dtype in ("mp90", "float64", "float32"):
                c = as_numpy(a.ldexp(e), b.ldexp(f), dtype=dtype, accuracy=50)
                assert dtype != "float64" or e + f < 2**50 or np.isinf(c).any()
    check_roundings(rng)


def check_roundings(random: np.random.Generator) -> None:
    """Exact products that lie halfway between two results, next to that, or round up to a power of two."""
    for bits in (8, 31, 32, 33, 64, 65):  # more bits are computed than the operands have
        kinds = []
        for _ in range(20):
            kept, cut = int.from_bytes(random.bytes(9), "little") % 2**bits | 1 << bits - 1, int(random.integers(1, 80))
            half = 1 << cut - 1
            kinds += [(kept << cut) + half, (kept << cut) + half + 1, (kept << cut) + half - 1, (kept << cut) + 0]
            kinds += [(2**bits - 1 << cut) + half, (2**bits << cut) - 1, (2**bits - 1 << cut) + half - 1]
        wholes = np.array([x * int(random.choice((1, -1))) for x in kinds], object)
        x = mparray(wholes[None], bits=bits + 81)
        one = mparray(np.array([[1]], object), bits=2)
        for left, right in ((one, x), (x.swapaxes(0, 1), one)):
            c = as_numpy(left, right, accuracy=300, dtype=f"mp{bits}")
            assert [rounded(Fraction(v), bits) for v in wholes] == rationals(c).ravel().tolist()
        for dtype, precision in (("float64", 53), ("float32", 24)):
            kept = int(random.integers(2 ** (precision - 1))) | 1 << precision - 1
            ties = [(2 * (kept + i) + 1 << 40) + d for i in range(4) for d in (-1, 0, 1)]
            ties += [(2 ** (precision + 1) - 1 << 40) + d for d in (-1, 0, 1)]
            ties += [(tie << 90) + d for tie in ties for d in (-1, 0, 1)]  # decided far behind the first 96 bits
            x = mparray(np.array([ties], object), bits=256).ldexp(-100)
            c = as_numpy(one, x, accuracy="exact", dtype=dtype)
            assert rationals(c).ravel().tolist() == [rounded(v * power(-100), precision) for v in map(Fraction, ties)]


def refusals(rng: np.random.Generator) -> None:
    """Integers that no block has the memory for are refused before anything runs."""
    part = Part()
    scheme = Chosen.of(3, 9, 10)
    x = part.numbers(ozaki.ascupy(operand(rng, (1, 2, 3), 40)))
    assert isinstance(x, NumbersArray)
    small = replace(part.device, shared_memory=2000)
    with pytest.raises(ValueError, match=r"^accuracy: its integers take"):
        CublasResidues(small).split(part.b, describe_numbers(part.b, x), "left", scheme)


def listed_programs(rng: np.random.Generator) -> None:
    """The steps that are listed for a plan, and their workspace, are those of a product by that plan."""
    for slices, dtype in ((12, "mp106"), (51, "mp300")):
        bits = int(dtype[2:])
        a, b = operand(rng, (2, 7, 9), bits), operand(rng, (2, 9, 5), bits)
        plan = ozaki.plan(a.shape, b.shape, dtype=dtype, scheme="residues", slices=slices)
        listed = program_of(plan, devices.current())
        x, y = moved(a), moved(b)
        with seen() as calls:
            _, report = ozaki.matmul(x, y, plan=plan, return_report=True)
        assert [step.name for step in listed.steps] == calls.names
        kernels = ([step.kernel for step in steps if isinstance(step, Launch)] for steps in (listed.steps, calls.steps))
        assert all((p.pieces, p.grid) == (q.pieces, q.grid) for p, q in zip(*kernels, strict=True))
        assert report.workspace_bytes == listed.workspace
