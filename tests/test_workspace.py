"""A call never holds more memory than its report says and the limit allows, planning included."""

import tracemalloc

import numpy as np
import pytest
from cases import same_bits
from tiers import some_first

import ozaki

SHAPES = [
    ((300, 300), (300, 300)),
    ((1500, 1), (1, 700)),
    ((20, 9000), (9000, 30)),
    ((700, 64), (64, 600)),
    ((120, 2500), (2500, 150)),
    ((40, 50, 60), (40, 60, 30)),
    ((30, 4, 1, 100), (4, 100, 100)),
    ((3, 1, 200, 9), (40, 9, 8)),
    ((2, 200_000), (200_000, 2)),
    ((5, 5), (5, 5)),
    ((700, 300), (300,)),
]

WAYS = [
    {"scheme": "residues", "slices": 14},
    {"scheme": "digits", "slices": 7},
    {"scheme": "residues", "slices": 40},
    {"scheme": "digits", "slices": 3, "engine": "int8-simulated"},
    {"accuracy": "fp64", "reproducible": True},
    {"accuracy": 100, "reproducible": True},
    {"accuracy": ozaki.Accuracy("row-column", 1e-20), "reproducible": True},
    {"accuracy": ozaki.Accuracy("normwise", 1e-14), "reproducible": True},
    {},
]

LEAST = 2**24
"""A limit, in bytes, that is enough for the smallest panel of each of these products."""


def held(call):
    """The most bytes that a second call of a function holds, and the result; a first call fills what is kept."""
    call()
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def operands(rng, shapes, kind):
    a, b = (rng.standard_normal(shape) for shape in shapes)
    if kind == "spread":
        a *= np.exp2(rng.integers(-30, 30, a.shape))
        b *= np.exp2(rng.integers(-30, 30, b.shape))
    elif kind == "sparse":
        a *= rng.random(a.shape) < 0.02
        b *= rng.random(b.shape) < 0.02
    elif kind == "nonfinite":
        a.flat[0], b.flat[-1] = np.nan, np.inf
    elif kind == "standing":
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    return a, b


@pytest.mark.parametrize("kind", some_first(2, ["spread", "nonfinite", "normal", "sparse", "standing"]))
@pytest.mark.parametrize("shapes", some_first(5, reversed(SHAPES)), ids=str)
def test_no_more_is_held_than_the_report_says_and_the_limit_allows(rng, shapes, kind):
    a, b = operands(rng, shapes, kind)
    out = np.empty(np.matmul(a, b).shape)
    for way in WAYS if kind in ("normal", "spread") else WAYS[::4]:
        most, (c, report) = held(lambda way=way: ozaki.matmul(a, b, out=out, return_report=True, **way))
        c = c.copy()
        assert most <= report.workspace_bytes, way
        if report.workspace_bytes > 2**21 and "normwise" not in str(way):
            assert most >= report.workspace_bytes / 3, way
        if report.workspace_bytes < 2 * LEAST or "normwise" in str(way):
            continue
        limit = max(report.workspace_bytes // 4, LEAST)
        most, (less, limited) = held(
            lambda way=way, limit=limit: ozaki.matmul(a, b, out=out, workspace_limit=limit, return_report=True, **way)
        )
        assert most <= limited.workspace_bytes <= limit, way
        assert (limited.scheme, limited.slices, limited.bound) == (report.scheme, report.slices, report.bound), way
        assert same_bits(less, c), way


def test_the_sums_of_one_panel_are_freed_before_those_of_the_next():
    a, b, out = np.ones((4096, 1)), np.ones((1, 2048)), np.empty((4096, 2048))
    plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme="residues", slices=14, workspace_limit=180_000_000)
    most, _ = held(lambda: ozaki.matmul(a, b, plan=plan, out=out))
    assert most <= 180_000_000


@pytest.mark.full
def test_the_limit_holds_while_a_large_product_is_planned(rng):
    a, b, out = rng.standard_normal((4000, 30)), rng.standard_normal((30, 4000)), np.empty((4000, 4000))
    for way in ({"accuracy": "fp64"}, {"accuracy": "fp64", "reproducible": True}, {"accuracy": 80}):
        most, _ = held(lambda way=way: ozaki.matmul(a, b, out=out, workspace_limit=2**25, **way))
        assert most <= 2**25, way


def test_a_plan_is_made_within_the_limit(rng):
    a, b = rng.standard_normal((1500, 40)), rng.standard_normal((40, 1500))
    most, plan = held(lambda: ozaki.plan(a, b, accuracy=70, workspace_limit=2**24))
    assert most <= 2**24
    assert plan.bound == ozaki.plan(a, b, accuracy=70).bound


@pytest.mark.parametrize("shapes", SHAPES[:5], ids=str)
def test_the_proof_of_a_relative_error_is_counted(rng, shapes):
    a, b = operands(rng, shapes, "normal")
    out = np.empty(np.matmul(a, b).shape)
    options = {"scheme": "residues", "slices": 14, "out": out, "return_report": "relative"}
    most, (_, report) = held(lambda: ozaki.matmul(a, b, **options))
    assert most <= report.workspace_bytes
    if report.workspace_bytes >= 2 * LEAST:
        most, (_, limited) = held(lambda: ozaki.matmul(a, b, workspace_limit=LEAST, **options))
        assert most <= limited.workspace_bytes <= LEAST and limited.relative_bound == report.relative_bound


@pytest.mark.parametrize("into", ["none", "apart", "c", "transposed"])
def test_gemm_holds_no_more_than_its_report_says_and_the_limit_allows(rng, into):
    a, b, c = rng.standard_normal((700, 30)), rng.standard_normal((30, 600)), rng.standard_normal((700, 600))
    options = {"accuracy": "fp64", "reproducible": True, "return_report": True}
    out = {"none": None, "apart": np.empty(c.shape), "c": c, "transposed": np.empty(c.shape[::-1]).T}[into]
    result = c.nbytes if out is None else 0
    for limit in (None, 2**24):
        most, (_, report) = held(
            lambda limit=limit: ozaki.gemm(2.0, a, b, 0.5, c, out=out, **options, workspace_limit=limit)
        )
        assert most - result <= report.workspace_bytes
        assert limit is None or report.workspace_bytes <= limit
    if into == "c":
        with pytest.raises(ValueError, match=r"^workspace_limit: 3000000 bytes are too few; .* an `out` that holds no"):
            ozaki.gemm(2.0, a, b, 0.5, c, out=c, workspace_limit=3_000_000)


def test_a_memory_map_takes_the_result(rng, tmp_path):
    a, b = rng.standard_normal((500, 20)), rng.standard_normal((20, 600))
    for way in ({}, {"accuracy": "fp64", "reproducible": True}):
        out = np.lib.format.open_memmap(tmp_path / "c.npy", mode="w+", dtype="f8", shape=(500, 600))
        most, c = held(lambda way=way, out=out: ozaki.matmul(a, b, out=out, workspace_limit=2**23, **way))
        assert c is out
        assert most <= 2**23
        assert ozaki.matmul(a, b, out=out, return_report=True, **way)[1].workspace_bytes == (
            ozaki.matmul(a, b, return_report=True, **way)[1].workspace_bytes
        )
        out.flush()
        assert same_bits(np.load(tmp_path / "c.npy"), ozaki.matmul(a, b, **way))


@pytest.mark.parametrize("name", ["halfhalf", "triple-bf16", "two-stage"])
@pytest.mark.parametrize("shape", [(100, 300, 90), (16, 9000, 16), (3, 50, 4)])
def test_words_hold_no_more_than_the_report_says(rng, name, shape):
    m, k, n = shape
    a, b = rng.standard_normal((m, k), dtype="f4"), rng.standard_normal((k, n), dtype="f4")
    out = np.empty((m, n), "f4")
    most, (_, report) = held(lambda: ozaki.matmul(a, b, scheme=name, out=out, return_report=True))
    assert most <= report.workspace_bytes < 8 * most + 2**17


@pytest.mark.parametrize("name", ["two-stage", "double-fp16", "single-tf32", "fabsum-v1", "halfhalf"])
@pytest.mark.parametrize("shape", [(1246, 494, 1), (1, 494, 1246)])
def test_words_of_tall_operands(rng, name, shape):
    m, k, n = shape
    a, b = rng.standard_normal((m, k), dtype="f4"), rng.standard_normal((k, n), dtype="f4")
    for limit in (None, 12_000_000):
        options = {"scheme": name, "out": np.empty((m, n), "f4"), "workspace_limit": limit, "return_report": True}
        most, (_, report) = held(lambda options=options: ozaki.matmul(a, b, **options))
        assert most <= report.workspace_bytes
        assert limit is None or report.workspace_bytes <= limit


def test_small_products_of_long_rows(rng):
    """Workspace counts what is reduced between slabs of k, and what exponents of long rows take."""
    a, b = rng.standard_normal((1, 3000)), rng.standard_normal((3000, 1))
    options = {"out": np.empty((1, 1)), "return_report": True}
    most, (_, report) = held(
        lambda: ozaki.matmul(a, b, scheme="residues", slices=4, workspace_limit=300_000, **options)
    )
    assert most <= report.workspace_bytes <= 300_000
    k = 500_000
    x, y = rng.standard_normal((1, k)) * (rng.random(k) < 0.03), rng.standard_normal((k, 1))
    y[5] *= 2.0**40
    most, (_, report) = held(lambda: ozaki.matmul(x, y, accuracy=100, workspace_limit=6_000_000, **options))
    assert most <= report.workspace_bytes <= 6_000_000


def test_the_proof_of_words_is_counted():
    a, b, out = np.ones((1993, 1), "f4"), np.ones((1, 911), "f4"), np.empty((1993, 911), "f4")
    plan = ozaki.plan(a, b, scheme="triple-bf16")
    most, (_, report) = held(lambda: ozaki.matmul(a, b, plan=plan, out=out, return_report=True))
    assert most <= report.workspace_bytes


def test_the_native_product_keeps_the_limit():
    """The native product needs workspace to convert an operand, and cannot write a transposed `out`."""
    a, b = np.ones((1000, 1000), "f4"), np.ones((1000, 1000))
    for way in ({}, {"scheme": "native"}, {"accuracy": 1e-10}):
        with pytest.raises(ValueError, match=r"^workspace_limit: 100000 bytes are too few"):
            ozaki.matmul(a, b, out=np.empty((1000, 1000)).T, workspace_limit=100_000, **way)
    _, report = ozaki.matmul(a, b, workspace_limit=6_000_000, return_report=True)
    assert "converting an operand takes more than the limit" in report.why
    out = np.empty((1000, 1000)).T
    most, (_, report) = held(lambda: ozaki.matmul(a[:, :0], b[:0], out=out, return_report=True))
    assert report.workspace_bytes == out.nbytes >= most - 2**16


@pytest.mark.parametrize("way", [{"accuracy": 1e-9}, {"scheme": "native", "accuracy": 1e-9}, {"scheme": "native"}])
def test_the_facts_of_a_native_product_keep_the_limit(rng, way):
    """Whether a native product is in range, and what its report says, follow from descriptions, which take memory."""
    a, b, out = rng.standard_normal((20_000, 3)), rng.standard_normal((3, 20)), np.zeros((20_000, 20))
    options = {"out": out, "return_report": True, **way}
    with pytest.raises(ValueError, match=r"^workspace_limit: leaves 1000000 bytes .* needs at least \d+"):
        ozaki.matmul(a, b, workspace_limit=10**6, **options)
    assert not out.any()
    most, (_, report) = held(lambda: ozaki.matmul(a, b, workspace_limit=10**7, **options))
    assert report.native
    assert most <= report.workspace_bytes <= 10**7


@pytest.mark.parametrize("of", [float, np.float64, np.int64, np.float32])
def test_a_limit_may_be_any_whole_number(rng, of):
    """Also where the limit is so tight that panels are counted out with it."""
    a, b = 1e-160 * rng.standard_normal((300, 20)), 1e-160 * rng.standard_normal((20, 300))
    options = {"accuracy": "fp64", "reproducible": True}
    (c, report), (d, expected) = (
        ozaki.matmul(a, b, workspace_limit=x, return_report=True, **options) for x in (of(2**20), 2**20)
    )
    assert np.array_equal(c, d) and report == expected
    assert type(ozaki.plan(a, b, workspace_limit=of(2**20)).workspace_limit) is int
