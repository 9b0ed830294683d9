"""Whole products of slices: limits of cuBLAS and of grids, accumulators that are full, `out`."""

from __future__ import annotations

from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.program.steps import Out
from ozaki.backends.cupy.steps import gemm, unrounded
from ozaki.backends.cupy.steps.describing import describe
from ozaki.backends.cupy.steps.engines import choice, cublas_fp16, fused_digits
from ozaki.backends.cupy.steps.engines.choice import fused_engine
from ozaki.backends.cupy.steps.engines.cublas_digits import CublasDigits
from ozaki.backends.cupy.steps.engines.cublas_fp16 import CublasFp16
from ozaki.backends.cupy.steps.engines.cublas_residues import CublasResidues
from ozaki.backends.cupy.steps.engines.engine import Engine
from ozaki.backends.cupy.steps.engines.fused_residues import FusedResidues, SymmetricResidues
from ozaki.backends.cupy.steps.engines.winograd import Winograd
from ozaki.backends.cupy.steps.epilogue import Combine, Keep, Round
from ozaki.schemes import Digits, Residues, Scheme
from ozaki.schemes.named import integer_scheme, scheme_of
from runs.device import Part, seen
from runs.operands import matrix, same


def rows_for_cublas(rng: np.random.Generator) -> None:
    """More matrices than one call takes; rows longer than cuBLAS takes, which are refused before anything is split."""
    a, b = matrix(rng, (5, 20, 70), "f4"), matrix(rng, (5, 70, 30), "f4")
    with mock.patch.object(gemm, "MOST_BATCHED", 2), seen() as calls:
        got = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="residues", slices=5, engine="cublas")
    assert calls.names.count("cublas") == 3 * 5
    same(ozaki.matmul(a, b, scheme="residues", slices=5), got)
    device, deep = devices.current(), Digits(4, 7, word="fp16")
    for engine, scheme, k in ((CublasDigits(device), Digits(5), 2**31 // 5), (CublasFp16(device), deep, 2**29)):
        with pytest.raises(ValueError, match=r"engine: cuBLAS reads rows of less than 2\*\*31 entries"):
            engine.layout(scheme, "left", 1, 1, k)


def fp16_sums(rng: np.random.Generator) -> None:
    """FP16 digits that fill the accumulators; and so long a k that it is cut and its sums need int64."""
    full = np.full((6, 320), -(126 + 127 / 255) / 256)  # its digits are -126, -127, -127, ...
    expected = ozaki.matmul(full, full.T, scheme="fp16-digits", slices=5)
    same(expected, ozaki.matmul(cp.asarray(full), cp.asarray(full.T), scheme="fp16-digits", slices=5))
    a, b = matrix(rng, (5, 300), "f8"), matrix(rng, (300, 7), "f8")
    expected = ozaki.matmul(a, b, scheme="fp16-digits", slices=5)
    with (
        mock.patch.object(cublas_fp16, "fp16_depth", return_value=128),
        mock.patch.object(Digits, "depth", return_value=0),
    ):
        same(expected, ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme="fp16-digits", slices=5))


def far(rng: np.random.Generator) -> None:
    """The kernel to which the fused digit kernel leaves subnormal results."""
    a, b = (np.ldexp(matrix(rng, shape, "f8"), -535) for shape in ((37, 300), (300, 200)))
    device = devices.of("90", multiprocessors=132, shared_memory=233472)
    for scheme in (Digits(7), Digits(4, 7)):
        part, engine = Part(device), fused_engine(device, scheme)
        x, y = part.given(cp.asarray(a)[None], "a"), part.given(cp.asarray(b).T[None], "b")
        left, right = (
            engine.split(part.b, describe(part.b, of), side, scheme) for of, side in ((x, "left"), (y, "right"))
        )
        out = part.b.array("c", (1, 37, 200), "d")
        blocks = left.layout.k // device.tiles.depth
        kernel = fused_digits.far(scheme, left.operand, right.operand, blocks, out.view, 0, 0)
        part.b.launch(kernel, left.planes, right.planes, Out(out), left.mu, right.mu)
        same(ozaki.matmul(a, b, scheme=scheme.name, slices=scheme.count), part.value(out)[0])


def many_blocks(rng: np.random.Generator) -> None:
    """More columns, and more matrices of a batch, than a grid may have blocks."""
    with mock.patch.object(unrounded, "_MOST_BLOCKS", 2):
        for left, right in (((5, 30, 40), (5, 40, 700)), ((30, 40), (40, 900)), ((3, 4, 40), (40, 300))):
            for scheme, slices, dtype in (("residues", 14, "f8"), ("digits", 4, "f4")):
                a, b = rng.standard_normal(left).astype(dtype), rng.standard_normal(right).astype(dtype)
                got = ozaki.matmul(cp.asarray(a), cp.asarray(b), scheme=scheme, slices=slices)
                expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
                same(expected, got)
                c = rng.standard_normal(expected.shape).astype(dtype)
                expected = ozaki.gemm(0.3, a, b, -1.0, c, scheme=scheme, slices=slices)
                given = cp.asarray(a), cp.asarray(b), cp.asarray(c)
                same(expected, ozaki.gemm(0.3, *given[:2], -1.0, given[2], scheme=scheme, slices=slices))


def matrices_in_turn(rng: np.random.Generator) -> None:
    """Batches whose slices are held of some matrices at a time; with one matrix for all, prepared, or both."""
    splits = 0
    k = 270  # more than the kernel of stacks takes
    for left, right in (((7, 30, k), (7, k, 20)), ((7, 30, k), (1, k, 20)), ((1, 30, k), (5, k, 20))):
        for scheme, slices, dtype in (("residues", 14, "f8"), ("digits", 4, "f4")):
            a, b = matrix(rng, left, dtype), matrix(rng, right, dtype)
            a[..., 3, 5] = np.nan
            options: dict[str, Any] = {"scheme": scheme, "slices": slices}
            expected, given = ozaki.matmul(a, b, **options), (cp.asarray(a), cp.asarray(b))
            c = rng.standard_normal(expected.shape).astype(dtype)
            combined = ozaki.gemm(0.3, a, b, -1.0, c, **options)
            plan = ozaki.plan(*given, **options)
            prepared = ozaki.prepare(given[1], "right", plan)
            small = mock.patch.multiple(choice, _MOST_OF_BATCH=2**19, _PART_OF_BATCH=2**18)
            with small, seen() as ran:
                same(expected, ozaki.matmul(*given, **options))
                same(combined, ozaki.gemm(0.3, *given, -1.0, cp.asarray(c), **options))
                same(expected, ozaki.matmul(given[0], prepared, plan=plan))
                same(ozaki.matmul(a, b, accuracy="exact"), ozaki.matmul(*given, accuracy="exact"))
            splits += ran.names.count("split")
    assert splits > 60


def kept_and_finished(rng: np.random.Generator) -> None:
    """An un-rounded product that is kept and rounded later has the bits of one that its engine rounds at once."""
    device = devices.current()
    engines: list[tuple[Engine, Scheme, str]] = [
        (CublasResidues(device), Residues(14), "f8"),
        (CublasDigits(device), Digits(4), "f4"),
        (CublasFp16(device), scheme_of(integer_scheme("fp16-digits", 200, False), 3), "f4"),
    ]
    if device.family.fused:
        engines += [(FusedResidues(device), Residues(14), "f8"), (Winograd(device), Residues(14), "f8")]
        engines += [(SymmetricResidues.of(device, "symmetric"), Residues(6), "f4")]
    for engine, scheme, dtype in engines:
        assert engine.keeps
        batch = 1 if isinstance(engine, Winograd) else 2
        a, b = matrix(rng, (batch, 150, 200), dtype), matrix(rng, (batch, 150, 200), dtype)
        if isinstance(engine, SymmetricResidues):
            b = a
        c = rng.standard_normal((batch, 150, 150)).astype(dtype)
        part = Part()
        x, y, addend = (part.given(cp.asarray(of), name) for of, name in ((a, "a"), (b, "b"), (c, "c")))
        left, right = (
            engine.split(part.b, describe(part.b, of), side, scheme) for of, side in ((x, "left"), (y, "right"))
        )
        out = [part.b.array(f"c{i}", c.shape, dtype_char(dtype)) for i in range(4)]
        beta = 0.0 if isinstance(engine, SymmetricResidues) else 0.75  # with an addend no product is symmetric
        combines = [Combine(of, -1.5, beta, addend) for of in out[2:]]
        for epilogue in (Round(out[0]), *combines[:1]):
            assert engine.multiply(part.b, scheme, left, right, epilogue) is None
        later: list[Round | Combine] = [Round(out[1]), *combines[1:]]
        for each in later:
            kept = engine.multiply(part.b, scheme, left, right, Keep(c.shape))
            assert kept is not None
            kept.finish(part.b, device, each)
            kept.release(part.b)
        found = [part.value(of) for of in out]
        same(found[0], found[1])
        same(found[2], found[3])
        same(ozaki.matmul(a, b.swapaxes(1, 2), **named(scheme)), found[0])
        same(ozaki.gemm(-1.5, a, b.swapaxes(1, 2), beta, c, **named(scheme)), found[2])


def dtype_char(dtype: str) -> str:
    return np.dtype(dtype).char


def named(scheme: Scheme) -> dict[str, Any]:
    """The options of `ozaki.matmul` that ask for a scheme."""
    name = "fp16-digits" if scheme.name.startswith("fp16-digits") else scheme.name
    return {"scheme": name, "slices": scheme.count}


def out_that_shares_memory(_rng: np.random.Generator) -> None:
    """A result whose elements share memory is refused."""
    a = cp.asarray(np.eye(4))
    out = cp.asarray(np.lib.stride_tricks.as_strided(np.zeros(7), (4, 4), (8, 8)))
    with pytest.raises(ValueError, match=r"^out: elements share their memory"):
        ozaki.matmul(a, a, out=out)
