"""Products of 16-bit floats rounded once to 16 bits, whose rows have digits of their own count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal
from unittest import mock

import cupy as cp
import ml_dtypes
import numpy as np
import pytest

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.prepared import same_engine
from ozaki.backends.cupy.products import program_of
from ozaki.backends.cupy.steps import rows_of_digits
from ozaki.backends.cupy.steps.engines.few_rows import FewRowDigits
from ozaki.backends.cupy.steps.engines.row_digits import CublasRowDigits, RowEngine, row_engine
from ozaki.backends.cupy.steps.epilogue import Round
from ozaki.backends.numpy._row_digits import multiply_rows
from ozaki.interchange.halves import HalfArray
from ozaki.records.memory import Memory
from ozaki.records.row_kinds import RowKinds
from ozaki.schemes.row_digits import RowDigits
from runs.device import Part, seen

Half = Literal["bfloat16", "float16"]

_HALVES: tuple[Half, ...] = ("bfloat16", "float16")

_SIZES = ((40, 70, 50), (5, 1, 3), (1, 300, 1), (33, 257, 130), (300, 129, 20))


def _bits(x: np.ndarray, half: Half) -> np.ndarray:
    """The 16-bit floats nearest to float64 numbers, as bits; those of bfloat16 cut off toward zero."""
    with np.errstate(all="ignore"):
        if half == "float16":
            return x.astype(np.float16).view(np.uint16)
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _values(bits: np.ndarray, half: Half) -> np.ndarray:
    """The float32 numbers that bits mean."""
    if half == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _hard(rng: np.random.Generator, shape: tuple[int, ...], half: Half) -> np.ndarray:
    """Rows of all kinds: usual, with outliers, wide, zero, subnormal, near overflow, of few bits, with NaN and Inf."""
    x = rng.standard_normal(shape)
    rows, k = shape[-2:]
    least, most = (-133, 127) if half == "bfloat16" else (-24, 15)
    for i in range(rows):
        of = x[..., i, :]
        kind = rng.integers(0, 12)
        if kind == 0:
            of[..., rng.integers(k)] *= 100
        elif kind == 1:
            of *= np.exp(3 * rng.standard_normal(k))
        elif kind == 2:
            of *= np.exp2(rng.integers(least // 2, most // 2, k))
        elif kind == 3:
            of[:] = 0
        elif kind == 4:
            of *= 2.0 ** (least + 3)
        elif kind == 5:
            of *= 2.0 ** (most - 3)
        elif kind == 6:
            of[:] = np.round(4 * of)
        elif kind == 7 and rows > 3:
            of[..., rng.integers(k)] = rng.choice([np.nan, np.inf, -np.inf])
        elif kind == 8:
            of[..., ::2] = 0
    return _bits(x, half)


def _wanted(a: np.ndarray, b: np.ndarray, half: Half) -> tuple[np.ndarray, RowKinds]:
    """The bits of the product, and the kinds of its rows, of rows of A and columns of B, on NumPy."""
    batch = max(len(a), len(b))
    x, y = (np.ascontiguousarray(_values(each, half)) for each in (a, b))
    x = np.ascontiguousarray(np.broadcast_to(x, (batch, *x.shape[1:])))
    out = np.empty((batch, a.shape[1], b.shape[1]), np.uint16)
    with np.errstate(all="ignore"):
        return out, multiply_rows(RowDigits(half), x, y, out, Memory(None))


def _multiplied(
    a: Any, b: Any, half: Half, engine: RowEngine, prepared: bool, multiprocessors: int | None = None
) -> tuple[np.ndarray, RowKinds]:  # fmt: skip
    """The same by an engine: operands as arrays of bits, or of float32, on the device."""
    part, scheme = Part(), RowDigits(half)
    device = part.device if multiprocessors is None else replace(part.device, multiprocessors=multiprocessors)
    left, right = part.given(a, "a"), part.given(b, "b")
    batch, (m, k), n = max(a.shape[0], b.shape[0]), a.shape[1:], b.shape[1]
    out = part.b.array("c", (batch, m, n), "H")
    plan = ozaki.plan((m, k), (k, n), accuracy="bf16" if half == "bfloat16" else "fp16")
    columns = rows_of_digits.split_columns(part.b, engine, scheme, right) if prepared else right
    rows_of_digits.multiply(part.b, device, engine, plan, left, columns, Round(out))
    reader = part.b.reader(rows_of_digits.KINDS)
    assert reader is not None
    found = part.value(out)
    return found, reader.value(*(part.value(each) for each in reader.evidence))


def _engines(m: int, k: int, half: Half) -> list[RowEngine]:
    """The engine of the device for so many rows, and the one of every device."""
    device = Part().device
    own = row_engine(device, ozaki.plan((m, k), (k, 1), accuracy="bf16" if half == "bfloat16" else "fp16"), m)
    return [own] if isinstance(own, CublasRowDigits) else [own, CublasRowDigits(device)]


def _as_if_many(generator: np.random.Generator) -> None:
    """For the rest of a run, perhaps, take blocks as for many rows."""
    mock.patch.object(rows_of_digits, "_MANY_ROWS", int(generator.choice([1, 1024]))).start()


def kinds_of_rows(rng: np.random.Generator) -> None:
    """All kinds of rows in one matrix, in stacks, of operands in any order, as bits or as float32 numbers."""
    _as_if_many(rng)
    for half in _HALVES:
        m, k, n = _SIZES[rng.integers(len(_SIZES))]
        of_left, of_right = ((1, 3, 2, 1), (1, 3, 1, 2))
        for i, j in zip(of_left, of_right, strict=True):
            left, right = (i, m, k), (j, n, k)
            a, b = _hard(rng, left, half), _hard(rng, right, half)
            b = b if rng.random() < 0.3 else _bits(rng.standard_normal(right), half)
            expected, kinds = _wanted(a, b, half)
            x, y = ((_values(each, half) if rng.random() < 0.4 else each) for each in (a, b))
            x, y = (each.swapaxes(1, 2).copy().swapaxes(1, 2) if rng.random() < 0.5 else each for each in (x, y))
            x, y = cp.asarray(x), cp.asarray(y)
            if rng.random() < 0.3:
                x, y = x[..., ::-1], y[..., ::-1]
            for engine in _engines(m, k, half):
                got, found = _multiplied(x, y, half, engine, bool(rng.random() < 0.5))
                _same(expected, got)
                assert kinds == found, (kinds, found)


def long_rows(rng: np.random.Generator) -> None:
    """Rows that a block reads in rounds, of lengths at which it holds them and not, that begin anywhere in memory."""
    half = _HALVES[rng.integers(2)]
    for longest in (8400, 16700):
        k = longest - 8 * int(rng.integers(25)) - int(rng.choice([0, 0, 3]))
        first = int(rng.choice([0, 0, 5]))  # rows begin at addresses that 16 divides, or few of them do
        left, right = (1, 3, k + 8), (1, 2, k + 8)
        a, b = _hard(rng, left, half), _bits(rng.standard_normal(right), half)
        expected, kinds = _wanted(a[..., first : first + k], b[..., first : first + k], half)
        x, y = (cp.asarray(each)[..., first : first + k] for each in (a, b))
        for engine in _engines(3, k, half):
            got, found = _multiplied(x, y, half, engine, prepared=False)
            _same(expected, got)
            assert kinds == found, (kinds, found)


def many_tiles(rng: np.random.Generator) -> None:
    """Several tiles of rows of each kind, some of which are split along k, by few multiprocessors."""
    _as_if_many(rng)
    for half in _HALVES:
        m, k, n = int(rng.integers(257, 600)), int(rng.integers(400, 900)), int(rng.choice([60, 170, 190, 260, 380]))
        x = rng.standard_normal((1, m, k))
        if rng.random() < 0.7:
            x[:, rng.random(m) < rng.random(), ::97] *= 30 if half == "bfloat16" else 3000
        a, b = _bits(x, half), _bits(rng.standard_normal((1, n, k)), half)
        expected, kinds = _wanted(a, b, half)
        for engine in _engines(m, k, half):
            multiprocessors = int(rng.choice([2, 4, 6, 10]))
            few = replace(engine, device=replace(engine.device, multiprocessors=multiprocessors))
            got, found = _multiplied(cp.asarray(a), cp.asarray(b), half, few, False, multiprocessors)
            _same(expected, got)
            assert kinds == found, (kinds, found)


def rows_within_limits(rng: np.random.Generator) -> None:
    """In panels of rows and columns, with the bits and kinds of the whole product, within a limit of workspace."""
    half, name = _HALVES[which := int(rng.integers(2))], ("bf16", "fp16")[which]
    small = HalfArray(cp.asarray(_bits(rng.standard_normal((30, 30)), half)), half)
    columns = ozaki.prepare(small, "right", ozaki.plan((30, 30), (30, 30), accuracy=name))
    got, refused = small, "b: prepared for another plan"
    try:  # with the engine that the limit leaves room for
        got = ozaki.matmul(small, columns, accuracy=name, workspace_limit=100_000)
    except ValueError as error:
        refused = str(error)
    assert "b: prepared for another plan" in refused, refused
    if got is not small:
        _same(cp.asnumpy(ozaki.matmul(small, small, accuracy=name).bits), cp.asnumpy(got.bits))
    m, k, n = int(rng.integers(270, 300)), 40, int(rng.integers(400, 500))
    a, b = (_bits(rng.standard_normal((1, rows, k)), half) for rows in (m, n))
    a[:, :20] = _hard(rng, (1, 20, k), half)
    b[0, n - 1] = _bits(rng.standard_normal(k) * 40 ** rng.standard_normal(k), half)
    expected, kinds = _wanted(a, b, half)
    x, y = HalfArray(cp.asarray(a[0]), half), HalfArray(cp.asarray(b[0]).swapaxes(0, 1), half)
    _, report = ozaki.matmul(x, y, accuracy=name, return_report=True)
    whole = report.workspace_bytes
    for of_whole in (0.7, 0.5):
        limit = int(of_whole * whole)
        plan = ozaki.plan((m, k), (k, n), accuracy=name, workspace_limit=limit)
        got, report = ozaki.matmul(x, y, accuracy=name, workspace_limit=limit, return_report=True)
        assert 0 < report.workspace_bytes <= limit, (report.workspace_bytes, limit)
        assert report.workspace_bytes < 0.9 * whole
        _same(expected[0], cp.asnumpy(got.bits))
        assert report.row_kinds is not None and report.row_kinds.get("exact", 0) == kinds.exact
        assert sum(report.row_kinds.values()) == m
        columns = ozaki.prepare(y, "right", plan)
        _same(expected[0], cp.asnumpy(ozaki.matmul(x, columns, plan=plan).bits))


def sixteen_expressions(rng: np.random.Generator) -> None:
    """Alpha A B + beta C, rounded once, for rows of all kinds, beside C with NaN and Inf, and without a product."""
    half, name = _HALVES[which := int(rng.integers(2))], ("bf16", "fp16")[which]
    m, k, n = 30, 50, 40
    a, b, c = _hard(rng, (m, k), half), _bits(rng.standard_normal((k, n)), half), _hard(rng, (m, n), half)
    host = [_host(each, half) for each in (a, b, c)]
    x, y = (HalfArray(cp.asarray(each), half) for each in (a, b))
    plan = ozaki.plan((m, k), (k, n), accuracy=name)
    columns = ozaki.prepare(y, "right", plan)
    for addend in (HalfArray(cp.asarray(c), half), cp.asarray(_values(c, half))):
        for alpha, beta in ((1.0, 1.0), (0.3, -2.0), (-1e-3, 0.7), (2.0, 0.0), (0.0, 3.0)):
            expected = ozaki.gemm(alpha, host[0], host[1], beta, host[2], accuracy=name).view(np.uint16)
            for given, options in ((y, {"accuracy": name}), (columns, {"plan": plan})):
                for _ in range(2):
                    got = ozaki.gemm(alpha, x, given, beta, addend, **options)
                    _same(expected, cp.asnumpy(got.bits))
    bias = _bits(rng.standard_normal((1, n)), half)
    expected = ozaki.gemm(1.0, host[0], host[1], 1.0, _host(np.broadcast_to(bias, (m, n)), half), accuracy=name)
    wide = HalfArray(cp.asarray(np.broadcast_to(bias, (m, n)).copy()), half)
    with seen() as found:
        _same(expected.view(np.uint16), cp.asnumpy(ozaki.gemm(1.0, x, columns, 1.0, wide, plan=plan).bits))
    assert ("few_rows" in found.names) == devices.current().family.one_read, found.names
    nothing = HalfArray(x.bits[:, :0], half), HalfArray(y.bits[:0], half)
    _same(
        c & 0x7FFF, cp.asnumpy(ozaki.gemm(1, *nothing, 1, HalfArray(cp.asarray(c & 0x7FFF), half), accuracy=name).bits)
    )


def _host(bits: np.ndarray, half: Half) -> np.ndarray:
    """The numbers that bits mean, as NumPy has them."""
    return bits.view(np.float16 if half == "float16" else ml_dtypes.bfloat16)


def of_callers(rng: np.random.Generator) -> None:
    """Products of callers' arrays, prepared or not, repeated."""
    for half, name in zip(_HALVES, ("bf16", "fp16"), strict=True):
        a, b = _hard(rng, (2, 20, 60), half), _bits(rng.standard_normal((1, 30, 60)), half)
        expected, kinds = _wanted(a, b, half)
        x, y = cp.asarray(a), cp.asarray(b[0]).swapaxes(0, 1)
        if half == "float16":
            x, y = x.view(np.float16), y.view(np.float16)
        else:
            x, y = HalfArray(x, half), HalfArray(y, half)
        plan = ozaki.plan((2, 20, 60), (60, 30), accuracy=name)
        columns = ozaki.prepare(y, "right", plan)
        with seen() as found:
            for _ in range(3):
                for given, options in ((y, {"accuracy": name}), (columns, {"plan": plan})):
                    got = ozaki.matmul(x, given, **options)
                    _same(expected, cp.asnumpy(got.bits if isinstance(got, HalfArray) else got.view(np.uint16)))
            assert (found.long, found.repeated) == (2, 4), (found.long, found.repeated)
            out = cp.zeros((2, 20, 30), np.uint16)
            into = out.view(np.float16) if half == "float16" else HalfArray(out, half)
            for _ in range(2):
                out[...] = 0
                assert ozaki.matmul(x, columns, plan=plan, out=into) is into
                _same(expected, cp.asnumpy(out))
            assert found.repeated == 5
        other = ozaki.matmul(x, y, plan=replace(plan, engine="cublas"))
        _same(expected, cp.asnumpy(other.bits if isinstance(other, HalfArray) else other.view(np.uint16)))
        assert "row_digits" in str(program_of(plan, devices.of("90", multiprocessors=132, shared_memory=233472)))
        _, report = ozaki.matmul(x, y, accuracy=name, return_report=True)
        assert report.row_kinds is not None and report.row_kinds.get("exact", 0) == kinds.exact
        assert sum(report.row_kinds.values()) == 40


def _same(expected: np.ndarray, got: np.ndarray) -> None:
    assert expected.shape == got.shape and got.dtype == np.uint16, (expected.shape, got.shape, got.dtype)
    differ = expected != got
    assert not differ.any(), (
        f"{differ.sum()} of {differ.size} differ, first at {tuple(np.argwhere(differ)[0])}: "
        f"{expected[differ][0]:x} {got[differ][0]:x}"
    )


def few_of_many(rng: np.random.Generator) -> None:
    """Most rows have one nonzero and are exact, so that those of digits take fewer tiles, and others split along k."""
    for half in _HALVES:
        m, k, n = int(rng.integers(513, 700)), int(rng.integers(900, 1500)), int(rng.choice([60, 190]))
        x = np.zeros((1, m, k))
        x[0, np.arange(m), rng.integers(0, k, m)] = 1
        some = rng.choice(m, int(rng.integers(1, 300)), replace=False)
        x[0, some] = rng.standard_normal((len(some), k))
        a, b = _bits(x, half), _bits(rng.standard_normal((1, n, k)), half)
        expected, kinds = _wanted(a, b, half)
        assert kinds.exact > m // 4, kinds
        for engine in _engines(m, k, half):
            multiprocessors = int(rng.choice([6, 20, 66]))
            few = replace(engine, device=replace(engine.device, multiprocessors=multiprocessors))
            got, found = _multiplied(cp.asarray(a), cp.asarray(b), half, few, True, multiprocessors)
            _same(expected, got)
            assert kinds == found, (kinds, found)


def formats_in_turn(rng: np.random.Generator) -> None:
    """Calls alike but for the format of their operands, repeated, each with the bits of NumPy."""
    m, k, n = 20, 33, 17
    dtypes = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
    for _ in range(3):
        for half in _HALVES:
            dtype = dtypes[half]
            a, b = (_bits(rng.standard_normal(shape), half) for shape in ((m, k), (k, n)))
            expected = ozaki.matmul(a.view(dtype), b.view(dtype))
            got = ozaki.matmul(HalfArray(cp.asarray(a), half), HalfArray(cp.asarray(b), half))
            assert got.format == half
            _same(expected.view(np.uint16), cp.asnumpy(got.bits))
    # With whole numbers in the place of one operand, or of the result.
    x, y = (cp.asarray(rng.standard_normal(shape).astype(np.float16)) for shape in ((m, k), (k, n)))
    whole = cp.asarray(rng.integers(0, 9, (k, n)).astype(np.uint16))
    for out in (None, cp.empty((m, n), np.float16)):
        for _ in range(2):
            ozaki.matmul(x, y, out)
    expected = ozaki.matmul(cp.asnumpy(x), cp.asnumpy(whole))
    assert np.array_equal(expected, cp.asnumpy(ozaki.matmul(x, whole)))
    refused = ""
    try:
        ozaki.matmul(x, y, cp.empty((m, n), np.uint16))
    except ValueError as error:
        refused = str(error)
    assert "out: uint16" in refused, refused


def few_rows(rng: np.random.Generator) -> None:
    """One kernel for up to 64 rows of all kinds, by clusters of any size, beside columns of all kinds."""
    for half in _HALVES:
        for m in (1, int(rng.integers(2, 17)), int(rng.integers(17, 65))):
            k = int(rng.choice([1, 127, int(rng.integers(128, 1500)), int(rng.integers(1500, 4200))]))
            n, stack = int(rng.integers(1, 420)), int(rng.integers(1, 3))
            multiprocessors = int(rng.choice([1, 32, 132]))
            left, right = ((int(rng.choice([1, stack])), rows, k) for rows in (m, n))
            a, b = _hard(rng, left, half), _bits(rng.standard_normal(right), half)
            if rng.random() < 0.5:  # a third of their elements are far larger: more digits
                a[:, ::2, : k // 3] = _bits(100 * rng.standard_normal(a[:, ::2, : k // 3].shape), half)
            if rng.random() < 0.4:
                b[:, rng.integers(n)] = _hard(rng, (right[0], 4, k), half)[:, 0]
                infinite = 0x7C00 if half == "float16" else 0x7F80
                b[0, rng.integers(n), rng.integers(k)] = infinite + int(rng.integers(2))
            expected, kinds = _wanted(a, b, half)
            engine = _engines(m, k, half)[0]
            assert isinstance(engine, FewRowDigits)
            few = replace(engine, device=replace(engine.device, multiprocessors=multiprocessors, number=None))
            prepared = bool(rng.random() < 0.5)
            got, found = _multiplied(cp.asarray(a), cp.asarray(b), half, few, prepared, multiprocessors)
            _same(expected, got)
            assert kinds == found, (kinds, found)


def steps_of_few_rows(rng: np.random.Generator) -> None:
    """A call with prepared columns takes two kernels; and columns that are prepared for few rows serve many."""
    half, name = _HALVES[which := int(rng.integers(2))], ("bf16", "fp16")[which]
    m, k, n = int(rng.integers(1, 65)), 200, 150
    a, w = _hard(rng, (m, k), half), _bits(rng.standard_normal((k, n)), half)
    expected = ozaki.matmul(_host(a, half), _host(w, half), accuracy=name).view(np.uint16)
    x, y = (HalfArray(cp.asarray(each), half) for each in (a, w))
    plan, of_many = (ozaki.plan((rows, k), (k, n), accuracy=name) for rows in (m, 65))
    columns, for_many = (ozaki.prepare(y, "right", each) for each in (plan, of_many))
    assert columns.slices.layout == for_many.slices.layout
    assert same_engine(plan, of_many)
    with seen() as found:
        _same(expected, cp.asnumpy(ozaki.matmul(x, columns, plan=plan).bits))
        _same(expected, cp.asnumpy(ozaki.matmul(x, replace(for_many, plan=plan), plan=plan).bits))
    kernels = "row_digits", "few_rows"  # and what the first call reports
    assert found.names == [*kernels, "copy to host", "arrive", *kernels], found.names


def few_rows_of_many(rng: np.random.Generator) -> None:
    """Matrices of few rows that share the columns of B are one of many rows, with an addend as well."""
    half, name = _HALVES[which := int(rng.integers(2))], ("bf16", "fp16")[which]
    matrices, m, k, n = int(rng.integers(2, 6)), int(rng.integers(33, 65)), 40, 50
    a, b = _hard(rng, (matrices, m, k), half), _bits(rng.standard_normal((k, n)), half)
    c = _bits(rng.standard_normal((matrices, m, n)), half)
    host, given = [_host(each, half) for each in (a, b, c)], [HalfArray(cp.asarray(each), half) for each in (a, b, c)]
    plan = ozaki.plan(a.shape, b.shape, accuracy=name)
    with np.errstate(all="ignore"):
        _same(ozaki.matmul(*host[:2], accuracy=name).view(np.uint16), cp.asnumpy(ozaki.matmul(*given[:2]).bits))
        beside = given[0], ozaki.prepare(given[1], "right", plan)
        _same(ozaki.matmul(*host[:2], plan=plan).view(np.uint16), cp.asnumpy(ozaki.matmul(*beside, plan=plan).bits))
        for alpha, beta in ((1.0, 1.0), (2.0, -1.0)):
            for of_b in (given[1], beside[1]):
                expected = ozaki.gemm(alpha, host[0], host[1], beta, host[2], plan=plan)
                got = ozaki.gemm(alpha, given[0], of_b, beta, given[2], plan=plan)
                _same(expected.view(np.uint16), cp.asnumpy(got.bits))


def sixteen_contracted(rng: np.random.Generator) -> None:
    """Stacks of which both operands are broadcast, contractions, and NumPy's functions within a block."""
    for half in _HALVES:
        a, b = rng.standard_normal((2, 1, 4, 40)), rng.standard_normal((3, 40, 6))
        a[..., 1, :] *= np.exp2(-np.arange(40) / 3)
        b *= np.exp(3 * rng.standard_normal((3, 40, 1)))
        given = [_bits(np.clip(x, -6e4, 6e4), half) for x in (a, b)]
        (x, y), host = ([HalfArray(cp.asarray(each), half) for each in given], [_host(each, half) for each in given])

        def check(expected: np.ndarray, got: Any) -> None:
            _same(expected.view(np.uint16), cp.asnumpy(got.bits if isinstance(got, HalfArray) else got.view(np.uint16)))

        check(ozaki.matmul(*host), ozaki.matmul(x, y))
        for subscripts in ("abij,cjk->abcik", "abij,cjk->ki", "abij,clk->ijk", "cjk,cjk->cjk", "abij->j"):
            of = [x, y] if subscripts.startswith("ab") else [y, y]
            of_host = host if subscripts.startswith("ab") else host[1:] * 2
            count = subscripts.count(",") + 1
            with np.errstate(all="ignore"):
                check(ozaki.einsum(subscripts, *of_host[:count]), ozaki.einsum(subscripts, *of[:count]))
        check(ozaki.tensordot(host[0], host[1], (3, 1)), ozaki.tensordot(x, y, (3, 1)))
    x, y = (cp.asarray(each) for each in host)
    with ozaki.emulate(accuracy="fp16") as run:
        check(ozaki.matmul(*host), cp.matmul(x, y))
    assert run.account.products == 1


def weights_within_limits(rng: np.random.Generator) -> None:
    """Prepared columns serve any number of rows; a limit for which another engine runs refuses them."""
    for half, name in zip(_HALVES, ("bf16", "fp16"), strict=True):
        m, k, n = 300, 40, 400
        a, b = (_bits(rng.standard_normal(shape), half) for shape in ((m, k), (k, n)))
        expected = ozaki.matmul(_host(a, half), _host(b, half)).view(np.uint16)
        x, y = (HalfArray(cp.asarray(each), half) for each in (a, b))
        plan = ozaki.plan(x, y)
        columns = ozaki.prepare(y, "right", plan)
        for rows in (1, 129, m):
            _same(expected[:rows], cp.asnumpy(ozaki.matmul(x[:rows], columns).bits))
            of_rows = ozaki.plan((rows, k), (k, n), accuracy=name)
            _same(expected[:rows], cp.asnumpy(ozaki.matmul(x[:rows], columns, plan=of_rows).bits))
        _, report = ozaki.matmul(x, y, return_report=True)
        _same(expected, cp.asnumpy(ozaki.matmul(x, columns, workspace_limit=10**9).bits))
        limit = int(0.6 * report.workspace_bytes)
        if devices.current().family.one_read:
            with pytest.raises(ValueError, match=f"b: prepared for another plan; .*, of workspace_limit={limit}"):
                ozaki.matmul(x, columns, workspace_limit=limit)
        else:
            _same(expected, cp.asnumpy(ozaki.matmul(x, columns, workspace_limit=limit).bits))
