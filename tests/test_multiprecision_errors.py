"""Bad input of products with multiprecision operands and results: refused before anything is computed."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from cases import check_refused

import ozaki
from ozaki import Accuracy, Words, mparray

X, Y = mparray([["1/3", "0.1"], ["2/7", 3]], bits=200), mparray([[1, 2], [3, 4]])
F, I = np.ones((2, 2)), np.ones((2, 2), int)  # noqa: E741
NAN, INF = np.array([[1.0, 2.0], [np.nan, 3.0]]), np.array([[1.0, -np.inf], [1.0, 1.0]])
MP, WIDE = ozaki.plan(X, F, accuracy=90), ozaki.plan(X, F, dtype="float64")
DIGITS = ozaki.plan(F, F, scheme="digits", slices=5)
NATIVE = ozaki.plan(F, F, scheme="native")
HALFHALF = ozaki.plan((2, 2), (2, 2), dtype="float32", scheme="halfhalf")


def matmul(a=X, b=Y, out=None, **options):
    return lambda: ozaki.matmul(a, b, out, **options)


def prepare(x, plan):
    return lambda: ozaki.prepare(x, "left", plan)


def gemm(alpha=1.0, a=X, b=Y, beta=0.0, c=None, **options):
    return lambda: ozaki.gemm(alpha, a, b, beta, c, **options)


CASES = {
    # operands
    "NaN": (matmul(NAN), ValueError, "a", "element [1, 0] is nan"),
    "Inf": (matmul(b=INF), ValueError, "b", "element [0, 1] is -inf"),
    "NaN in a vector": (matmul(NAN[1]), ValueError, "a", "element [0] is nan"),
    "NaN in a batch": (matmul(np.stack([F, NAN])), ValueError, "a", "element [1, 1, 0] is nan"),
    "NaN of floats alone": (matmul(F, NAN, dtype="mp", accuracy=60), ValueError, "b", "element [1, 0] is nan"),
    "NaN and every bit": (matmul(F, NAN, dtype="mp", accuracy="exact"), ValueError, "b", "element [1, 0] is nan"),
    "NaN and int64": (matmul(NAN, F, dtype="int64"), ValueError, "a", "element [1, 0] is nan"),
    "NaN prepared": (prepare(NAN, MP), ValueError, "x", "element [1, 0] is nan"),
    "shapes": (matmul(b=mparray([[1, 2, 3]])), ValueError, "b", "expected (2, n)"),
    "batches": (matmul(X.reshape(1, 2, 2)[[0, 0]], Y.reshape(1, 2, 2)[[0, 0, 0]]), ValueError, "b", "broadcast"),
    "a scalar": (matmul(mparray(1)), ValueError, "a", "a scalar"),
    "fractions": (matmul([[Fraction(1, 2)]], [[1]], dtype="mp"), TypeError, "a", "ozaki.mparray(a, bits)"),
    # dtype
    **{
        f"dtype {dtype!r}": (matmul(dtype=dtype), TypeError, "dtype", "'int64' or 'mp'")
        for dtype in ("int32", "mp?", "mp-5", "mp1e3", "mp²", "MP", 5, object, "")
    },
    "dtype 'float16'": (matmul(dtype="float16"), ValueError, "dtype", "of two float16 operands"),
    **{
        f"dtype {dtype}": (matmul(dtype=dtype), ValueError, "dtype", "2 to 100000 bits")
        for dtype in ("mp0", "mp1", "mp100001", "mp99999999999")
    },
    "every bit of so many": (matmul(dtype="mp106", accuracy="exact"), ValueError, "dtype", "use dtype='mp'"),
    "a dtype beside a plan": (matmul(b=F, plan=MP, dtype="float64"), ValueError, "dtype", "made for mp90"),
    "int64 beside a plan that rounds": (matmul(b=F, plan=MP, dtype="int64"), ValueError, "dtype", "made for mp90"),
    # accuracy
    "too many bits for floats": (matmul(F, F, accuracy=2000), ValueError, "accuracy", "too small for a float result"),
    "a tolerance too small for floats": (
        matmul(F, F, accuracy=Accuracy("row-column", 0.5, exponent=-10)),
        ValueError,
        "accuracy",
        "too small for a float result",
    ),
    **{
        f"{bits} bits in {dtype}": (
            matmul(accuracy=bits, dtype=dtype),
            ValueError,
            "accuracy",
            f"but dtype='{dtype}' rounds to {own} bits",
        )
        for dtype, bits, own in (("mp31", 2000, 31), ("mp1400", 50_000, 1400))
    },
    "too many bits": (matmul(accuracy=100_001), ValueError, "accuracy", "1 to 100000"),
    "accuracy of int64": (matmul(I, I, dtype="int64", accuracy=53), ValueError, "accuracy", "exact"),
    "tolerance of int64": (matmul(I, I, dtype="int64", accuracy=1e-3), ValueError, "accuracy", "exact"),
    "exponent above 0": (lambda: Accuracy("normwise", 0.5, exponent=1), ValueError, "accuracy", "-100000 to 0"),
    "exponent, no number": (lambda: Accuracy("normwise", 0.5, exponent=0.5), TypeError, "accuracy", "whole number"),
    # scheme, slices
    **{
        f"{scheme} {options}": (matmul(scheme=scheme, **options), ValueError, "scheme", "'residues' or 'auto'")
        for scheme in ("digits", "digits7", "fp16-digits", "native", "halfhalf", "feng", Words(count=2))
        for options in ({}, {"accuracy": 53}, {"accuracy": "exact"}, {"dtype": "float32"}, {"dtype": "float64"})
    },
    **{
        f"{scheme} with slices": (matmul(scheme=scheme, slices=5), ValueError, "scheme", "'residues' or 'auto'")
        for scheme in ("digits", "digits7", "fp16-digits")
    },
    "native integers": (matmul(I, I, dtype="float64", scheme="native"), ValueError, "scheme", "'residues'"),
    "more residues than users count": (matmul(scheme="residues", slices=2**15), ValueError, "slices", "1 to 16384"),
    "too few residues": (matmul(scheme="residues", slices=9, accuracy=150), ValueError, "slices", "give more slices"),
    "too few for every bit": (
        matmul(scheme="residues", slices=9, accuracy="exact"),
        ValueError,
        "slices",
        "every bit",
    ),
    "words of float64 into float32": (
        matmul(F, F, dtype="float32", scheme="halfhalf"),
        ValueError,
        "scheme",
        "float64",
    ),
    # plans
    "digits by a plan": (matmul(plan=DIGITS), ValueError, "plan", "need residues"),
    "native by a plan": (matmul(plan=NATIVE), ValueError, "plan", "need residues"),
    "words by a plan": (matmul(plan=HALFHALF), ValueError, "plan", "need residues"),
    "words by a plan, of float64": (matmul(F, F, plan=HALFHALF, dtype="float32"), ValueError, "scheme", "float64"),
    "prepared for digits": (prepare(X, DIGITS), ValueError, "plan", "need residues"),
    "prepared for words": (prepare(X, HALFHALF), ValueError, "plan", "need residues"),
    "prepared, without plan": (matmul(ozaki.prepare(X, "left", MP), F), ValueError, "plan", "a.plan"),
    "prepared for another plan": (
        matmul(ozaki.prepare(X, "left", WIDE), F, plan=MP),
        ValueError,
        "a",
        "prepare it with this one",
    ),
    # out, workspace, gemm
    "out": (matmul(out=np.empty((2, 2))), ValueError, "out", "new array"),
    "out of floats alone": (matmul(F, F, np.empty((2, 2)), dtype="mp"), ValueError, "out", "new array"),
    "out of another dtype": (matmul(out=np.empty((2, 2), "f4"), dtype="float64"), ValueError, "out", "float64"),
    "workspace": (matmul(workspace_limit=1000), ValueError, "workspace_limit", "needs at least"),
    "gemm out": (gemm(out=np.empty((2, 2))), ValueError, "out", "new array"),
    "gemm by a plan of digits": (gemm(plan=DIGITS), ValueError, "plan", "need residues"),
    "gemm with an addend and words": (gemm(1.0, F, F, 1.0, X, scheme="feng"), ValueError, "scheme", "'residues'"),
    "gemm c NaN": (gemm(1.0, F, F, 1.0, NAN, dtype="mp"), ValueError, "c", "needs finite numbers"),
    "gemm c of another shape": (gemm(beta=1.0, c=X[0]), ValueError, "c", "(2, 2)"),
    "gemm alpha 1/3": (gemm(Fraction(1, 3)), ValueError, "alpha", "no end in binary"),
    "gemm alpha NaN": (gemm(np.nan), ValueError, "alpha", "is nan"),
    "gemm beta Inf": (gemm(beta=np.inf, c=X), ValueError, "beta", "is inf"),
    "gemm alpha complex": (gemm(1j), TypeError, "alpha", "multiply a by it"),
    "gemm alpha text": (gemm("0.5"), TypeError, "alpha", "expected a number"),
    "gemm alpha None": (gemm(None), TypeError, "alpha", "NoneType"),
    "gemm alpha too far": (gemm(mpmath.ldexp(mpmath.mpf(1), 2**61)), ValueError, "alpha", "2**60"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case, monkeypatch):
    check_refused(monkeypatch, *CASES[case])


def test_nan_passes_into_results_of_floats():
    """As in IEEE arithmetic, beside multiprecision numbers far from 1, too."""
    far = ozaki.MPArray(X.signs, X.exponents - 5000, X.limbs, X.bits)
    for x in (X, far):
        assert np.isnan(ozaki.matmul(NAN, x, dtype="float64")).tolist() == [[False, False], [True, True]]
        c = ozaki.matmul(x, INF, dtype="float32")
        assert c[:, 1].tolist() == [-np.inf, -np.inf] and np.isfinite(c[:, 0]).all()
    zero = mparray([[0, 1], [0, 0]])
    assert np.isnan(ozaki.matmul(zero, INF, dtype="float64")).tolist() == [[False, True], [False, True]]


@pytest.mark.full
def test_rows_too_long_for_every_bit():
    far = ozaki.MPArray(X.signs, X.exponents - [[0, 200_000]], X.limbs, X.bits)
    with pytest.raises(ValueError, match=r"^accuracy: .* too many for an exact product"):
        ozaki.matmul(far, Y, accuracy="exact")
