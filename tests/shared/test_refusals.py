"""Bad input on every device: an error that names the argument and what would do, before `out` is touched."""

import numpy as np
import pytest
from cases import assert_same

import ozaki

A, B = (3, 4), (4, 2)


def ones(device, shape, dtype="f8"):
    return device.full(shape, 1, dtype)


def matmul(left=A, right=B, dtype="f8", **options):
    return lambda device: ozaki.matmul(ones(device, left, dtype), ones(device, right, dtype), **options)


def plan(left=A, right=B, dtype="f8", **options):
    return lambda device: ozaki.plan(ones(device, left, dtype), ones(device, right, dtype), **options)


def into(shape, dtype="f8"):
    return lambda device: ozaki.matmul(ones(device, A), ones(device, B), out=device.full(shape, 7, dtype))


def gemm(alpha=1.0, beta=0.0, c=None, dtype="f8", **options):
    def call(device):
        addend = None if c is None else ones(device, c[0], c[1])
        return ozaki.gemm(alpha, ones(device, A, dtype), ones(device, B, dtype), beta, addend, **options)

    return call


def of_shapes(**options):
    return ozaki.plan(A, B, dtype="float64", **({"scheme": "residues", "slices": 14} | options))


def prepare(shape, side, dtype="f8", **options):
    return lambda device: ozaki.prepare(ones(device, shape, dtype), side, of_shapes(**options))


def prepared(side, **options):
    """A call of matmul, with these options, whose operand on that side is prepared."""

    def call(device):
        x, y = ones(device, A), ones(device, B)
        if side == "left":
            return ozaki.matmul(ozaki.prepare(x, "left", of_shapes()), y, **options)
        return ozaki.matmul(x, ozaki.prepare(y, "right", of_shapes()), **options)

    return call


CASES = {
    # shapes and dtypes
    "inner dimensions": (matmul(A, A), ValueError, "b", "(4, n)"),
    "inner dimension of a vector": (matmul(A, (3,)), ValueError, "b", "(4,)"),
    "scalar a": (matmul((), B), ValueError, "a", "at least one dimension"),
    "scalar b": (matmul(A, ()), ValueError, "b", "at least one dimension"),
    "batches": (matmul((2, 3, 4), (3, 4, 2)), ValueError, "b", "broadcast"),
    "large integers": (
        lambda d: ozaki.matmul(d.full(A, 2**53 + 1, "i8"), ones(d, B)),
        ValueError,
        "a",
        "dtype='int64' or dtype='mp'",
    ),
    # accuracy, scheme, slices, engine
    "unknown name": (matmul(accuracy="fp65"), ValueError, "accuracy", "fp32, fp64, dd, qd"),
    "no bits": (matmul(accuracy=0), ValueError, "accuracy", "1 to 1000"),
    "bits as a float": (matmul(accuracy=53.0), ValueError, "accuracy", "accuracy=53 for so many bits"),
    "NaN": (matmul(accuracy=np.nan), ValueError, "accuracy", "above 0 and below 1"),
    "more than native can": (matmul(accuracy="dd", scheme="native"), ValueError, "accuracy", "scheme='auto'"),
    "scheme": (matmul(scheme="x"), ValueError, "scheme", "auto, digits"),
    "scheme of a plan": (plan(scheme="x"), ValueError, "scheme", "auto, digits"),
    "reproducible native": (matmul(scheme="native", reproducible=True), ValueError, "scheme", "leave one"),
    "native slices": (matmul(scheme="native", slices=3), ValueError, "slices", "scheme='digits' or 'residues'"),
    "slices of what": (matmul(slices=14), ValueError, "slices", "scheme='digits' or 'residues'"),
    "too many slices": (matmul(scheme="residues", slices=2**15), ValueError, "slices", "1 to 16384"),
    "slices and a half": (matmul(scheme="digits", slices=2.5), ValueError, "slices", "1 to 64"),
    "no room for k": (matmul((1, 70000), (70000, 1), scheme="residues", slices=1), ValueError, "slices", "give more"),
    "engine": (matmul(engine="x", reproducible=True), ValueError, "engine", "expected one of"),
    "engine of a plan": (plan(engine="x", scheme="residues"), ValueError, "engine", "expected one of"),
    "words of float64": (matmul(scheme="halfhalf"), ValueError, "scheme", "float32"),
    "words and slices": (matmul(dtype="f4", scheme="halfhalf", slices=2), ValueError, "slices", "Words(count=...)"),
    "reproducible words": (matmul(dtype="f4", scheme="halfhalf", reproducible=True), ValueError, "scheme", "not repro"),
    # workspace
    **{
        f"workspace {limit!r}": (matmul(workspace_limit=limit), ValueError, "workspace_limit", "positive number")
        for limit in (0, -1, True, "1 GiB")
    },
    "workspace too small": (
        matmul(workspace_limit=100, reproducible=True),
        ValueError,
        "workspace_limit",
        "needs at least",
    ),
    "workspace for words": (
        matmul(dtype="f4", scheme="halfhalf", workspace_limit=100),
        ValueError,
        "workspace_limit",
        "needs at least",
    ),
    # out
    "out of another shape": (into((9, 9)), ValueError, "out", "(3, 2)"),
    "out of another dtype": (into((3, 2), "f4"), ValueError, "out", "float64"),
    "out of two": (lambda d: matmul(out=(d.full((3, 2), 7), None))(d), TypeError, "out", "array"),
    "out no array": (matmul(out=[[0.0, 0.0]] * 3), TypeError, "out", "array"),
    "gemm out of another shape": (lambda d: gemm(out=d.full((2, 3), 7))(d), ValueError, "out", "(3, 2)"),
    # plans and prepared operands
    "plan and accuracy": (matmul(plan=of_shapes(), accuracy="fp64"), ValueError, "plan", "one or the other"),
    "plan of another shape": (matmul((5, 4), plan=of_shapes()), ValueError, "plan", "(5, 4, 2)"),
    "plan of another batch": (matmul((5, 3, 4), plan=of_shapes()), ValueError, "plan", "batch"),
    "plan of another dtype": (matmul(dtype="f4", plan=of_shapes()), ValueError, "plan", "float32"),
    "no plan": (matmul(plan="fp64"), TypeError, "plan", "ozaki.plan"),
    "operands with an odd dtype": (
        lambda d: ozaki.plan(ones(d, A), ones(d, B), dtype="int8"),
        TypeError,
        "dtype",
        "'complex128', 'int64' or 'mp'",
    ),
    "side": (prepare(A, "middle"), ValueError, "side", "'left' or 'right'"),
    "prepare for the wrong side": (prepare(A, "right"), ValueError, "x", "(4, 2)"),
    "prepare a vector": (prepare((4,), "left"), ValueError, "x", "(3, 4)"),
    "prepare a batch": (prepare((5, 3, 4), "left"), ValueError, "x", "(3, 4)"),
    "prepare integers for float32": (
        lambda d: ozaki.prepare(
            ones(d, A, "i8"), "left", ozaki.plan(A, B, dtype="float32", scheme="residues", slices=7)
        ),
        TypeError,
        "x",
        "expected float32",
    ),
    "prepare float64 for float32": (
        lambda d: ozaki.prepare(ones(d, A), "left", ozaki.plan(A, B, dtype="float32", scheme="residues", slices=7)),
        TypeError,
        "x",
        "expected float32",
    ),
    "prepared for another plan": (prepared("left", plan=of_shapes(slices=15)), ValueError, "a", "with this one"),
    "prepared without plan": (prepared("left"), ValueError, "plan", "a.plan"),
    "prepared right without plan": (prepared("right", accuracy="fp64"), ValueError, "plan", "b.plan"),
    # gemm
    "gemm without c": (gemm(beta=1.0), ValueError, "c", "(3, 2)"),
    "gemm c of another shape": (gemm(beta=1.0, c=((2, 3), "f8")), ValueError, "c", "(3, 2)"),
    "gemm c of another shape, not read": (gemm(c=((2, 3), "f8")), ValueError, "c", "(3, 2)"),
    "gemm c of integers": (gemm(beta=1.0, c=((3, 2), "int64"), dtype="f4"), TypeError, "c", "float32"),
    "gemm c wider than the result": (gemm(beta=1.0, c=((3, 2), "f8"), dtype="f4"), TypeError, "c", "float32"),
    "gemm alpha": (gemm(alpha=1j), TypeError, "alpha", "real number"),
    "gemm alpha beyond float32": (gemm(alpha=1e300, dtype="f4"), ValueError, "alpha", "range of float32"),
    "gemm transposed": (gemm(trans_a=True), ValueError, "b", "(3, n)"),
    # flags
    "reproducible": (matmul(reproducible=1), TypeError, "reproducible", "True or False"),
    "return_report": (matmul(return_report="no"), TypeError, "return_report", "True or False"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(device, case):
    call, error, name, expected = CASES[case]
    with pytest.raises(error) as caught:
        call(device)
    message = str(caught.value)
    assert message.startswith(f"{name}: "), message
    assert expected in message, message
    assert "\n" not in message


def test_engines_are_named_where_another_is_asked_for(device):
    for engine in device.engines:
        with pytest.raises(ValueError, match=rf"^engine: .*\b{engine}\b"):
            matmul(engine="x", reproducible=True)(device)


def test_engines_refuse_slices_that_they_do_not_multiply(device):
    engine = "int8-simulated" if device.xp is np else "fused"
    expected = rf"^scheme: fp16-digits12 are not the int8 slices that engine='{engine}' multiplies; use engine='auto'"
    options = {"scheme": "fp16-digits", "engine": engine}
    made = ozaki.plan(A, B, dtype="float64", slices=4, **options)
    for call in (
        matmul(**options),
        matmul(**options, slices=4),
        matmul(plan=made),
        plan(**options),
        lambda device: ozaki.prepare(ones(device, A), "left", made),
    ):
        with pytest.raises(ValueError, match=expected):
            call(device)


def test_a_failing_call_changes_nothing(device):
    out, a = device.full((3, 2), 7), device.full(A, 1 / 3)
    a[:, 1] = 2.0**-700
    for options in (
        {"accuracy": 900, "scheme": "digits"},
        {"workspace_limit": 1, "reproducible": True},
        {"scheme": "digits", "slices": 99},
    ):
        with pytest.raises(ValueError, match=r"^(accuracy|workspace_limit|slices): "):
            ozaki.matmul(a, device.full(B, 1 / 3), out=out, **options)
        assert (device.asnumpy(out) == 7).all()
    expected = np.full(A, 1 / 3)
    expected[:, 1] = 2.0**-700
    assert_same(expected, device.asnumpy(a))


@pytest.mark.parametrize("call", [ozaki.matmul, ozaki.plan, ozaki.gemm, ozaki.prepare])
def test_unknown_options_are_errors(device, call):
    with pytest.raises(TypeError):
        call(ones(device, A), ones(device, B), acuracy="fp64")


class Table:
    """Stands for a table of pandas."""

    __module__ = "pandas"

    def to_numpy(self):
        return np.ones((4, 4))


def test_arrays_that_are_more_than_numbers_are_refused_beside_those_of_the_device(device):
    x, table = ones(device, (4, 4)), Table()
    for call, name in (
        (lambda: ozaki.matmul(table, x), "a"),
        (lambda: ozaki.matmul(x, table), "b"),
        (lambda: ozaki.gemm(1, x, x, 1, table), "c"),
        (lambda: ozaki.plan(x, table), "b"),
        (lambda: ozaki.residual(x, table, x), "x"),
        (lambda: ozaki.linalg.solve(x, table), "b"),
        (lambda: ozaki.reference.exact_matmul(device.asnumpy(x), table), "b"),
    ):
        with pytest.raises(TypeError, match=rf"^{name}: pandas.Table, which has labels.*; use {name}.to_numpy\(\)"):
            call()
    with pytest.raises(TypeError, match=r"^operand 1: pandas.Table, .*; use x.to_numpy\(\)"):
        ozaki.einsum("ij,jk", x, table)
    with pytest.raises(TypeError, match=r"^out: pandas.Table, .*; expected a plain array to write to"):
        ozaki.matmul(x, x, table)


def test_arrays_of_two_libraries_do_not_mix(device):
    if device.xp is np:

        class Other:
            __module__ = "cupy"

        with pytest.raises(TypeError, match=r"^a: not a CuPy array, but b is; .*cupy\.asnumpy"):
            ozaki.matmul(np.ones(A), Other())
    else:
        with pytest.raises(TypeError, match=r"^b: not a CuPy array"):
            ozaki.matmul(ones(device, A), np.ones(B))
        with pytest.raises(TypeError, match=r"^a: not a CuPy array"):
            ozaki.matmul(np.ones(A), ones(device, B))
