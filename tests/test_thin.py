"""Which engine multiplies products with few inner indices on Hopper, and of how many matrices at a time: plain data."""

from __future__ import annotations

import dataclasses

import pytest

import ozaki
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.products import program_of
from ozaki.backends.cupy.steps.engines import choice
from ozaki.backends.cupy.steps.engines.choice import engine_of, matrices_of
from ozaki.backends.cupy.steps.engines.engine import workspace_of
from ozaki.backends.cupy.steps.engines.fused_residues import FusedResidues
from ozaki.backends.cupy.steps.engines.thin_residues import ThinResidues
from ozaki.schemes import Residues

H100 = devices.of("90", multiprocessors=132, shared_memory=233472, memory_bits=26800 * 10**9)


def plan_of(left, right, slices=14, dtype="float64", **options):
    return ozaki.plan(left, right, dtype=dtype, scheme="residues", slices=slices, **options)


@pytest.mark.parametrize(
    "shape", [(16384, 64, 16384), (8192, 128, 8192), (100000, 64, 64), (65536, 256, 256), (9, 1, 9)]
)
@pytest.mark.parametrize("slices", [4, 14, 18])
def test_few_inner_indices(shape, slices):
    m, k, n = shape
    engine = engine_of(H100, plan_of((m, k), (k, n), slices))
    assert isinstance(engine, ThinResidues)
    if m * n > 10**6:
        own, fused = (of.seconds(Residues(slices), 1, m, k, n, "float64") for of in (engine, FusedResidues(H100)))
        assert own <= fused, "the prediction is that it is no slower"


@pytest.mark.parametrize(("k", "slices"), [(257, 14), (64, 3), (64, 19), (64, 60)])
def test_others(k, slices):
    assert not isinstance(engine_of(H100, plan_of((2000, k), (k, 2000), slices)), ThinResidues)


def test_what_is_not_multiplied_so():
    plan = plan_of((2000, 64), (64, 2000))
    assert not isinstance(engine_of(H100, plan, multiprecision=True), ThinResidues)
    assert not isinstance(engine_of(H100, dataclasses.replace(plan, engine="cublas")), ThinResidues)
    assert isinstance(engine_of(H100, dataclasses.replace(plan, engine="fused"), combined=True), ThinResidues)
    a100 = devices.of("80", multiprocessors=108, shared_memory=167936)
    assert not isinstance(engine_of(a100, plan), ThinResidues)


def test_nothing_is_written_but_the_result():
    program = program_of(plan_of((16384, 64), (64, 16384)), H100)
    assert [step.name for step in program.steps] == ["describe_split", "describe_split", "thin_gemm", "patch"]
    assert program.room.nbytes < 2**27, "two operands with 14 times 128 bytes a row"


def test_many_matrices_are_no_matrix_after_matrix():
    """Of a batch whose slices take more than 16 GiB, parts of 4 GiB; within a limit what it holds."""
    left, right = (1_000_000, 100, 300), (1_000_000, 300, 100)
    plan = plan_of(left, right)
    engine = engine_of(H100, plan)
    assert isinstance(engine, FusedResidues)
    at_once = matrices_of(engine, plan, (1_000_000, 100, 100))
    assert at_once > 500 and workspace_of(engine, Residues(14), 300, at_once, 100, 100) <= choice._PART_OF_BATCH
    assert len(program_of(plan, H100).steps) < 10**4
    limited = dataclasses.replace(plan, workspace_limit=2**30)
    at_once = matrices_of(engine_of(H100, limited), limited, (1_000_000, 100, 100))
    assert workspace_of(engine, Residues(14), 300, at_once, 100, 100) <= 2**30
    few = dataclasses.replace(plan, batch=(100,))
    assert matrices_of(engine, few, (100, 100, 100)) == 100
