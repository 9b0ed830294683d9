"""Limits of workspace are kept, and reports are true, whatever is combined: formats, schemes, expressions, layouts."""

import tracemalloc

import numpy as np
import pytest
from tiers import some_first

import ozaki
from ozaki import Accuracy
from ozaki.call.complex_parts import numbers_of_entries, real_entries

WAYS = [
    {},
    {"accuracy": "fp64", "reproducible": True},
    {"accuracy": 1e-9},
    {"accuracy": 100},
    {"accuracy": Accuracy("row-column", 1e-20), "reproducible": True},
    {"accuracy": Accuracy("normwise", 1e-20), "reproducible": True},
    {"accuracy": Accuracy("relative", 1e-9), "reproducible": True},
    {"accuracy": Accuracy("relative", 1e-3)},
    {"accuracy": "exact"},
    {"scheme": "residues", "slices": 14},
    {"scheme": "residues", "slices": 14, "return_report": "relative"},
    {"scheme": "residues", "slices": 52},
    {"scheme": "residues", "slices": 8, "engine": "int8-simulated"},
    {"scheme": "digits", "slices": 2},
    {"scheme": "digits", "slices": 7},
    {"scheme": "digits", "slices": 3, "engine": "int8-simulated"},
    {"scheme": "digits", "slices": 2, "return_report": "relative"},
    {"scheme": "native"},
    {"dtype": "mp", "accuracy": "dd"},
    {"dtype": "mp", "accuracy": "exact"},
    {"dtype": "float32", "accuracy": "fp32", "reproducible": True},
]

OBJECTS = 2**14
"""Bytes of Python's own objects in a call, which no account counts."""

FORMATS = ["f2", "f4", "f8", "c8", "c16", "mp", "complex mp", "list"]
LAYOUTS = ["rows", "columns", "every second", "reversed"]
BATCHES = [((), ()), ((), ()), ((2,), (2,)), ((3, 1), (2,)), ((2,), ()), ((1,), (3,))]
OUTS = [None, "new", "columns", "every second"]
KINDS = ["normal", "normal", "spread", "sparse", "nonfinite"]


def array(rng, shape, kind, of, layout):
    """An operand or an addend."""
    x = rng.standard_normal(shape)
    if of == "spread":
        x *= np.exp2(rng.integers(-30, 30, shape))
    elif of == "sparse":
        x *= rng.random(shape) < 0.1
    elif of == "nonfinite" and "mp" not in kind:
        x.flat[-1] = np.nan
    if "mp" in kind:
        x = ozaki.mparray((x, x * 1e-18))
        return ozaki.mparray(np.ones(shape) * 1j) + x if kind == "complex mp" else x
    if kind == "list":
        return x.tolist()
    if kind in ("c8", "c16"):
        x = x + 1j * rng.standard_normal(shape)
    with np.errstate(over="ignore"):
        x = x.astype(kind)
    if layout == "columns":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "every second":
        return np.repeat(x, 2, axis=-1)[..., ::2]
    return x[..., ::-1] if layout == "reversed" else x


def room(shape, dtype, how):
    """Where a result goes."""
    if how == "columns":
        return np.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2)
    return np.empty((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2] if how == "every second" else np.empty(shape, dtype)


def held(call):
    """The most bytes that a call holds, its result included, and what it returns or the ValueError that it raises."""
    tracemalloc.start()
    try:
        try:
            found = call()
        except ValueError as error:
            found = error
        return tracemalloc.get_traced_memory()[1] - OBJECTS, found
    finally:
        tracemalloc.stop()


def size_of(c):
    """Bytes of the memory of a result: that of numbers with all their bits may be a part of longer ones."""
    if isinstance(c, ozaki.MPArray):
        return c.signs.nbytes + c.exponents.nbytes + (c.limbs if c.limbs.base is None else c.limbs.base).nbytes
    return c.nbytes


def check(call, out, said):
    """Check one call without a limit, and within some that are smaller than what that holds."""
    c, _ = call()  # fills what outlives calls
    result = 0 if out is not None else size_of(c)
    most, (_, whole) = held(call)
    assert most - result <= whole.workspace_bytes, said
    for part in (1.0, 0.6, 0.25):
        limit = int(whole.workspace_bytes * part)
        if not limit:
            continue
        if out is not None:
            out[...] = 7
        most, found = held(lambda limit=limit: call(workspace_limit=limit))
        if isinstance(found, ValueError):
            assert str(found).startswith("workspace_limit: "), (said, part, found)
            assert out is None or (out == 7).all(), (said, part, found)
            assert part < 1, (said, found)
        else:
            c, report = found
            assert most - result <= report.workspace_bytes <= limit, (said, part, most - result)


def drawn(rng, choices):
    return choices[rng.integers(len(choices))]


@pytest.mark.parametrize("way", some_first(3, WAYS), ids=str)
def test_limits_are_kept_by_all_combinations(rng, way):
    """Of combinations that are drawn; what a random seed finds gets a test of its own."""
    checked = 0
    while checked < 4:
        formats, layouts, of, how = ([drawn(rng, each) for _ in range(3)] for each in (FORMATS, LAYOUTS, KINDS, OUTS))
        batch_a, batch_b = drawn(rng, BATCHES)
        m, k, n = (int(drawn(rng, sizes)) for sizes in ((50, 120, 7), (20, 70, 1), (60, 90, 3)))
        a = array(rng, (*batch_a, m, k), formats[0], of[0], layouts[0])
        b = array(rng, (*batch_b, k, n), formats[1], of[1], layouts[1])
        options = {"return_report": True, **way}
        factors = drawn(rng, [None, (1.5, -0.25), (-1, 1), (0, 2), (1, 1), (1.0, 0), (2, 1 + 2j), (0, 1j)])

        def call(a=a, b=b, options=options, **more):
            return ozaki.matmul(a, b, **options, **more)

        try:
            c, _ = call()
            if factors is not None:
                numbers = isinstance(c, ozaki.MPArray)
                addend = drawn(rng, ["f8", "mp"]) if numbers or "dtype" in way else c.dtype.str[1:]
                added = array(rng, c.shape, addend, of[2], layouts[2])
                alpha, beta = factors

                def call(a=a, b=b, alpha=alpha, beta=beta, added=added, options=options, **more):
                    return ozaki.gemm(alpha, a, b, beta, added, **options, **more)

                c, _ = call()
        except (TypeError, ValueError):  # what does not go together
            continue
        out = None
        if isinstance(c, np.ndarray) and how[0]:
            out = room(c.shape, c.dtype, how[0])
        into = {} if out is None else {"out": out}
        check(lambda call=call, into=into, **more: call(**into, **more), out, (way, formats, layouts, of, how, factors))
        checked += 1


@pytest.mark.parametrize("dtype", some_first(1, ["mp", "f8", "c16"]))
@pytest.mark.parametrize("way", [WAYS[1], WAYS[6], WAYS[9], WAYS[13]], ids=str)
def test_plans_with_a_limit_keep_it(rng, dtype, way):
    """Also with operands that are prepared for them, and with an addend that lies otherwise."""
    a, b, c = (array(rng, shape, dtype, "normal", "rows") for shape in ((90, 20), (20, 80), (80, 90)))
    c = c.swapaxes(0, 1)
    try:
        whole = ozaki.matmul(a, b, return_report=True, **way)[1].workspace_bytes
    except ValueError:  # digits of multiprecision numbers
        return
    for part in (1, 0.6, 0.3):
        _, plan = held(lambda part=part: ozaki.plan(a, b, workspace_limit=int(whole * part) + 2**17, **way))
        if isinstance(plan, ValueError):
            assert str(plan).startswith("workspace_limit: ")
            continue
        left, right = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
        for x, y in ((a, b), (left, b), (a, right), (left, right)):
            for call in (
                lambda x=x, y=y, plan=plan: ozaki.matmul(x, y, plan=plan, return_report=True),
                lambda x=x, y=y, plan=plan: ozaki.gemm(2.0, x, y, 1.0, c, plan=plan, return_report=True),
            ):
                most, found = held(call)
                if isinstance(found, ValueError):
                    assert str(found).startswith("workspace_limit: ")
                else:
                    assert most - size_of(found[0]) <= found[1].workspace_bytes <= plan.workspace_limit


@pytest.mark.parametrize("op", ["N", "T", "C"])
def test_conjugates_are_counted(rng, op):
    a, b = (array(rng, (60, 60), "c16", "normal", "rows") for _ in range(2))
    for trans_a, trans_b in ((op, "N"), ("N", op), (op, op)):
        options = {"trans_a": trans_a, "trans_b": trans_b, "accuracy": "fp64", "reproducible": True}
        check(lambda o=options, **more: ozaki.gemm(1, a, b, 0, None, return_report=True, **o, **more), None, options)


@pytest.mark.parametrize("dtype", ["int64", "mp", "float64"])
def test_integers_are_counted(rng, dtype):
    a, b = rng.integers(-(2**20), 2**20, (120, 40)), rng.integers(-9, 9, (40, 90), np.int32)
    check(lambda **more: ozaki.matmul(a, b, dtype=dtype, return_report=True, **more), None, dtype)


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ij,jk->ki", "ijk,jkl->il", "ijk,kjl->li", "bij,bjk->bki"])
def test_contractions_count_what_they_reorder(rng, subscripts):
    left, right = subscripts.partition("->")[0].split(",")
    sizes = dict(zip("ijklb", (40, 10, 12, 30, 3), strict=True))
    a, b = (rng.standard_normal([sizes[label] for label in of]) for of in (left, right))
    options = {"accuracy": "fp64", "reproducible": True}
    expected = ozaki.einsum(subscripts, a, b, **options)
    kept = 0
    for limit in np.geomspace(10**5, 3 * 10**6, 12).astype(int):
        most, found = held(lambda limit=limit: ozaki.einsum(subscripts, a, b, workspace_limit=int(limit), **options))
        if isinstance(found, ValueError):
            assert str(found).startswith("workspace_limit: ")
        else:
            kept += 1
            assert most - found.nbytes <= limit
            assert (found == expected).all()
    assert kept > 3


@pytest.mark.parametrize("slices", [20, 52, 130])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_splitting_is_counted_where_the_result_is_small(rng, layout, slices):
    a, b = array(rng, (120, 70), "c16", "normal", layout), array(rng, (70, 1), "c16", "normal", "rows")
    options = {"scheme": "residues", "slices": slices}
    check(lambda **more: ozaki.matmul(a, b, return_report=True, **options, **more), None, (layout, slices))


@pytest.mark.parametrize("bits", [70, 1000])
def test_long_integers_are_counted(rng, bits):
    a = rng.integers(-9, 9, (60, 150)).astype(object) * 2**bits
    b = rng.standard_normal((150, 3))
    check(lambda **more: ozaki.matmul(a, b, dtype="mp106", return_report=True, **more), None, bits)


def test_lists_that_are_not_multiplied_are_counted(rng):
    a, b, c = rng.standard_normal((300, 60)).tolist(), rng.standard_normal((60, 1)), rng.standard_normal((300, 1))
    check(lambda **more: ozaki.gemm(0, a, b, 2, c, accuracy="exact", return_report=True, **more), None, "alpha 0")


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_exact_batches_are_not_copied_to_be_trimmed(rng, dtype):
    """Batches that lie in another order than their axes have."""
    a, b = array(rng, (3, 1, 120, 1), "mp", "sparse", "rows"), array(rng, (2, 1, 90), dtype, "sparse", "rows")
    check(lambda **more: ozaki.matmul(a, b, accuracy="exact", return_report=True, **more), None, dtype)


def test_a_real_addend_of_a_complex_product_is_copied_once(rng):
    a, b, c = array(rng, (100, 1), "complex mp", "normal", "rows"), rng.standard_normal((1, 200)), long(rng, 4)
    options = {"accuracy": Accuracy("normwise", 1e-3), "return_report": True}
    check(lambda **more: ozaki.gemm(1, a, b, 1, c, **options, **more), None, "addend")


@pytest.mark.parametrize("parts", [(2, 1), (1, 2), (2, 2)])
def test_copying_a_real_addend_holds_the_copy_alone(rng, parts):
    c = long(rng, 4).reshape(1, 100, 200)
    most, entries = held(lambda: real_entries(c, "complex128", parts))
    assert entries.nbytes - OBJECTS <= most <= entries.nbytes
    numbers = numbers_of_entries(entries, parts)
    assert (numbers.real.limbs == c.limbs).all() and (numbers.real.exponents == c.exponents).all()
    assert (numbers.real.signs == c.signs).all() and not numbers.imag.signs.any()


@pytest.mark.parametrize("kind", some_first(1, ["complex mp", "f8"]))
@pytest.mark.parametrize(
    ("words", "alpha", "beta"), [(80, 1, 1), (1, 3**800, 5), (1, 5, 3**800)], ids=["addend", "alpha", "beta"]
)
def test_terms_that_are_longer_than_the_result_are_counted(rng, kind, words, alpha, beta):
    a, b, c = array(rng, (100, 1), kind, "normal", "rows"), rng.standard_normal((1, 200)), long(rng, words)
    options = {"dtype": "mp", "accuracy": "dd", "return_report": True}
    check(lambda **more: ozaki.gemm(alpha, a, b, beta, c, **options, **more), None, (kind, words, alpha, beta))


def long(rng, words):
    """Multiprecision numbers, shape (100, 200), that are sums of so many floats."""
    x = rng.standard_normal((100, 200))
    return ozaki.mparray(tuple(np.ldexp(x, -12 * i) for i in range(words)))


@pytest.mark.parametrize("is_complex", [False, True])
def test_exact_results_hold_no_limbs_that_were_trimmed(rng, is_complex):
    """Unless the limit of workspace leaves no room for a copy of the others."""
    a = 2.0 ** rng.integers(-500, 500, (40, 40)) * (1j if is_complex else 1)
    b = np.diag(a[0])

    def held(c):
        whole = c.limbs
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        return whole.nbytes

    c, report = ozaki.matmul(a, b, dtype="mp", accuracy="exact", return_report=True)
    assert c.bits == 1 and held(c) == c.limbs.nbytes and (c == ozaki.mparray(a) @ ozaki.mparray(b)).all()
    limit = report.workspace_bytes
    d, report = ozaki.matmul(a, b, dtype="mp", accuracy="exact", workspace_limit=limit, return_report=True)
    assert report.workspace_bytes <= limit and held(d) == d.limbs.nbytes and (c == d).all()
