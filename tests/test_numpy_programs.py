"""NumPy's programs, which are what runs and what `ozaki plan --steps` prints, and the un-rounded product."""

import weakref
from itertools import pairwise

import numpy as np
import pytest
from cases import same_bits

import ozaki
from ozaki.backends.numpy import _execute, _proof, backend
from ozaki.backends.numpy._describe import describe, describe_both
from ozaki.backends.numpy._execute import slices_of
from ozaki.backends.numpy._proof import facts_program, proof_workspace
from ozaki.backends.numpy._tiles import FEW
from ozaki.backends.numpy._unrounded import Unrounded
from ozaki.backends.numpy.engines import engine_of
from ozaki.backends.numpy.program import Views, product_program
from ozaki.schemes import ComplexResidues, Digits, Residues, scaling_of

ALL = slice(None)


@pytest.mark.parametrize("scheme", [Residues(14), Residues(60), Digits(5), ComplexResidues(14).slices], ids=str)
@pytest.mark.parametrize("k", [37, 5000])
def test_parts_of_k_are_added_in_any_order(rng, scheme, k):
    """Whatever the parts are, as long as none is longer than a slab; the engine is that of all of k."""
    a, b = rng.standard_normal((2, 1, 6, k))
    if scheme == ComplexResidues(14).slices:
        a, b = a + 1j * rng.standard_normal(a.shape), b + 1j * rng.standard_normal(b.shape)
    b = b[:, :5]
    left, right = describe(a), describe(b)
    engine = engine_of(scheme, left.k, "auto")
    mu, nu = (x.on_host.exponents(scaling_of(scheme, x.k)) for x in (left, right))
    c = np.empty((1, 6, 5), a.dtype)
    for _ in range(3):
        ends = sorted({0, k, *range(0, k, engine.slab), *rng.integers(0, k, 4).tolist()})
        parts = [
            Unrounded(
                engine,
                engine.multiply(
                    slices_of(left, mu, engine, "left", ALL, ALL, slice(*at)),
                    slices_of(right, nu, engine, "right", ALL, ALL, slice(*at)),
                ),
                mu,
                nu,
            )
            for at in pairwise(ends)
        ]
        order = [parts[i] for i in rng.permutation(len(parts))]
        half = len(order) // 2
        for some in (order[:half], order[half:]):
            for other in some[1:]:
                some[0].add(other)
        if half:
            order[half].add(order[0])
        order[half].round_into(c)
        name = "residues" if isinstance(scheme, Residues) else scheme.name
        count = 14 if np.iscomplexobj(a) else scheme.count
        assert same_bits(c[0], ozaki.matmul(a[0], b[0].T, scheme=name, slices=count))


def test_what_runs_is_what_prints(rng, monkeypatch):
    ran = []
    monkeypatch.setattr(_execute, "run", lambda program, *of, **options: ran.append(program))
    a, b = rng.standard_normal((300, 5000)), rng.standard_normal((5000, 30))
    for options in (
        {"slices": 14},
        {"slices": 40, "workspace_limit": 2**25},
        {"slices": 9, "engine": "int8-simulated"},
    ):
        plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme="residues", **options)
        ozaki.matmul(a, b, plan=plan)
        assert str(ran[-1]) == backend.steps(plan)
    plan = ozaki.plan(a, b, accuracy=80)
    ozaki.matmul(a, b, plan=plan)
    of_facts = facts_program("sampled", (1, *a.shape), (1, *b.T.shape), None)
    assert backend.steps(plan).splitlines()[:4] == str(of_facts).splitlines()
    assert all(step in backend.steps(plan) for step in ran[-1].steps)


@pytest.mark.parametrize("scheme", [Residues(14), Digits(5)], ids=str)
def test_the_bytes_of_a_program_are_known_before_it_runs(scheme):
    views = Views(3, 700, 5000, 600)
    free = product_program(scheme, False, views, None)
    assert (free.rows, free.columns, len(free.slabs), free.keeps_columns) == (2048, 2048, 3, False)
    for limit in (free.nbytes, free.nbytes - 1, free.nbytes // 5):
        program = product_program(scheme, False, views, limit)
        assert program.nbytes <= limit
        assert (program.nbytes == free.nbytes) == (limit == free.nbytes)
    with pytest.raises(ValueError, match=r"^workspace_limit: leaves 200000 bytes for the product, which needs"):
        product_program(scheme, False, views, 200_000)


def test_the_program_of_a_proof_keeps_within_a_limit():
    shapes = (2, 300, 4000), (1, 200, 4000)
    whole = facts_program("narrow", *shapes, None)
    assert whole.panels is None and whole.nbytes == proof_workspace("narrow", *shapes)
    part = facts_program("narrow", *shapes, whole.nbytes // 3)
    assert part.panels is not None and not part.panels.one and part.nbytes <= whole.nbytes // 3
    assert "several panels" in str(part) and "several panels" not in str(whole)


def test_each_panel_of_a_proof_is_freed_before_the_next(rng, monkeypatch):
    """And panels without any of the rows that are asked for are left out."""
    a, b = rng.standard_normal((700, 50)), rng.standard_normal((50, 600))
    bound, made, alive = _proof.lower_bound, [], []

    def counted(*of):
        alive.append(sum(each() is not None for each in made))
        found = bound(*of)
        made.append(weakref.ref(found))
        return found

    plan = ozaki.plan(a, b, accuracy="fp64", scheme="residues")
    monkeypatch.setattr(_proof, "lower_bound", counted)
    assert ozaki.plan(a, b, accuracy="fp64", scheme="residues", workspace_limit=2**22).bound == plan.bound
    assert len(alive) > 2 and max(alive) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_operands_are_described_as_alone(rng, dtype):
    """Both as rows of one matrix; whatever their batches, orders and values are."""
    for _ in range(60):
        k, (batch_x, m, batch_y, n) = int(rng.integers(1, 20)), rng.integers(1, 6, 4)
        x = np.ldexp(rng.standard_normal((batch_x, m, k)), rng.integers(-30, 30, (batch_x, m, k))).astype(dtype)
        y = np.ldexp(rng.standard_normal((batch_y, k, n)), rng.integers(-2, 2, (batch_y, k, n))).astype(dtype)
        y = y.swapaxes(1, 2)
        for z in (x, y):
            if rng.integers(0, 2):
                z[rng.random(z.shape) < 0.3] = rng.choice([0.0, np.nan, np.inf, 1.0])
            if rng.integers(0, 3) == 0:
                z[0, 0] = 0
        if rng.integers(0, 3) == 0:
            x[-1, -1, 0], x[-1, -1, -1] = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
        assert x.size + y.size <= FEW
        for both, alone in zip(describe_both(x, y), (describe(x), describe(y)), strict=True):
            assert np.array_equal(both.fields, alone.fields) and both.fields.shape == alone.fields.shape
            assert both.spans == alone.spans
            assert not both.finite or np.isfinite(both.x).all()
