"""Floating-point environments that another library has set change neither bits nor bounds."""

import ctypes
import platform
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from cases import same_bits

import ozaki
from ozaki import reference, tensor_core

REGISTERS = {
    # By architecture: bytes from the start of fenv_t to the control register, and the bits of it by what they do.
    "x86_64": (28, {"flush": 1 << 15, "zeros": 1 << 6, "down": 1 << 13, "up": 2 << 13, "toward zero": 3 << 13}),
    "aarch64": (0, {"flush": 1 << 24, "down": 2 << 22, "up": 1 << 22, "toward zero": 3 << 22}),
}
OFFSET, BITS = REGISTERS.get(platform.machine(), (0, {}))
KINDS = [*BITS, "flush, zeros"] if "zeros" in BITS else list(BITS)

pytestmark = pytest.mark.skipif(
    not (sys.platform.startswith("linux") and BITS), reason="the control register is that of Linux on x86-64 or AArch64"
)


@contextmanager
def environment(kind):
    """Set this thread's environment within a `with` statement; yields a function that reads the control register."""
    libc = ctypes.PyDLL(None)
    before, other = ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
    libc.fegetenv(before)
    register = ctypes.c_uint32.from_buffer(other, OFFSET)

    def read():
        now = ctypes.create_string_buffer(256)
        libc.fegetenv(now)
        return ctypes.c_uint32.from_buffer(now, OFFSET).value & sum(BITS.values())

    ctypes.memmove(other, before, 256)
    for each in kind.split(", "):
        register.value |= BITS[each]
    libc.fesetenv(other)
    try:
        yield read
    finally:
        libc.fesetenv(before)


def test_the_environment_is_another_one():
    tiny, half = np.array([5e-324]), np.array([2.0**-1022])
    with environment(KINDS[0]):
        flushed = half * 0.5 == 0
    with environment("up"):
        up = np.array([1.0]) + tiny
    assert flushed.all()
    assert up[0] > 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("a", "b"), [(5e-324, 1e300), (2.0**-1022, 0.5), (2.0**-1060, 2.0**-10), (1e-320, 1.0)])
def test_subnormals_are_multiplied_as_they_are(kind, a, b):
    expected = np.array([[a * b]])
    with environment(kind):
        c, report = ozaki.matmul([[a]], [[b]], reproducible=True, return_report=True)
    assert same_bits(c, expected)
    assert report.bound <= 2.0**-52


CALLS = {
    "residues": {"scheme": "residues", "slices": 14},
    "digits": {"scheme": "digits", "slices": 7},
    "fp64": {"accuracy": "fp64", "reproducible": True},
    "row-column": {"accuracy": ozaki.Accuracy("row-column", 1e-18), "reproducible": True},
    "normwise": {"accuracy": ozaki.Accuracy("normwise", 1e-18), "reproducible": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_bits_and_bounds_are_those_of_the_default_environment(rng, kind, name):
    a = rng.standard_normal((20, 70)) * np.exp2(rng.integers(-30, 30, (20, 70)))
    b = rng.standard_normal((70, 10)) * np.exp2(rng.integers(-600, -500, (1, 10)))
    b[3, 4] = 5e-324
    expected = ozaki.matmul(a, b, return_report=True, **CALLS[name])
    with environment(kind) as register:
        before = register()
        found = ozaki.matmul(a, b, return_report=True, **CALLS[name])
        plan = ozaki.plan(a, b, **CALLS[name])
        prepared = ozaki.matmul(ozaki.prepare(a, "left", plan), b, plan=plan)
        added = ozaki.gemm(2.0, a, b, 1.0, expected[0], **CALLS[name])
        assert register() == before
    assert same_bits(found[0], expected[0])
    assert found[1] == expected[1]
    assert plan == ozaki.plan(a, b, **CALLS[name])
    assert same_bits(prepared, expected[0])
    assert same_bits(added, ozaki.gemm(2.0, a, b, 1.0, expected[0], **CALLS[name]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_native_product_has_no_bound_where_blas_may_round_otherwise(rng, kind):
    a, b = rng.standard_normal((9, 30)), rng.standard_normal((30, 8))
    plan = ozaki.plan(a, b, accuracy=1e-9)
    assert plan.native
    with environment(kind):
        with pytest.raises(ValueError, match=r"^plan: proves a componentwise error of none for these operands"):
            ozaki.matmul(a, b, plan=plan)
        c, chosen = ozaki.matmul(a, b, return_report=True)
        _, named = ozaki.matmul(a, b, scheme="native", return_report=True)
        assert not ozaki.plan(a, b).native
    assert not chosen.native
    assert "floating-point environment" in chosen.why
    assert reference.componentwise_error(c, a, b) <= chosen.bound
    assert named.bound == np.inf
    assert ozaki.matmul(a, b, return_report=True)[1].native


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_references_are_those_of_the_default_environment(rng, kind):
    a, b = rng.standard_normal((5, 40)).astype("f4"), rng.standard_normal((40, 6)).astype("f4")
    small = a * 2.0**-130
    c = ozaki.matmul(a, b, scheme="halfhalf")
    measures = (
        reference.componentwise_error, reference.row_column_error, reference.normwise_error,
    )  # fmt: skip
    errors = [measure(c, a, b) for measure in measures]
    exact, exponent = reference.exact_matmul(small, b)
    rounded = tensor_core.round_to(small, "fp16")
    with environment(kind):
        assert same_bits(ozaki.matmul(a, b, scheme="halfhalf"), c)
        assert [measure(c, a, b) for measure in measures] == errors
        found, its = reference.exact_matmul(small, b)
        assert same_bits(tensor_core.round_to(small, "fp16"), rounded)
    assert its == exponent
    assert (found == exact).all()


@pytest.mark.parametrize("kind", KINDS)
def test_shorthands_come_to_the_same_tolerance(kind):
    asked = [(bits, k) for bits in (24, 33, 53) for k in (1, 12, 1000)]
    expected = [ozaki.Accuracy.of(*each) for each in asked]
    with environment(kind):
        assert [ozaki.Accuracy.of(*each) for each in asked] == expected


def test_an_error_gives_the_environment_back():
    with environment("up") as register:
        before = register()
        with pytest.raises(ValueError, match="b: shape"):
            ozaki.matmul(np.ones((2, 3)), np.ones((2, 3)))
        assert register() == before


def test_an_error_where_it_cannot_be_set(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with environment("up"), pytest.raises(RuntimeError, match="does not round to nearest"):
        ozaki.matmul(np.ones((2, 2)), np.ones((2, 2)))
    with environment("flush"), pytest.raises(RuntimeError, match="flushes subnormals"):
        ozaki.plan((2, 2), (2, 2), dtype="float64", scheme="residues", slices=14)


@pytest.mark.parametrize("kind", KINDS)
def test_multiprecision_arrays_are_the_same(kind):
    values = np.array([5e-324, -3 * 2.0**-1070, 1.5, 0.0])
    floats = [5e-324, 2.0**-1060]
    x = ozaki.mparray(values)

    def results():
        y = ozaki.mparray(values)
        sums = [y + values, values[0] - y, y + ozaki.mparray((values, values)), y * values[0], ozaki.mparray(floats)]
        halves = [(x * 2.0**-3).astype("float64"), (x * 2.0**-3).words(2), (x * 2.0**950).astype("float32")]
        return [z.to_ints() for z in sums], [z.tobytes() for z in halves], (x == values).tolist(), repr(x)

    expected = results()
    with environment(kind):
        found = results()
    for (ints, exponents), (others, other_exponents) in zip(expected[0], found[0], strict=True):
        assert ints.tolist() == others.tolist() and exponents.tolist() == other_exponents.tolist()
    assert expected[1:] == found[1:]
