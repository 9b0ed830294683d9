"""`verify=True`: a flipped bit of slices, sums, exponents or integers changes no result, and is reported."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest

import ozaki
from ozaki.backends.numpy import _execute, _projection
from ozaki.backends.numpy.engines import engine_of
from ozaki.schemes import Residues
from ozaki.schemes.projections import PRIMES, random_vector

ENGINES = ("auto", "float64", "int8-simulated")


def normal(*shape, seed=0, dtype="float64"):
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def products():
    """Operands and options of products of all kinds."""
    a, b = normal(37, 150), normal(150, 23)
    stack = normal(3, 150, 5)
    z = normal(37, 150, dtype="complex128")
    graded = 2.0 ** np.arange(150)
    spoilt = a.copy()
    spoilt[3, 4], spoilt[5, 6] = np.nan, -np.inf
    numbers = ozaki.mparray(a, bits=200)
    return {
        "residues": (a, b, {"accuracy": "fp64"}),
        "float32": (a.astype("f"), b.astype("f"), {"accuracy": "fp32"}),
        "column-major": (np.asfortranarray(a), np.asfortranarray(b), {"accuracy": "fp64"}),
        "one row": (a[:1], b, {"accuracy": "fp64"}),
        "long": (normal(3, 9000), normal(9000, 2), {"accuracy": "fp64"}),
        "wide": (normal(2, 3), normal(3, 5000), {"accuracy": "fp64"}),
        "stack": (normal(3, 6, 150), stack, {"accuracy": "fp64"}),
        "one matrix beside a stack": (a, stack, {"accuracy": "fp64"}),
        "a stack beside one matrix": (normal(3, 6, 150), b, {"accuracy": "fp64"}),
        "vectors": (a[0], b[:, 0], {"accuracy": "fp64"}),
        "digits": (a, b, {"scheme": "digits", "slices": 7}),
        "digits of 7 bits": (a, b, {"scheme": "digits7", "accuracy": "fp64"}),
        "itself": (a, a.T, {"accuracy": "fp64"}),
        "digits of itself": (a, a.T, {"scheme": "digits", "accuracy": "fp64"}),
        "complex": (z, z[:23].T, {}),
        "complex itself": (z, z.T, {}),
        "complex and real": (z, b, {}),
        "digits of complex": (z, z[:23].T, {"scheme": "digits", "accuracy": "fp64"}),
        "scaled along k": (a * graded, b / graded[:, None], {"accuracy": "fp64", "inner_scaling": True}),
        "wide images": (a * graded, b, {"accuracy": "exact"}),
        "images beyond float64": (a, b, {"scheme": "residues", "slices": 250}),
        "complex images beyond float64": (z, z[:23].T, {"scheme": "residues", "slices": 250}),
        "images beyond float64, scaled along k": (a, b, {"scheme": "residues", "slices": 250, "inner_scaling": True}),
        "300 bits": (a, b, {"accuracy": 300}),
        "relative": (a, b, {"accuracy": "relative:1e-12"}),
        "NaN and Inf": (spoilt, b, {"accuracy": "fp64"}),
        "zeros": (0 * a, b, {"accuracy": "fp64"}),
        "subnormal": (a * 2.0**-1050, b, {"accuracy": "fp64"}),
        "multiprecision": (numbers, ozaki.mparray(b, bits=200), {}),
        "multiprecision itself": (numbers, numbers.T, {}),
        "integers": (np.arange(60).reshape(6, 10), np.arange(40).reshape(10, 4), {"dtype": "int64"}),
        "limit": (normal(300, 200), normal(200, 300), {"accuracy": "fp64", "workspace_limit": 5_000_000}),
    }


def same(x, y):
    return x.tobytes() == y.tobytes() if isinstance(x, np.ndarray | np.generic) else bool((x == y).all())


@pytest.mark.parametrize("name", products())
@pytest.mark.parametrize("engine", ENGINES)
def test_right_products_are_found_right_and_keep_their_bits(name, engine):
    a, b, options = products()[name]
    c, report = ozaki.matmul(a, b, engine=engine, verify=True, return_report=True, **options)
    assert (report.verified, report.recomputed) == (6 if name in ("stack", "one matrix beside a stack") else 2, 0)
    assert same(c, ozaki.matmul(a, b, engine=engine, reproducible=True, **options))
    assert "random projections agreed" in str(report)


@pytest.mark.parametrize("engine", ENGINES)
def test_expressions(engine):
    a, b, c = normal(37, 150), normal(150, 23), normal(37, 23)
    z = normal(37, 150, dtype="complex128")
    given = [
        ((-2, a, b, 3, c), {}),
        ((-4, a, b, 0, None), {}),
        ((1, z, z, 0, None), {"trans_b": "C"}),
        ((0.1, z, z, 0, None), {"trans_b": "T"}),
        ((1, a, b, 1, ozaki.mparray(c)), {}),
    ]
    for terms, options in given:
        d, report = ozaki.gemm(*terms, engine=engine, verify=True, return_report=True, **options)
        assert (report.verified, report.recomputed) == (2, 0)
        assert same(d, ozaki.gemm(*terms, engine=engine, reproducible=True, **options))


def test_panels_of_many_columns_and_of_a_matrix_with_itself(monkeypatch):
    from ozaki.backends.numpy import program

    monkeypatch.setattr(program, "_PANEL", 16)
    ozaki.clear_caches()
    a, b = normal(37, 150), normal(150, 45)
    z = normal(37, 150, dtype="complex128")
    for engine in ENGINES:
        for x, y in ((a, b), (a, a.T), (z, z.T)):
            c, report = ozaki.matmul(x, y, engine=engine, accuracy="fp64", verify=True, return_report=True)
            assert (report.verified, report.recomputed) == (2, 0)
            assert same(c, ozaki.matmul(x, y, engine=engine, accuracy="fp64"))
        _, report = ozaki.gemm(1, z, z, 0, None, trans_b="C", engine=engine, verify=True, return_report=True)
        assert report.recomputed == 0
    ozaki.clear_caches()


def test_prepared_operands():
    a, b = normal(37, 150), normal(150, 23)
    plan = ozaki.plan(a, b, accuracy="fp64", reproducible=True)
    left = ozaki.prepare(a, "left", plan)
    c, report = ozaki.matmul(left, b, plan=plan, verify=True, return_report=True)
    assert report.verified == 2 and same(c, ozaki.matmul(a, b, plan=plan))
    left.slices.planes[0, 0, 5, 7] += 1
    with pytest.warns(RuntimeWarning, match=r"1 of 2|2 of 2"), pytest.raises(ozaki.VerificationError):
        ozaki.matmul(left, b, plan=plan, verify=True)


# Faults --------------------------------------------------------------------------------------------------------------


class Fault:
    """Flips one bit of what a function returns, in one of its calls, or from that call on."""

    def __init__(self, function, call, rng, lasting=False, find=lambda x: x, bits=64):
        self.function, self.call, self.rng, self.lasting, self.find = function, call, rng, lasting, find
        self.calls, self.bits = 0, bits

    def __call__(self, *args, **kwargs):
        found = self.function(*args, **kwargs)
        self.calls += 1
        if self.calls - 1 == self.call or (self.lasting and self.calls > self.call):
            flip(self.find(found), self.rng, self.bits)
        return found


def flip(x, rng, bits):
    """Flip a random one of the lowest bits of a random element of x, of any strides."""
    at = tuple(int(rng.integers(size)) for size in x.shape)
    whole = x[at].view(f"u{x.itemsize}")
    x[at] = (whole ^ whole.dtype.type(1 << int(rng.integers(min(8 * x.itemsize, bits))))).view(x.dtype)


def memory_of(planes):
    """The array of slices that an engine returned."""
    return planes if isinstance(planes, np.ndarray) else planes.memory


KINDS = ("residues", "digits", "itself", "complex", "complex itself", "stack", "300 bits", "multiprecision")
PLACES = ("planes", "sums", "integers", "exponents")


def put(monkeypatch, place, engine, scheme, k, fault):
    """Let a fault happen in a place of a product."""
    of = type(engine_of(scheme, k, engine))
    match place:
        case "planes":
            monkeypatch.setattr(_execute, "slices_of", fault(_execute.slices_of, find=memory_of))
        case "exponents":
            # Higher bits may leave the range of the engine, which ends the product with an error of its own.
            monkeypatch.setattr(_execute, "_exponents", fault(_execute._exponents, bits=4))
        case "sums" | "integers":
            name = "multiply" if place == "sums" else "limbs"
            method = getattr(of, name)
            one = fault(method)
            monkeypatch.setattr(of, name, lambda self, *args: one(self, *args))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_flipped_bit_changes_no_result(kind, engine, place, monkeypatch):
    if (kind, place) == ("300 bits", "exponents"):
        pytest.skip("another exponent makes images longer than their tables, which is an error of its own")
    a, b, options = products()[kind]
    a, b = a[..., :12, :], b[..., :7] if "itself" not in kind else a[..., :12, :].T
    right, report = ozaki.matmul(a, b, engine=engine, reproducible=True, return_report=True, **options)
    plan = ozaki.plan(a, b, engine=engine, reproducible=True, **options)
    from ozaki.backends import as_computed
    from ozaki.backends.numpy import backend

    computed = as_computed(plan, backend)
    k = computed.shape[1] * min(computed.parts)
    found = 0
    rng = np.random.default_rng(1)
    for _ in range(12):
        with monkeypatch.context() as patch:
            put(patch, place, engine, computed.scheme, k, partial(Fault, call=0, rng=rng))
            with warnings.catch_warnings(record=True) as log:
                warnings.simplefilter("always")
                c, report = ozaki.matmul(a, b, plan=plan, verify=True, return_report=True)
        assert same(c, right), (place, report)
        assert report.recomputed == len(log)
        found += report.recomputed
    # Some bits are those of padding, of elements that count once only for both operands, or below the units of floats.
    assert found >= 3, found


@pytest.mark.parametrize("place", PLACES[:3])
def test_a_lasting_fault_ends_the_product(place, monkeypatch):
    a, b, options = products()["residues"]
    rng = np.random.default_rng(2)
    put(monkeypatch, place, "float64", Residues(14), 150, partial(Fault, call=0, rng=rng, lasting=True))
    with pytest.warns(RuntimeWarning, match="computed once more"):
        ends_with_an_error(a, b, options)


def ends_with_an_error(a, b, options):
    for _ in range(20):  # some bits change nothing
        try:
            ozaki.matmul(a, b, engine="float64", verify=True, **options)
        except ozaki.VerificationError:
            return
    pytest.fail("no product ended with an error")


def test_a_wrong_entry_is_found_by_every_vector():
    """Each single wrong entry, of any size that is no multiple of the primes, in any place."""
    engine = engine_of(Residues(14), 20, "float64")
    rng = np.random.default_rng(3)
    from ozaki.backends.numpy._describe import describe

    left, right = describe(np.rint(100 * normal(1, 6, 20))), describe(np.rint(100 * normal(1, 5, 20)))
    mu, nu = np.zeros((1, 6), np.int64), np.zeros((1, 5), np.int64)
    exact = left.x[0] @ right.x[0].T
    for error, i, j in itertools.product((1, -1, 2.0**31, 2.0**50, 3), range(6), range(5)):
        wrong = exact.copy()
        if rng.integers(10):
            wrong[i, j] += error
        projection = _projection.Projection((1, 6, 5), 1, None)
        limbs = np.zeros((4, 30))
        limbs[0] = wrong.reshape(-1)
        projection.add(limbs, slice(0, 1), slice(0, 6), slice(0, 5), 0, False)
        assert projection.compare(left, right, mu, nu, engine.scheme).wrong == (0 if same(wrong, exact) else 2)


def test_vectors_are_fresh_and_uniform():
    x, y = random_vector(10_000), random_vector(10_000)
    assert not (x == y).any(axis=0).all()
    assert (x >= 0).all() and (x < PRIMES).all()
    assert (abs(x.mean(axis=0) / PRIMES - 0.5) < 0.02).all()


def test_the_primes():
    from ozaki.schemes.moduli import first_moduli

    for p in PRIMES:
        assert all(p % q for q in range(2, 46342))
        assert p > max(first_moduli(16384))
        factors = [q for q in range(2, 46342) if (p - 1) % q == 0]
        assert all(pow(2, (p - 1) // q, p) != 1 for q in factors)  # 2 generates all numbers
        assert all(pow(2, q, p) != 1 for q in factors)
    assert PRIMES[0] * PRIMES[1] > 2**60


# Options -------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_checked_is_refused():
    a, b = normal(3, 4, dtype="float32"), normal(4, 2, dtype="float32")
    with pytest.raises(ValueError, match=r"^verify: True checks exact products of slices, but scheme='native'"):
        ozaki.matmul(a, b, scheme="native", verify=True)
    with pytest.raises(ValueError, match=r"^verify: True checks exact products of slices, but those of halfhalf"):
        ozaki.matmul(a, b, scheme="halfhalf", verify=True)
    for scheme, what in (("native", "a native product"), ("halfhalf", "products of halfhalf")):
        plan = ozaki.plan(a, b, scheme=scheme)
        with pytest.raises(ValueError, match=f"^verify: True checks exact products of slices, but the plan has {what}"):
            ozaki.matmul(a, b, plan=plan, verify=True)
    with pytest.raises(TypeError, match=r"^verify: 1; expected True or False"):
        ozaki.matmul(a, b, verify=1)
    with pytest.raises(TypeError, match=r"^verify: 'yes'; expected True or False"):
        ozaki.matmul(a, b, plan=ozaki.plan(a, b, reproducible=True), verify="yes")


def test_slices_run_where_products_are_checked():
    _, report = ozaki.matmul(np.eye(3), np.eye(3), verify=True, return_report=True)
    assert not report.native and "ruled out by verify=True" in report.why and report.verified == 2
    _, report = ozaki.matmul(np.eye(3), np.eye(3), return_report=True)
    assert report.verified is None and report.recomputed is None
    _, report = ozaki.matmul(np.ones((3, 0)), np.ones((0, 2)), verify=True, return_report=True)
    assert report.verified == 0


def test_contractions_pass_it_on():
    a, b = normal(5, 6), normal(6, 7)
    assert same(
        ozaki.einsum("ij,jk", a, b, verify=True, accuracy="fp64"),
        ozaki.matmul(a, b, accuracy="fp64", reproducible=True),
    )
