"""Bad input: an error that names the argument and says what would be right, before anything is computed."""

import warnings
from collections import deque
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from cases import check_refused

import ozaki
from ozaki import Accuracy, Words, reference
from ozaki.tensor_core import V100, mma, round_to

A, B = np.ones((3, 4)), np.ones((4, 2))
WIDE = A / 3
WIDE[:, 1] = 2.0**-700
PLAN = ozaki.plan(A.shape, B.shape, dtype="float64", scheme="residues", slices=14)
PLAN32 = ozaki.plan(A.shape, B.shape, dtype="float32", scheme="residues", slices=7)
OTHER = ozaki.plan(A.shape, B.shape, dtype="float64", scheme="residues", slices=15)
EXACT = ozaki.plan(A, B, accuracy="exact")
NATIVE = ozaki.plan(A, B, scheme="native")
LEFT, RIGHT = ozaki.prepare(A, "left", PLAN), ozaki.prepare(B, "right", PLAN)


def read_only(x):
    x.flags.writeable = False
    return x


def matmul(a=A, b=B, **options):
    return lambda: ozaki.matmul(a, b, **options)


def matmul_of_three(a, b, c):
    return lambda: ozaki.matmul(a, b, c)


def plan(a=A, b=B, **options):
    return lambda: ozaki.plan(a, b, **options)


def shapes(a=A.shape, b=B.shape, dtype="float64", **options):
    return lambda: ozaki.plan(a, b, dtype=dtype, **options)


def gemm(alpha=1.0, a=A, b=B, beta=0.0, c=None, **options):
    return lambda: ozaki.gemm(alpha, a, b, beta, c, **options)


def prepare(x, side, plan=PLAN):
    return lambda: ozaki.prepare(x, side, plan)


A32, B32 = A.astype("f4"), B.astype("f4")


def halfhalf(a=A32, b=B32, **options):
    return lambda: ozaki.matmul(a, b, scheme="halfhalf", **options)


def words(**options):
    return lambda: Words(**options)


class NoArray:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("call detach() first")


ROW = np.ma.masked_equal([1.0, 2.0, 3.0, 4.0], 3.0)


class ArrayOfMasks:
    def __array__(self, dtype=None, copy=None):
        return np.ma.stack([ROW, ROW])


MASKED = {
    "an array": np.ma.stack([ROW, ROW]),
    "a list of arrays": [ROW, ROW],
    "a tuple of an array and a list": ([1.0, 2.0, 3.0, 4.0], ROW),
    "lists of lists of arrays": [[[1.0, 2.0, 3.0, 4.0]], [ROW]],
    "a deque": deque([ROW, ROW]),
    "an object": ArrayOfMasks(),
    "complex numbers": [[1j, 2.0, 3.0, np.ma.masked]] * 2,
}


CASES = {
    "no array just now": (matmul(NoArray()), TypeError, "a", "detach"),
    "a plan": (matmul(PLAN), TypeError, "a", "float32 or float64"),
    **{
        f"masked, {kind}, call {number}": (call, TypeError, name, "filled(0)")
        for kind, x in MASKED.items()
        for number, (call, name) in enumerate(
            (
                (matmul(x), "a"),
                (matmul(B.T, x), "b"),
                (gemm(beta=1.0, c=x), "c"),
                (prepare(x, "left"), "x"),
                (lambda x=x: reference.exact_matmul(x, B), "a"),
                (lambda x=x: reference.mpmath_matmul(B.T, x), "b"),
                (lambda x=x: reference.componentwise_error(x, A, B), "c"),
                (lambda x=x: reference.componentwise_errors(x, A, B), "c"),
                (lambda x=x: mma(x, B, 0.0), "a"),
                (lambda x=x: round_to(x, "fp16"), "x"),
            )
        )
    },
    "endless": (shapes((5, 10**30), (10**30, 5)), ValueError, "a", "at most"),
    "bits, no number": (lambda: Accuracy("componentwise", 1e-9, "x"), TypeError, "accuracy", "whole number"),
    "bits, too few": (lambda: Accuracy("componentwise", 1e-9, -5), ValueError, "accuracy", "1 to 1000"),
    "tolerance far beyond": (matmul(accuracy=Fraction(10**400)), ValueError, "accuracy", "below 1"),
    "tolerance beyond": (lambda: Accuracy("normwise", 10**400), ValueError, "accuracy", "below 1"),
    "tolerance of fractions": (
        matmul(WIDE, accuracy=Accuracy("componentwise", Fraction(1, 10**300)), scheme="digits"),
        ValueError,
        "accuracy",
        "1e-300",
    ),
    # shapes
    "inner dimensions": (matmul(A, A), ValueError, "b", "(4, n)"),
    "inner dimension of a vector": (matmul(A, np.ones(3)), ValueError, "b", "(4,)"),
    "scalar a": (matmul(np.float64(1)), ValueError, "a", "at least one dimension"),
    "scalar b": (matmul(A, np.ones(())), ValueError, "b", "at least one dimension"),
    "batches": (matmul(np.ones((2, 3, 4)), np.ones((3, 4, 2))), ValueError, "b", "broadcast"),
    "batches of shapes": (shapes((2, 3, 4), (3, 4, 2)), ValueError, "b", "broadcast"),
    # dtypes
    **{
        f"{dtype} a": (matmul(np.ones((3, 4), dtype)), TypeError, "a", "expected float32 or float64")
        for dtype in ("clongdouble", "longdouble", "U3")
    },
    "objects": (matmul(np.full((3, 4), 0.5, object)), TypeError, "a", "expected float32 or float64"),
    "large integers": (matmul(np.full((3, 4), 2**53 + 1)), ValueError, "a", "dtype='int64' or dtype='mp'"),
    "larger integers": (matmul(b=np.full((4, 2), 2**70 + 1)), ValueError, "b", "dtype='int64' or dtype='mp'"),
    "large integers in lists": (
        matmul(A, [[1, 2**63 + 1]] * 4),
        ValueError,
        "b",
        "element [0, 1] is 9223372036854775809",
    ),
    "integers beside floats": (matmul(A, [[0.5, 2**60 + 1]] * 4), ValueError, "b", "beside floats; ozaki.mparray(b)"),
    "plan of large integers": (plan(A, np.full((4, 2), 2**63 + 1)), ValueError, "b", "dtype='int64' or dtype='mp'"),
    "long doubles": (matmul(np.ones((3, 4), "longdouble")), TypeError, "a", "ozaki.mparray(a) keeps all bits"),
    "ragged list": (matmul([[1.0], [2.0, 3.0]]), (TypeError, ValueError), "a", "expected"),
    "no array": (matmul(None), TypeError, "a", "an array of float32 or float64"),
    "string": (matmul(A, "matrix"), (TypeError, ValueError), "b", "expected"),
    # accuracy
    "unknown name": (matmul(accuracy="fp65"), ValueError, "accuracy", "fp32, fp64, dd, qd"),
    "no bits": (matmul(accuracy=0), ValueError, "accuracy", "1 to 1000"),
    "negative bits": (matmul(accuracy=-53), ValueError, "accuracy", "1 to 1000"),
    "too many bits": (matmul(accuracy=1001), ValueError, "accuracy", "1 to 1000"),
    "boolean": (matmul(accuracy=True), TypeError, "accuracy", "expected a name"),
    "tuple": (matmul(accuracy=("normwise", 1e-3)), TypeError, "accuracy", "Accuracy(measure, tolerance)"),
    "complex accuracy": (matmul(accuracy=1j), TypeError, "accuracy", "expected a name"),
    "NaN": (matmul(accuracy=np.nan), ValueError, "accuracy", "above 0 and below 1"),
    "infinite": (matmul(accuracy=np.inf), ValueError, "accuracy", "above 0 and below 1"),
    "negative": (matmul(accuracy=-1e-3), ValueError, "accuracy", "above 0 and below 1"),
    "zero": (matmul(accuracy=0.0), ValueError, "accuracy", "above 0 and below 1"),
    **{
        f"bits as {x!r}": (call(accuracy=x), ValueError, "accuracy", "as 5e-16, or accuracy=53 for so many bits")
        for x in (53.0, np.float64(53), np.float32(53), np.longdouble(53), Fraction(53))
        for call in (matmul, plan, gemm, shapes)
    },
    "half as many bits": (matmul(accuracy=160 / 2), ValueError, "accuracy", "accuracy=80"),
    "bits and a half": (matmul(accuracy=53.5), ValueError, "accuracy", "below 1, as 5e-16"),
    "one": (matmul(accuracy=1.0), ValueError, "accuracy", "below 1, as 5e-16"),
    "one, as a float": (matmul(accuracy=1 - Fraction(1, 10**30)), ValueError, "accuracy", "below 1, as 5e-16"),
    "bits as Decimal": (matmul(accuracy=Decimal(53)), TypeError, "accuracy", "a number of bits (int, as 53)"),
    **{
        f"{x!r} {measure}": (lambda x=x, measure=measure: Accuracy(measure, x), ValueError, "accuracy", "below 1")
        for x in (53, 53.0, 1, 1.0, np.int64(53), Fraction(3, 2))
        for measure in ("componentwise", "row-column", "normwise")
    },
    "measure": (lambda: Accuracy("elementwise", 1e-3), ValueError, "accuracy", "componentwise, row-column, normwise"),
    "tolerance NaN": (lambda: Accuracy("normwise", np.nan), ValueError, "accuracy", "above 0 and below 1"),
    "tolerance text": (lambda: Accuracy("normwise", "1e-3"), TypeError, "accuracy", "above 0 and below 1"),
    "tolerance boolean": (lambda: Accuracy("normwise", True), TypeError, "accuracy", "above 0 and below 1"),
    "more than the scheme can": (
        matmul(WIDE, B / 3, accuracy=900, scheme="digits"),
        ValueError,
        "accuracy",
        "64 digits",
    ),
    "more than native can": (matmul(accuracy="dd", scheme="native"), ValueError, "accuracy", "scheme='auto'"),
    "more than native can, a priori": (
        shapes(accuracy=Accuracy("normwise", 1e-20), scheme="native"),
        ValueError,
        "accuracy",
        "scheme='auto'",
    ),
    "componentwise without data": (shapes(accuracy="fp64"), ValueError, "accuracy", "plan from the operands"),
    "tolerance without data": (shapes(accuracy=1e-3), ValueError, "accuracy", "Accuracy('row-column', 0.001)"),
    # scheme, slices, engine
    "scheme": (matmul(scheme="x"), ValueError, "scheme", "auto, digits"),
    "scheme of shapes": (shapes(scheme="x"), ValueError, "scheme", "auto, digits"),
    "scheme of no type": (matmul(scheme=None), ValueError, "scheme", "auto, digits"),
    "reproducible native": (matmul(scheme="native", reproducible=True), ValueError, "scheme", "leave one"),
    "reproducible native plan": (shapes(scheme="native", reproducible=True), ValueError, "scheme", "leave one"),
    "native engine": (matmul(scheme="native", engine="int8-simulated"), ValueError, "engine", "leave it out"),
    "native slices": (matmul(scheme="native", slices=3), ValueError, "slices", "scheme='digits' or 'residues'"),
    "slices of what": (matmul(slices=14), ValueError, "slices", "scheme='digits' or 'residues'"),
    **{
        f"{slices!r} {scheme}": (matmul(scheme=scheme, slices=slices), ValueError, "slices", f"1 to {most}")
        for scheme, most in (("residues", 2**14), ("digits", 64), ("digits7", 64))
        for slices in (0, -1, most + 1, 2.0, True, np.True_, "7", 2.5)
    },
    "no room for k": (
        matmul(np.ones((1, 70000)), np.ones((70000, 1)), scheme="residues", slices=1),
        ValueError,
        "slices",
        "give more",
    ),
    "too few for this k of shapes": (
        shapes((1, 10**6), (10**6, 1), scheme="residues", slices=2),
        ValueError,
        "slices",
        "give more",
    ),
    "too few for the accuracy": (
        matmul(A / 3, B / 3, scheme="residues", slices=5, accuracy="fp64"),
        ValueError,
        "slices",
        "give more slices",
    ),
    "too few for the accuracy, a priori": (
        shapes(scheme="residues", slices=5, accuracy=Accuracy("normwise", 1e-15)),
        ValueError,
        "slices",
        "give more slices",
    ),
    "componentwise slices, a priori": (
        shapes(scheme="residues", slices=15, accuracy="fp64"),
        ValueError,
        "slices",
        "plan from operands",
    ),
    "engine, no text": (
        matmul(engine=[], scheme="digits", slices=3),
        ValueError,
        "engine",
        "float64, int8, int8-simulated",
    ),
    "limit, no number": (
        matmul(workspace_limit=[1], scheme="digits", slices=3),
        ValueError,
        "workspace_limit",
        "number of bytes",
    ),
    "scheme, no text": (matmul(scheme=np.zeros(2)), ValueError, "scheme", "is not known"),
    "engine": (matmul(engine="x", reproducible=True), ValueError, "engine", "float64, int8, int8-simulated"),
    "engine of another backend": (matmul(engine="cublas"), ValueError, "engine", "float64, int8, int8-simulated"),
    "engine of shapes": (shapes(engine="x", scheme="residues"), ValueError, "engine", "float64, int8, int8-simulated"),
    # words
    "words of float64": (halfhalf(A, B), ValueError, "scheme", "float32"),
    "words of mixed dtypes": (halfhalf(A32, B), ValueError, "scheme", "use scheme='residues'"),
    "words of float64 shapes": (shapes(scheme="halfhalf"), ValueError, "scheme", "float32"),
    "words and slices": (halfhalf(slices=2), ValueError, "slices", "ozaki.Words(count=...)"),
    "words and engine": (halfhalf(engine="int8-simulated"), ValueError, "engine", "leave it out"),
    "reproducible words": (halfhalf(reproducible=True), ValueError, "scheme", "not reproducible"),
    "more than words can": (halfhalf(accuracy="fp64"), ValueError, "accuracy", "use scheme='auto'"),
    "more than words can, a priori": (
        shapes(scheme="halfhalf", dtype="float32", accuracy=Accuracy("normwise", 1e-9)),
        ValueError,
        "accuracy",
        "use scheme='auto'",
    ),
    "componentwise words without data": (
        shapes(scheme="halfhalf", dtype="float32", accuracy=1e-3),
        ValueError,
        "accuracy",
        "plan from operands",
    ),
    "workspace for words": (halfhalf(workspace_limit=1000), ValueError, "workspace_limit", "needs at least"),
    "fp16-digits and int8": (
        matmul(scheme="fp16-digits", engine="int8-simulated"),
        ValueError,
        "scheme",
        "engine='auto'",
    ),
    "word": (words(word="fp8"), ValueError, "word", "fp16, bf16, tf32"),
    "word of a core": (words(word="tf32", core=V100), ValueError, "word", "fp16"),
    "core": (words(core="H100"), TypeError, "core", "ozaki.tensor_core.H100"),
    "no words": (words(count=0), ValueError, "count", "1 to 8"),
    "words and a half": (words(count=2.5), TypeError, "count", "whole number"),
    "scale": (words(scale_bits=12), ValueError, "scale_bits", "0 to 11"),
    "scale of bf16": (words(word="bf16", scale_bits=9), ValueError, "scale_bits", "0 to 8"),
    "underflowing words": (words(count=4), ValueError, "scale_bits", "fewer words"),
    "block alone": (words(block=64), ValueError, "block, promotion", "both, or neither"),
    "promotion alone": (words(promotion="fp32"), ValueError, "block, promotion", "both, or neither"),
    "odd block": (words(block=40, promotion="fp32"), ValueError, "block", "multiple of 16"),
    "no block": (words(block=0, promotion="fp32"), ValueError, "block", "16 to"),
    "promotion": (words(block=64, promotion="fp128"), ValueError, "promotion", "None, fp32, fp64"),
    "pairs as a list": (words(pairs=[(1, 1)]), ValueError, "pairs", "as a tuple"),
    "pairs out of range": (words(pairs=((1, 1), (1, 3))), ValueError, "pairs", "from 1 to 2"),
    "pairs twice": (words(pairs=((1, 1), (1, 1))), ValueError, "pairs", "different pairs"),
    "pairs without the leading one": (words(pairs=((1, 2), (2, 1))), ValueError, "pairs", "(1, 1)"),
    "accumulators": (words(accumulators="two"), ValueError, "accumulators", "pair, diagonal, one"),
    "one accumulator of two scales": (words(scale_bits=11, accumulators="one"), ValueError, "accumulators", "a block"),
    "fp16 accumulator of two words": (words(accumulator="fp16"), ValueError, "accumulator", "single words"),
    "accumulator": (words(accumulator="fp64"), ValueError, "accumulator", "fp32, fp16"),
    "rounding": (words(rounding="up"), ValueError, "rounding", "RN, RNA, RZ"),
    # workspace
    **{
        f"workspace {limit!r}": (matmul(workspace_limit=limit), ValueError, "workspace_limit", "positive number")
        for limit in (0, -1, True, "1 GiB", float("nan"), float("inf"), 2.5e6 + 0.5)
    },
    "workspace too small": (
        matmul(workspace_limit=1000, reproducible=True),
        ValueError,
        "workspace_limit",
        "needs at least",
    ),
    # out
    "out of another shape": (matmul(out=np.empty((9, 9))), ValueError, "out", "(3, 2)"),
    "out of another dtype": (matmul(out=np.empty((3, 2), np.float32)), ValueError, "out", "float64"),
    "out read-only": (matmul(out=read_only(np.empty((3, 2)))), ValueError, "out", "writable"),
    "out of two": (matmul(out=(np.empty((3, 2)), None)), TypeError, "out", "numpy array"),
    "accuracy in the place of out": (matmul_of_three(A, B, "fp64"), TypeError, "out", "numpy array"),
    "out of another library": (matmul(out=deque([0.0])), TypeError, "out", "collections.deque; expected a numpy"),
    "out no array": (matmul(out=[[0.0, 0.0]] * 3), TypeError, "out", "numpy array"),
    "out with masked elements": (matmul(out=np.ma.masked_all((3, 2))), TypeError, "out", "without any"),
    "out of one row": (matmul(out=np.broadcast_to(np.ones(2), (3, 2))), ValueError, "out", "each has its own"),
    "gemm out of another shape": (gemm(out=np.empty((2, 3))), ValueError, "out", "(3, 2)"),
    "gemm out read-only": (gemm(out=read_only(np.empty((3, 2)))), ValueError, "out", "writable"),
    # plan
    "plan and accuracy": (matmul(plan=PLAN, accuracy="fp64"), ValueError, "plan", "one or the other"),
    "plan and scheme": (matmul(plan=PLAN, scheme="digits"), ValueError, "plan", "one or the other"),
    "plan and slices": (matmul(plan=PLAN, slices=14), ValueError, "plan", "one or the other"),
    "plan and engine": (matmul(plan=PLAN, engine="int8-simulated"), ValueError, "plan", "holds engine already"),
    "plan and others": (
        matmul(plan=PLAN, accuracy=np.ones(2), reproducible=True),
        ValueError,
        "plan",
        "accuracy and reproducible",
    ),
    "plan and reproducible": (matmul(plan=PLAN, reproducible=True), ValueError, "plan", "one or the other"),
    "plan and another dtype": (matmul(plan=PLAN, dtype="float32"), ValueError, "dtype", "the plan is made for float64"),
    "plan and integers": (matmul(plan=PLAN, dtype="int64"), ValueError, "dtype", "the plan is made for float64"),
    "exact plan and integers": (matmul(plan=EXACT, dtype="int64"), ValueError, "dtype", "the plan is made for float64"),
    "scheme of a list": (matmul(scheme=["residues"], dtype="float32"), ValueError, "scheme", "auto, digits"),
    "plan and limit": (matmul(plan=PLAN, workspace_limit=10**9), ValueError, "plan", "one or the other"),
    "plan of another shape": (matmul(np.ones((5, 4)), plan=PLAN), ValueError, "plan", "(5, 4, 2)"),
    "plan of another batch": (matmul(np.ones((5, 3, 4)), plan=PLAN), ValueError, "plan", "batch"),
    "plan of another dtype": (matmul(A.astype("f4"), B.astype("f4"), plan=PLAN), ValueError, "plan", "float32"),
    "no plan": (matmul(plan="fp64"), TypeError, "plan", "ozaki.plan"),
    "shapes without dtype": (shapes(dtype=None), ValueError, "dtype", "that of the operands, as 'float64', or 'mp'"),
    "shapes of an odd dtype": (shapes(dtype="int8"), TypeError, "dtype", "'complex128', 'int64' or 'mp'"),
    "shapes of no dtype": (shapes(dtype="real"), TypeError, "dtype", "'complex128', 'int64' or 'mp'"),
    "operands with an odd dtype": (plan(dtype="int8"), TypeError, "dtype", "'complex128', 'int64' or 'mp'"),
    "a product of the name of an accuracy": (
        *(matmul(dtype="bf16"), TypeError, "dtype"),
        "'mp', or 'bfloat16' or 'float16', of two such operands",
    ),
    "a product of an odd dtype": (matmul(dtype="mp?"), TypeError, "dtype", "'complex128', 'int64' or 'mp'"),
    "negative shape": (shapes((-1, 4)), ValueError, "a", "whole numbers"),
    "fractional shape": (shapes((3, 4), (4, 2.5)), ValueError, "b", "whole numbers"),
    "rows as a tuple": (shapes(((1.0, 2.0), (3.0, 4.0)), (2, 2)), ValueError, "a", "whole numbers"),
    "shape and array": (plan(A.shape, B), TypeError, "a", "two shapes, or two arrays"),
    "array and shape": (plan(A, B.shape), TypeError, "b", "two shapes, or two arrays"),
    # prepared operands
    "side": (prepare(A, "middle"), ValueError, "side", "'left' or 'right'"),
    "prepare for the wrong side": (prepare(A, "right"), ValueError, "x", "(4, 2)"),
    "prepare a vector": (prepare(np.ones(4), "left"), ValueError, "x", "(3, 4)"),
    "prepare a batch": (prepare(np.ones((5, 3, 4)), "left"), ValueError, "x", "(3, 4)"),
    "prepare what is prepared": (prepare(LEFT, "left"), TypeError, "x", "prepared already"),
    "prepare large integers": (prepare(np.full((3, 4), 2**62 - 1), "left"), ValueError, "x", "plan with dtype='mp'"),
    "prepare float64 for float32": (prepare(A, "left", PLAN32), TypeError, "x", "expected float32"),
    "prepare native": (prepare(A, "left", NATIVE), ValueError, "plan", "reproducible=True"),
    "prepare without plan": (prepare(A, "left", None), TypeError, "plan", "ozaki.plan"),
    "prepared on the wrong side": (matmul(np.ones((3, 4)), LEFT, plan=PLAN), ValueError, "b", "expected (4, n)"),
    "prepared for another plan": (matmul(LEFT, B, plan=OTHER), ValueError, "a", "prepare it with this one"),
    "prepared, native": (matmul(A, RIGHT, plan=NATIVE), ValueError, "b", "prepare it with this one"),
    "prepared without plan": (matmul(LEFT, B), ValueError, "plan", "a.plan"),
    "prepared right without plan": (matmul(A, RIGHT, accuracy="fp64"), ValueError, "plan", "b.plan"),
    # gemm
    "gemm shapes": (gemm(trans_a=True), ValueError, "b", "(3, n)"),
    "gemm without c": (gemm(beta=1.0), ValueError, "c", "(3, 2)"),
    "gemm c of another shape": (gemm(beta=1.0, c=np.ones((2, 3))), ValueError, "c", "(3, 2)"),
    "gemm c of another shape, not read": (gemm(c=np.ones((2, 3))), ValueError, "c", "(3, 2)"),
    "gemm c of large integers": (gemm(beta=1.0, c=np.full((3, 2), -(2**53) - 1)), ValueError, "c", "dtype='mp'"),
    "gemm c wider than the result": (
        gemm(a=A.astype("f4"), b=B.astype("f4"), beta=1.0, c=np.ones((3, 2))),
        TypeError,
        "c",
        "float32",
    ),
    "gemm alpha": (gemm(alpha=1j), TypeError, "alpha", "real number"),
    "gemm alpha beyond": (gemm(alpha=10**400), ValueError, "alpha", "range of float64"),
    "gemm alpha beyond float32": (gemm(1e300, A32, B32), ValueError, "alpha", "range of float32"),
    "gemm beta below float32": (gemm(1.0, A32, B32, 1e-60, np.ones((3, 2), "f4")), ValueError, "beta", "float32"),
    "gemm alpha text": (gemm(alpha="1"), TypeError, "alpha", "real number"),
    "gemm beta": (gemm(beta=None), TypeError, "beta", "real number"),
    "gemm transposed vector": (gemm(a=np.ones(4), trans_a=True), ValueError, "trans_a", "expected a matrix"),
    "gemm transposed prepared": (gemm(b=RIGHT, trans_b=True, plan=PLAN), ValueError, "trans_b", "prepared"),
    "gemm accuracy": (gemm(accuracy="fp65"), ValueError, "accuracy", "fp64"),
    # flags
    **{
        f"reproducible {type(x).__name__}": (matmul(reproducible=x), TypeError, "reproducible", "True or False")
        for x in ("no", 1, [], None, A)
    },
    "reproducible of shapes": (shapes(scheme="residues", slices=9, reproducible=[]), TypeError, "reproducible", "True"),
    "gemm transposed by no letter of BLAS": (gemm(trans_a="H"), TypeError, "trans_a", "'N', 'T' or 'C'"),
    "return_report": (matmul(return_report="no"), TypeError, "return_report", "True or False, or 'relative'"),
    "return_report of a tuple": (
        matmul(return_report=("bounds", True)),
        TypeError,
        "return_report",
        "a tuple of these",
    ),
    "return_report of a number": (matmul(return_report=1), TypeError, "return_report", "True or False"),
    "gemm transposed b": (gemm(trans_b=1), TypeError, "trans_b", "True or False"),
    # arguments in each other's places
    "prepare side and operand": (lambda: ozaki.prepare("left", A, PLAN), TypeError, "side", "'left' or 'right'"),
    "plan of a prepared operand": (plan(LEFT), ValueError, "a", "expected an array"),
    # equal to whole numbers, but not whole
    **{
        f"words pairs {pair}": (words(word="fp16", count=2, pairs=(pair, (1, 2))), ValueError, "pairs", "as a tuple")
        for pair in ((1.0, 1.0), (True, 1), [1, 1], (1, 1, 1), 1)
    },
    "words on a tensor core of a list": (lambda: replace(V100, words=["fp16"]), ValueError, "words", "as a tuple"),
    "words on a tensor core of a number": (lambda: replace(V100, words=5), ValueError, "words", "as a tuple"),
    "words on a tensor core twice": (lambda: replace(V100, words=("fp16", "fp16")), ValueError, "words", "each once"),
    "name of a tensor core": (lambda: replace(V100, name=100), TypeError, "name", "a str"),
    "words below the range": (words(word="fp16", count=4), ValueError, "scale_bits", "3 to 11"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case, monkeypatch):
    check_refused(monkeypatch, *CASES[case])


def test_masked_numbers_of_a_list():
    """Masked numbers in a list are refused: NumPy would make NaN of them, with a warning. NaN itself is not."""
    for x in ([[1.0, np.ma.masked]], [[1.0, np.ma.array(2.0, mask=True)]]):
        with warnings.catch_warnings(action="ignore"), pytest.raises(TypeError, match=r"^a: .*filled\(0\)"):
            ozaki.matmul(x, [[1.0], [1.0]])
    assert np.isnan(ozaki.matmul([[1.0, np.nan]], [[1.0], [1.0]])).all()
