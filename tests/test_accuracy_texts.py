"""Accuracies as texts: every function takes those of the command line, and means the same by them."""

import importlib
from fractions import Fraction

import numpy as np
import pytest

import ozaki
from ozaki import Accuracy, linalg

RNG = np.random.default_rng(11)
A, B = RNG.standard_normal((2, 6, 6))
S = A @ A.T + np.eye(6)

TEXTS = {
    "fp64": "fp64",
    "exact": "exact",
    "60": 60,
    "1e-20": 1e-20,
    "2^-60": 2.0**-60,
    "componentwise:2**-70": Accuracy("componentwise", 2.0**-70),
    "row-column:1e-9": Accuracy("row-column", 1e-9),
    "normwise:1e-9": Accuracy("normwise", 1e-9),
    "relative:1e-12": Accuracy("relative", 1e-12),
    "componentwise:0": Accuracy("componentwise", 0.0),
}


def with_report(found):
    c, report = found
    return [np.asarray(c).tolist(), report]


def emulated(accuracy):
    with ozaki.emulate(accuracy, reproducible=True) as run:
        return [np.dot(A, B).tolist(), str(run)]


STACK = np.stack([A, 2.0**40 * A])

FUNCTIONS = {
    "matmul": lambda x: with_report(ozaki.matmul(A, B, accuracy=x, reproducible=True, return_report=True)),
    "matmul of a stack": lambda x: ozaki.matmul(STACK, B, accuracy=x, reproducible=True).tolist(),
    "matmul, mp": lambda x: repr(ozaki.matmul(A, B, accuracy=x, dtype="mp")),
    "gemm": lambda x: with_report(ozaki.gemm(2, A, B, 0, None, accuracy=x, reproducible=True, return_report=True)),
    "plan": lambda x: str(ozaki.plan(A, B, accuracy=x, reproducible=True)),
    "einsum": lambda x: ozaki.einsum("ij,jk", A, B, accuracy=x, reproducible=True).tolist(),
    "tensordot": lambda x: ozaki.tensordot(A, B, 1, accuracy=x, reproducible=True).tolist(),
    "residual": lambda x: ozaki.residual(A, B, A, accuracy=x).tolist(),
    "emulate": emulated,
    "Accuracy.of": lambda x: Accuracy.of(x, 6),
    "solve": lambda x: linalg.solve(A, B, accuracy=x).x.tolist(),
    "inv": lambda x: linalg.inv(A, accuracy=x).x.tolist(),
    "qr": lambda x: linalg.qr(A, accuracy=x).q.tolist(),
    "cholesky": lambda x: linalg.cholesky(S, accuracy=x).l.tolist(),
    "eigh": lambda x: linalg.eigh(S, accuracy=x).values.tolist(),
}  # fmt: skip


def outcome(function, accuracy):
    """What a function returns, or the error that it raises."""
    try:
        return function(accuracy)
    except (TypeError, ValueError) as error:
        return type(error), str(error).partition(";")[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_text_means_what_it_says(name):
    for text, accuracy in TEXTS.items():
        found = outcome(FUNCTIONS[name], text)
        expected = outcome(FUNCTIONS[name], accuracy)
        if isinstance(found, tuple):  # an error quotes what it was given
            assert found[0] is expected[0], (text, found, expected)
        else:
            assert found == expected, text


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_frameworks(name):
    array = pytest.importorskip(name, reason=f"{name} is not installed")
    library = importlib.import_module(f"ozaki.{name}")
    a = array.ones((3, 3), dtype=array.float32) if name == "torch" else array.numpy.ones((3, 3), "f4")
    for text, accuracy in TEXTS.items():
        if text not in ("fp64", "60"):  # of which JAX says that the result is not of so many bits
            assert (library.matmul(a, a, accuracy=text) == library.matmul(a, a, accuracy=accuracy)).all()


def test_the_documented_one():
    x, y = RNG.standard_normal((2, 1000))
    a, b = np.array([[*x, 1e-17, *-x]]), np.array([[*y, 1.0, *y]]).T  # the exact product is 1e-17
    assert abs(ozaki.matmul(a, b, accuracy="relative:1e-12").item() / 1e-17 - 1) < 1e-11


def test_a_stack_in_the_normwise_measure_is_not_one_matrix():
    """Each matrix of a stack has an error of its own, whichever way the measure is named."""
    big = np.stack([1e-9 * A, 1e9 * A])
    for accuracy in ("normwise:1e-9", Accuracy("normwise", 1e-9)):
        c = ozaki.matmul(big, B, accuracy=accuracy, reproducible=True)
        for found, x in zip(c, big, strict=True):
            assert ozaki.reference.normwise_error(found, x, B) <= 1e-9


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("fp65", ValueError, "accuracy: 'fp65' is not known; expected one of fp32, .*'relative:1e-12'"),
        ("bfloat16", ValueError, "accuracy: 'bfloat16' is not known; use 'bf16'$"),
        ("half", ValueError, "accuracy: 'half' is not known; use 'fp16'$"),
        ("float64", ValueError, "accuracy: 'float64' is not known; use 'fp64'$"),
        ("FP64", ValueError, "accuracy: 'FP64' is not known; use 'fp64'$"),
        ("relative:fp64", ValueError, "accuracy: 'relative:fp64'; expected MEASURE:TOLERANCE"),
        ("rows:1e-9", ValueError, "accuracy: measure 'rows' is not known; expected one of componentwise"),
        ("relative:53", ValueError, "accuracy: tolerance 53; .*accuracy=53"),
        ("53.0", ValueError, "accuracy: tolerance 53.0; .*accuracy=53"),
        ("2^5000", ValueError, "accuracy: 2.5000; expected a tolerance"),
        ("2^-200000", ValueError, "accuracy: '2.-200000'; expected a tolerance of at least"),
        ("1_0", ValueError, "accuracy: '1_0' is not known"),
        ("", ValueError, "accuracy: '' is not known"),
        (":1e-9", ValueError, "accuracy: measure '' is not known"),
        ("relative:1e-1000000", ValueError, "accuracy: 'relative:1e-1000000'; expected a tolerance of at least"),
        ("1e-999999999999999999", ValueError, "accuracy: '1e-9*'; expected a tolerance of at least"),
        ("1e-99999999999999999999", ValueError, "accuracy: '1e-9*'; expected a tolerance of at least"),
        ("-1e-400", ValueError, "accuracy: '-1e-400'; expected a number above 0"),
    ],
)
def test_texts_that_mean_nothing(text, error, message):
    for function in (lambda x: ozaki.matmul(A, B, accuracy=x), ozaki.emulate, lambda x: Accuracy.of(x, 6)):
        with pytest.raises(error, match=f"^{message}"):
            function(text)


def test_a_tolerance_in_words_has_one_digit_before_the_point():
    assert Accuracy.of("1e-400", 1).in_words == "1e-400"
    assert Accuracy.of("9.996e-500", 1).in_words == "1e-499"


@pytest.mark.parametrize(
    ("text", "power"), [(".5e-400", -401), ("1e-0000400", -400), ("0." + 400 * "0" + "1", -401), ("1.e-320", -320)]
)
def test_a_tiny_tolerance_is_not_zero(text, power):
    """However it is written, it is as large as it says, or less by the last bit of a float."""
    digits = 5 if text.startswith(".5") else 1
    accuracy = Accuracy.of(f"relative:{text}", 1)
    ratio = Fraction(accuracy.tolerance) * Fraction(2) ** accuracy.exponent / (digits * Fraction(10) ** power)
    assert 1 - Fraction(1, 2**51) <= ratio <= 1
    assert not accuracy.exact


def test_what_a_float_holds_is_a_float():
    for text in ("1e-302", "2^-1010", "2.3e-308"):
        x = 2.0**-1010 if "^" in text else float(text)
        assert Accuracy.of(text, 1) == Accuracy.of(x, 1)
    assert Accuracy.of("componentwise:0e-500", 1).exact
