"""A bound for each entry (docs/bounds.md, B13): none is broken, and those of ordinary data are tight."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from cases import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from mparrays import operand, rationals, transposed

import ozaki
from ozaki import Accuracy


def fractions(x):
    """Finite elements as Fractions, others as 0; of complex ones a pair of arrays."""
    if isinstance(x, ozaki.MPArray):
        return (rationals(x.real), rationals(x.imag)) if x.is_complex else (rationals(x), 0)
    if x.dtype.kind == "c":
        return fractions(x.real)[0], fractions(x.imag)[0]
    return np.vectorize(lambda e: Fraction(float(e)) if np.isfinite(e) else Fraction(0), otypes=[object])(x), 0


def exact(a, b):
    """Both parts of the exact product of operands whose elements that are not finite count as zero."""
    (x, y), (u, v) = fractions(a), fractions(b)
    real = [p @ q for p, q in ((x, u), (y, v)) if not isinstance(p, int) and not isinstance(q, int)]
    imag = [p @ q for p, q in ((x, v), (y, u)) if not isinstance(p, int) and not isinstance(q, int)]
    return (real[0] - real[1] if len(real) == 2 else real[0]), (sum(imag) if imag else 0)


def broken(c, bounds, wanted):
    """The entries whose error is beyond their bound, or that are not finite but have one; as a list of places."""
    plain = c if isinstance(c, ozaki.MPArray) else np.asarray(c)
    (real, imag), bounds = fractions(plain), np.asarray(bounds)
    assert bounds.dtype == np.float64 and bounds.shape == plain.shape and (bounds >= 0).all()
    found = []
    for at in np.ndindex(bounds.shape):
        finite = isinstance(c, ozaki.MPArray) or np.isfinite(plain[at])
        if not finite or bounds[at] == np.inf:
            if not finite and bounds[at] != np.inf:
                found.append(at)
            continue
        errors = [p[at] - q[at] for p, q in zip((real, imag), wanted, strict=True) if not isinstance(p, int)]
        if sum(e * e for e in errors) > Fraction(float(bounds[at])) ** 2:
            found.append(at)
    return found


KINDS = (
    "normal", "wide", "sparse", "whole", "graded", "tiny", "subnormal", "huge", "overflowing", "special", "zeros",
    "ones",
)  # fmt: skip


def unless_refused(function, *operands, **options):
    """What a function returns; None where it refuses an accuracy, or to scale a real and a complex operand along k."""
    try:
        return function(*operands, **options)
    except ValueError as error:
        if "accuracy" in options or "real and a complex" in str(error):
            return None
        raise


def matrix(rng, shape, kind, dtype, side):
    """A random matrix; graded ones have exponents along k, of which B has the negatives."""
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    if real != dtype:
        x = np.empty(shape, dtype)
        x.real, x.imag = (matrix(rng, shape, kind, real, side) for _ in "ri")
        return x
    reach = 120 if real == "float32" else 1000
    x = rng.standard_normal(shape)
    if kind == "wide":
        x = np.ldexp(x, rng.integers(-reach // 4, reach // 4, shape))
    elif kind == "sparse":
        x[rng.random(shape) < 0.8] = 0
    elif kind == "whole":
        x = np.rint(9 * x)
    elif kind == "graded":
        k = shape[1 if side == "left" else 0]
        exponents = np.linspace(-20, 20, k).round().astype(int)
        x = np.ldexp(x, exponents if side == "left" else -exponents[:, None])
    elif kind in ("tiny", "huge"):
        x = np.ldexp(x, (reach // 2 + rng.integers(-8, 30, (shape[0], 1))) * (-1 if kind == "tiny" else 1))
    elif kind == "subnormal":
        x = np.ldexp(x, rng.integers(-reach - 40, -reach + 10, shape))
    elif kind == "overflowing":
        x = np.ldexp(x, rng.integers(reach // 2 - 20, reach // 2 + 20, shape))
    elif kind == "special":
        x[rng.random(shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == "zeros":
        x[rng.integers(0, shape[0])] = 0
        x[:, rng.integers(0, shape[1])] = 0
    elif kind == "ones":
        x = np.sign(x)
    with np.errstate(all="ignore"):
        return x.astype(real)


WAYS = (
    {"scheme": "residues", "slices": 9},
    {"scheme": "residues", "slices": 20},
    {"scheme": "residues", "slices": 70},
    {"scheme": "residues", "slices": 12, "inner_scaling": True},
    {"scheme": "residues", "slices": 8, "engine": "int8-simulated"},
    {"scheme": "digits", "slices": 3},
    {"scheme": "digits", "slices": 7},
    {"scheme": "digits7", "slices": 6},
    {"scheme": "fp16-digits", "slices": 6},
    {"accuracy": "fp32", "reproducible": True},
    {"accuracy": "fp64", "reproducible": True, "workspace_limit": 10**7},
    {"accuracy": 90},
    {"accuracy": "exact"},
    {"accuracy": "exact", "scheme": "digits"},
    {"accuracy": Accuracy("row-column", 1e-6), "reproducible": True},
    {"accuracy": Accuracy("normwise", 1e-9), "reproducible": True},
    {"scheme": "native"},
    {},
)


@settings(max_examples=250, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.tuples(st.sampled_from(["float32", "float64", "complex64", "complex128"]), st.sampled_from(["same", "real"])),
    st.sampled_from(WAYS),
)
def test_no_bound_is_broken(seed, kind, other, dtypes, way):
    rng = np.random.default_rng(seed)
    m, k, n = rng.integers(1, 6), rng.integers(1, 25), rng.integers(1, 6)
    left, right = dtypes[0], dtypes[0] if dtypes[1] == "same" else "float64"
    if rng.random() < 0.5:
        left, right = right, left
    a, b = matrix(rng, (m, k), kind, left, "left"), matrix(rng, (k, n), other, right, "right")
    if way.get("engine") and "c" in a.dtype.kind + b.dtype.kind:
        way = {"scheme": "residues", "slices": 8}
    found = unless_refused(ozaki.matmul, a, b, return_report=True, **way)
    if found is None:
        return
    plain, usual = found
    c, report = ozaki.matmul(a, b, return_report="bounds", **way)
    assert same_bits(c, plain) and usual.bounds is None and report.bound == usual.bound
    assert not broken(c, report.bounds, exact(a, b)), (seed, report.bounds)
    if report.native:
        assert (report.bounds < np.inf)[np.isfinite(c)].all() == (report.bound < np.inf or not np.isfinite(c).any())
    else:
        assert (report.bounds < np.inf)[np.isfinite(c)].all()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(KINDS), st.sampled_from(WAYS))
def test_no_bound_of_gemm_is_broken(seed, kind, other, way):
    rng = np.random.default_rng(seed)
    m, k, n = rng.integers(1, 5), rng.integers(0, 12), rng.integers(1, 5)
    dtype = str(rng.choice(["float32", "float64", "complex128"]))
    a, b = matrix(rng, (m, max(k, 1)), kind, dtype, "left"), matrix(rng, (max(k, 1), n), other, dtype, "right")
    a, b = a[:, :k], b[:k]
    c = matrix(rng, (m, n), str(rng.choice(KINDS)), dtype, "left")
    if way.get("engine"):
        way = WAYS[0]
    alpha, beta = (float(np.float32(x)) for x in rng.choice([0.0, 1.0, -1.0, 0.3, 3e20, 1e-30, 5.0], 2))
    found = unless_refused(ozaki.gemm, alpha, a, b, beta, c, return_report="bounds", **way)
    if found is None:
        return
    d, report = found
    (real, imag), (x, y) = exact(a, b), fractions(c)
    alpha, beta = Fraction(alpha), Fraction(beta)
    wanted = alpha * real + beta * x, alpha * imag + beta * y
    assert not broken(d, report.bounds, wanted), (seed, report.bounds)
    if report.rounded_once:
        assert (report.bounds < np.inf)[np.isfinite(d)].all()


MP_KINDS = ["uniform", "graded", "far", "sparse", "one", "zeros", "whole", "cancelling"]


@settings(max_examples=50, deadline=None)
@given(
    st.randoms(use_true_random=False), st.sampled_from(MP_KINDS), st.sampled_from(MP_KINDS),
    st.sampled_from([{}, {"accuracy": 60}, {"accuracy": 700}, {"accuracy": 1300}, {"accuracy": "exact"},
                     {"scheme": "residues", "slices": 9}, {"accuracy": 1e-4, "dtype": "mp4"},
                     {"accuracy": "fp64", "dtype": "float64"}, {"accuracy": "fp32", "dtype": "float32"}]),
    st.booleans(),
)  # fmt: skip
def test_no_bound_of_multiprecision_results_is_broken(prng, kind, other, way, is_complex):
    m, k, n = prng.randrange(1, 4), prng.randrange(1, 8), prng.randrange(1, 4)
    a, b = operand(prng, (m, k), 120, kind), transposed(operand(prng, (n, k), 90, other))
    if "far" in (kind, other) and "dtype" in way and "float" in way["dtype"]:
        kind = "uniform"
        a, b = operand(prng, (m, k), 120, kind), transposed(operand(prng, (n, k), 90, kind))
    if is_complex:
        a = a + ozaki.mparray(1j) * operand(prng, (m, k), 90, kind)
        if "dtype" in way and "float" in way["dtype"]:
            way = {**way, "dtype": {"float64": "complex128", "float32": "complex64"}[way["dtype"]]}
    found = unless_refused(ozaki.matmul, a, b, return_report="bounds", **way)
    if found is None:
        assert "far" in (kind, other)
        return
    c, report = found
    assert not broken(c, report.bounds, exact(a, b)), report.bounds
    if way.get("accuracy") == "exact":
        assert not report.bounds.any() and "proven of each entry by itself: exact" in str(report)
    if isinstance(c, ozaki.MPArray) and not is_complex and "dtype" not in way:
        d, of_sum = ozaki.gemm(Fraction(-3, 4), a, b, 2**70, c, return_report="bounds", **way)
        wanted = Fraction(-3, 4) * exact(a, b)[0] + 2**70 * fractions(c)[0]
        assert not broken(d, of_sum.bounds, (wanted, 0)), of_sum.bounds


def test_bounds_beyond_the_range_of_floats():
    """Exponents of 2**59: bounds are Inf, or a few times the smallest number."""
    rng = np.random.default_rng(3)
    a, b = (ozaki.mparray(rng.standard_normal(shape)) for shape in ((3, 9), (9, 2)))
    options = {"scheme": "residues", "slices": 12, "dtype": "mp", "return_report": "bounds"}
    up, down, plain = (ozaki.matmul(a.ldexp(e), b, **options)[1].bounds for e in (2**59, -(2**59), 0))
    assert (up == np.inf).all() and ((down > 0) & (down <= 2.0**-1072)).all() and (plain < 1e-9).all()


def test_they_are_tight(rng):
    """The median is within 2**8 of the root mean square of the errors, and no larger than the one bound allows."""
    for dtype, way in (
        ("float64", {"accuracy": "fp64", "reproducible": True}),
        ("float64", {"scheme": "residues", "slices": 10}),
        ("float64", {"scheme": "digits", "slices": 5}),
        ("float32", {"accuracy": "fp32", "reproducible": True}),
        ("complex128", {"accuracy": "fp64", "reproducible": True}),
        ("complex128", {"scheme": "digits", "slices": 5}),
        ("float64", {"scheme": "residues", "slices": 25}),
    ):
        a, b = (matrix(rng, shape, "normal", dtype, "") for shape in ((16, 300), (300, 16)))
        c, report = ozaki.matmul(a, b, return_report="bounds", **way)
        (x, y), (u, v) = exact(a, b), fractions(c)
        errors = np.hypot((x - u).astype(float), (y - v).astype(float) if dtype[0] == "c" else 0.0)
        assert np.median(report.bounds) <= 2**8 * np.sqrt((errors**2).mean()), (dtype, way)
        assert np.median(report.bounds / (abs(a) @ abs(b))) <= 1.5 * report.bound
        assert not broken(c, report.bounds, (x, y))


def test_the_one_bound_is_one_of_each_entry(rng):
    """So docs/bounds.md, B13, says, for each measure."""
    a, b = matrix(rng, (9, 40), "wide", "float64", ""), matrix(rng, (40, 8), "normal", "float64", "")
    wanted = exact(a, b)
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)
    for accuracy, compared in (
        ("fp64", abs(a) @ abs(b)),
        (Accuracy("row-column", 1e-12), norms),
        (Accuracy("normwise", 1e-12), np.full((9, 8), np.linalg.norm(a) * np.linalg.norm(b))),
        (Accuracy("relative", 1e-12), None),
    ):
        c, report = ozaki.matmul(a, b, accuracy=accuracy, reproducible=True, return_report=True)
        of_each = abs(wanted[0].astype(float)) if compared is None else compared
        assert not broken(c, report.bound * of_each * (1 + 2.0**-40), wanted), accuracy


def test_exact_entries_have_none(rng):
    """Where an entry is a multiple of a unit in its last place nothing was rounded."""
    a, b = matrix(rng, (7, 30), "whole", "float64", ""), matrix(rng, (30, 6), "whole", "float64", "")
    for way in ({"accuracy": "fp64", "reproducible": True}, {"scheme": "digits", "slices": 6}, {"accuracy": "exact"}):
        c, report = ozaki.matmul(a, b, return_report="bounds", **way)
        assert not report.bounds.any() and (c == a @ b).all(), way
    half, report = ozaki.gemm(0.5, a, b, 0, None, accuracy="exact", return_report="bounds")
    assert not report.bounds.any() and (half == 0.5 * (a @ b)).all()
    a[2] *= 2.0**60 + 2.0**9  # whole numbers that no longer are all products' last bits
    c, report = ozaki.matmul(a, b, accuracy="exact", return_report="bounds")
    assert not np.delete(report.bounds, 2, 0).any()
    assert (report.bounds[2] <= np.spacing(abs(c[2])) / 2).all()


def test_shapes_stacks_plans_and_prepared_operands(rng):
    a, b = rng.standard_normal((3, 1, 4, 9)), rng.standard_normal((2, 9, 5))
    options = {"accuracy": "fp64", "reproducible": True, "return_report": "bounds"}
    c, report = ozaki.matmul(a, b, **options)
    assert report.bounds.shape == c.shape == (3, 2, 4, 5)
    for i, j in np.ndindex(3, 2):
        alone = ozaki.matmul(a[i, 0], b[j], scheme=report.scheme, slices=report.slices, return_report="bounds")[1]
        assert same_bits(np.ascontiguousarray(report.bounds[i, j]), alone.bounds)
    x, y = a[0, 0, 0], b[0, :, 0]
    for left, right, shape in ((x, y, ()), (a[0, 0], y, (4,)), (x, b[0], (5,)), (a[:, 0], b[:1], (3, 4, 5))):
        found = ozaki.matmul(left, right, **options)[1].bounds
        assert np.shape(found) == shape and np.all((found > 0) & (found < 1e-12))
    assert isinstance(ozaki.matmul(x, y, **options)[1].bounds, np.float64)
    plan = ozaki.plan(a[:, 0], b[0], accuracy="fp64", reproducible=True)
    shapes = ozaki.plan((3, 4, 9), (9, 5), dtype="float64", scheme=plan.scheme.name, slices=plan.slices)
    expected = ozaki.matmul(a[:, 0], b[0], plan=plan, return_report="bounds")[1].bounds
    for left, right in (
        (a[:, 0], ozaki.prepare(b[0], "right", plan)), (ozaki.prepare(a[:, 0], "left", plan), b[0]),
    ):  # fmt: skip
        assert same_bits(ozaki.matmul(left, right, plan=plan, return_report="bounds")[1].bounds, expected)
    assert same_bits(ozaki.matmul(a[:, 0], b[0], plan=shapes, return_report="bounds")[1].bounds, expected)


def test_of_nothing(rng):
    a = rng.standard_normal((3, 4))
    options = {"accuracy": "fp64", "return_report": "bounds"}
    assert ozaki.matmul(a[:0], a.T, **options)[1].bounds.shape == (0, 3)
    c, report = ozaki.matmul(a[:, :0], a.T[:0], **options)
    assert not c.any() and not report.bounds.any()
    d, report = ozaki.gemm(0, a, a.T, 0.1, np.eye(3), **options)
    assert not broken(d, report.bounds, (Fraction(0.1) * fractions(np.eye(3))[0], 0)) and report.bounds.any()
    d, report = ozaki.gemm(np.nan, a, a.T, 1, np.eye(3), **options)
    assert (report.bounds == np.inf).all() and "no bound of any entry by itself" in str(report)
    c, report = ozaki.matmul(
        np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2), dtype="int64", return_report="bounds"
    )
    assert report.bounds.shape == (2, 2) and not report.bounds.any()


def test_entries_of_words_and_of_what_may_leave_the_range_on_the_way_have_none(rng):
    a, b = rng.standard_normal((2, 9, 9)).astype("float32")
    assert (ozaki.matmul(a, b, scheme="halfhalf", return_report="bounds")[1].bounds == np.inf).all()
    a[0, 0] = 1e-44
    assert (ozaki.matmul(a, b, scheme="native", return_report="bounds")[1].bounds == np.inf).all()
    assert (ozaki.gemm(2, b, b, 0, None, scheme="native", return_report="bounds")[1].bounds == np.inf).all()


def test_native_products_have_bounds_by_norms(rng):
    for left, right in (("float64", "float64"), ("float32", "float32"), ("complex128", "complex128"),
                        ("complex64", "float32"), ("float64", "complex128")):  # fmt: skip
        a, b = matrix(rng, (9, 200), "normal", left, ""), matrix(rng, (200, 8), "normal", right, "")
        c, report = ozaki.matmul(a, b, scheme="native", return_report="bounds")
        assert not broken(c, report.bounds, exact(a, b))
        one = report.bound * (abs(a).astype(float) @ abs(b).astype(float))
        assert (report.bounds < 4 * one).all() and np.median(report.bounds / one) > 0.5


def test_both_kinds_and_what_is_printed(rng):
    a, b = rng.standard_normal((2, 9, 9))
    a[3, 3] = np.nan
    options = {"accuracy": "fp64", "reproducible": True}
    _, both = ozaki.matmul(a, b, return_report=("relative", "bounds"), **options)
    _, alone = ozaki.matmul(a, b, return_report="bounds", **options)
    assert both.relative_bound is not None and alone.relative_bound is None and same_bits(both.bounds, alone.bounds)
    assert "proven of each entry by itself: error <= " in str(both) and "; none of 9 of 81 entries" in str(both)
    assert both == ozaki.matmul(a, b, return_report=("bounds", "relative"), **options)[1]
    for wrong in ((), ("bounds", True), "entries", ("relative", "entries"), 1):
        with pytest.raises(TypeError, match="return_report: "):
            ozaki.matmul(a, b, return_report=wrong)


def test_a_limit_holds_and_changes_nothing(rng):
    a, b = rng.standard_normal((400, 60)), rng.standard_normal((60, 500))
    options = {"accuracy": "fp64", "reproducible": True, "return_report": "bounds"}
    _, free = ozaki.matmul(a, b, **options)
    limit = 2**21
    _, report = ozaki.matmul(a, b, workspace_limit=limit, **options)
    assert report.workspace_bytes <= limit and same_bits(report.bounds, free.bounds)


def test_of_tensors_they_are_tensors(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = rng.standard_normal((2, 5, 9, 9)).astype("float32")
    options = {"accuracy": "fp32", "reproducible": True, "return_report": "bounds"}
    expected = ozaki.matmul(a, b, **options)[1]
    c, report = ozaki.matmul(torch.from_numpy(a), torch.from_numpy(b), **options)
    assert isinstance(report.bounds, torch.Tensor) and report.bounds.dtype == torch.float64
    assert report.bounds.shape == c.shape and (report.bounds.numpy() == expected.bounds).all()
    assert str(report) == str(expected)


def test_of_arrays_of_jax_they_are_numpy_s_unless_float64_is_on(rng):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    a, b = rng.standard_normal((2, 9, 9)).astype("float32")
    options = {"accuracy": "fp32", "reproducible": True, "return_report": "bounds"}
    expected = ozaki.matmul(a, b, **options)[1]
    for wide in (False, True):
        with jax.enable_x64(wide):
            c, report = ozaki.matmul(jax.numpy.asarray(a), jax.numpy.asarray(b), **options)
            assert isinstance(c, jax.Array) and isinstance(report.bounds, jax.Array) == wide
            assert (np.asarray(report.bounds) == expected.bounds).all() and str(report) == str(expected)


def test_what_is_out_of_reach_of_one_format_is_not_scaled(rng):
    """A float32 operand holds no factors for float64 ones of 2**-500."""
    a, b = rng.standard_normal((4, 9)).astype("float32"), rng.standard_normal((9, 3)) * 2.0**-500
    options = {"scheme": "residues", "slices": 12, "return_report": "bounds"}
    for x, y in ((a, b), (b.T, a.T)):
        c, report = ozaki.matmul(x, y, inner_scaling=True, **options)
        plain, usual = ozaki.matmul(x, y, **options)
        assert same_bits(c, plain) and same_bits(report.bounds, usual.bounds)
        assert not broken(c, report.bounds, exact(x, y)) and c.any()
