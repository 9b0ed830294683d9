"""Matrices for tests, and exact arithmetic on floats in Python integers."""

import math
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import ozaki
from ozaki.backends.numpy import _describe, _execute, _limbs, _numbers, _proof, _unrounded, _words, program, work
from ozaki.backends.numpy.compiled import compiled
from ozaki.backends.numpy.engines import complex_residues, digits, residues
from ozaki.backends.numpy.engines.by_blas import BlasEngine
from ozaki.backends.numpy.work import Work
from ozaki.planning.facts import Facts, or_need, settle
from ozaki.planning.promise import proven
from ozaki.planning.proof import Proof
from ozaki.records.memory import Memory
from ozaki.schemes import blas

MOST_BYTES = 49
"""Moduli up to 256 of the scheme of residues; all later ones are larger."""

FORMATS = {"float32": (24, -149, 128), "float64": (53, -1074, 1024)}
"""By dtype: bits of the significand, exponent of the smallest number, exponent past the largest."""


def spread(rng, shape, span, dtype="float64"):
    """Normal numbers times powers of two from 2**-span to 1, one in ten of them zero."""
    x = np.ldexp(rng.standard_normal(shape), -rng.integers(0, span + 1, shape))
    x[rng.random(shape) < 0.1] = 0
    return x.astype(dtype)


def with_ranges(rng, shape, span, dtype):
    """Elements spread over 2**span inside rows, rows of different magnitudes, some zeros.

    One call in eight each draws nonnegative elements, multiples of 2**-(span // 2), powers of two, or a row of zeros.
    Products stay within the range of float32, so that nothing over- or underflows.
    """
    x = np.ldexp(spread(rng, shape, span, "float64"), span // 2)
    kind = rng.integers(0, 8)
    if kind == 0:
        x = np.abs(x)
    elif kind == 1:
        x = np.ldexp(np.rint(np.ldexp(x, span // 2)), -(span // 2))
    elif kind == 2:
        x = np.sign(x) * np.ldexp(1.0, span // 2 - rng.integers(0, span + 1, shape))
    elif kind == 3 and x.size:
        x[rng.integers(0, shape[0])] = 0
    return np.ldexp(x, rng.integers(-10, 11, (shape[0], 1))).astype(dtype)


LOOSEST = math.nextafter(1.0, 0.0)
"""The largest tolerance that `ozaki.Accuracy` takes."""


def measured(measure, a, b, **options):
    """The product, and a report that has the bound in that measure, however large it is."""
    plan = replace(ozaki.plan(a, b, **options), target=ozaki.Accuracy(measure, LOOSEST))
    return ozaki.matmul(a, b, plan=plan, return_report=True)


def proven_in(measure, plan, work):
    """The bound in that measure that `measured` reports of a plan for the operands of a `Work`, without a product."""
    given = replace(plan, target=ozaki.Accuracy(measure, LOOSEST))
    prove = partial(proven, given, None, wanted=plan.unrounded_bound)
    return settle(prove, lambda need, _: work.measure(need), Facts())[0].bound


def viewed(rng, x):
    """Matrices equal to x with strides drawn at random: as in x, transposed, reversed, or with gaps; half read-only."""
    kind = rng.integers(0, 4)
    if kind == 1:
        x = np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    elif kind == 2:
        x = np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]
    elif kind == 3:
        wide = np.full((*x.shape[:-2], 2 * x.shape[-2], 3 * x.shape[-1]), np.nan, x.dtype)
        wide[..., ::2, ::3] = x
        x = wide[..., ::2, ::3]
    if rng.integers(0, 2):
        x = x.view()
        x.flags.writeable = False
    return x


def layouts(x):
    """The same numbers in memory in other ways."""
    yield x
    yield np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    yield np.repeat(x, 2, axis=-1)[..., ::2]
    yield np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]
    apart = np.zeros(x.shape, [("padding", "i2"), ("x", x.dtype)])  # not at multiples of the element's size
    apart["x"] = x
    yield apart["x"]


def integers(x):
    """Floats as nested lists of integers and of exponents: x == integer 2**exponent."""
    fraction, exponent = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(fraction, 53).astype(np.int64).tolist(), (exponent.astype(np.int64) - 53).tolist()


def power(exponent):
    """2**exponent as a Fraction."""
    return Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent)


def rounded(value, dtype):
    """A Fraction rounded once, to nearest, ties to even: in the subnormals too, and to Inf past the largest number."""
    precision, smallest, past = FORMATS[str(np.dtype(dtype))]
    if value == 0:
        return np.dtype(dtype).type(0)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < power(exponent)
    ulp = max(exponent - precision + 1, smallest)
    units = round(size / power(ulp))
    result = math.inf if units * power(ulp) >= power(past) else math.ldexp(units, ulp)
    return np.dtype(dtype).type(result if value > 0 else -result)


def rounded_product(a, b):
    """The exact product, rounded once."""
    integers, exponent = ozaki.reference.exact_matmul(a, b)
    dtype = np.result_type(a, b)
    c = np.empty(integers.shape, dtype)
    for at in np.ndindex(c.shape):
        c[at] = rounded(int(integers[at]) * power(exponent), dtype)
    return c


def rounded_sum(alpha, x, beta, c):
    """Alpha x + beta c, x and c arrays of floats of one shape, rounded once to the dtype of x."""
    out = np.empty(x.shape, x.dtype)
    for at in np.ndindex(x.shape):
        out[at] = rounded(Fraction(alpha) * Fraction(float(x[at])) + Fraction(beta) * Fraction(float(c[at])), x.dtype)
    return out


def by_blas(a, b, **options):
    """`ozaki.matmul` of NumPy arrays, by float64 BLAS in place of compiled code."""
    return ozaki.matmul(a, b, engine="float64", **options)


def same_bits(x, y):
    """Whether two arrays are equal in shape, dtype and every bit."""
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()


def assert_same(expected, got, *about):
    """Assert that two arrays are equal in shape, dtype and every bit; any NaN equals any other."""
    expected, got = np.asarray(expected), np.asarray(got)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), about
    expected, got = (np.where(np.isnan(x), x.dtype.type(np.nan), x) for x in (expected, got))
    assert same_bits(expected, got), (first_difference(expected, got), *about)


def first_difference(x, y):
    """The first place where two arrays differ, with both values in hex: for the message of a failure."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{x.dtype} {x.shape} and {y.dtype} {y.shape}"
    for at in np.ndindex(x.shape):
        if x[at].tobytes() != y[at].tobytes():
            return f"at {at}: {float(x[at]).hex()} and {float(y[at]).hex()}"
    return "equal"


def work_of(a, b):
    """NumPy's `Work` for the product of two matrices, whose `measure` finds facts about them."""
    rows = {"left": a[None], "right": b.T[None]}
    return Work(a, b, rows.get, str(np.result_type(a, b)), Memory(None))


def bounds_of(work, k, measure, *schemes, few_rows=False):
    """The bounds of schemes at the first level of proof; with few_rows, lower bounds of these from the first rows."""
    target = ozaki.Accuracy(measure, 0.5)

    @or_need
    def bounds(facts):
        proof = Proof(facts, k, target, schemes[0])
        return [(proof.at_least if few_rows else proof.bound)(scheme) for scheme in schemes]

    return settle(bounds, lambda need, _: work.measure(need), Facts())[0]


def set_sizes(monkeypatch, tile, panel=None):
    """Let NumPy's backend process at most `tile` elements at a time, and panels and slabs of at most `panel`."""
    for module in (
        _describe,
        _limbs,
        _numbers,
        _proof,
        _unrounded,
        complex_residues,
        digits,
        program,
        residues,
    ):
        for name, value in (("TILE", tile), ("FEW", 0)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    if panel is not None:
        monkeypatch.setattr(program, "_PANEL", panel)
        monkeypatch.setattr(blas, "DEPTH", panel)
    # Programs of other sizes are not for this test, nor are its own for others.
    monkeypatch.setattr(_execute, "product_program", program.product_program.__wrapped__)


def check_refused(monkeypatch, call, error, name, expected):
    """Check that a call raises `error` in one line that names the argument first, before NumPy begins a product."""

    def never(*args, **kwargs):
        raise AssertionError("computed something")

    monkeypatch.setattr(BlasEngine, "multiply", never)
    monkeypatch.setattr(work, "native", never)
    monkeypatch.setattr(_words, "_multiply", never)
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{name}: "), message
    assert expected in message, message
    assert "\n" not in message


def held_by(call):
    """What a function returns, and the most bytes that it holds meanwhile, memory that is used again among them."""
    call()  # what is imported is
    ozaki.clear_caches()
    compiled()  # which tries the library
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_no_more_is_held(a, b, out, limit, **options):
    """Assert that a product into `out` holds no more memory than its report says, and than a limit that it has."""
    options |= {"out": out, "workspace_limit": limit, "return_report": True}
    (_, report), held = held_by(lambda: ozaki.matmul(a, b, **options))
    assert held <= report.workspace_bytes + 400_000  # what imports and caches take
    assert limit is None or report.workspace_bytes <= limit
