"""What matmul takes and returns on either library: shapes of any kind, prepared operands."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import cupy as cp
import numpy as np
import pytest

import ozaki
from runs.operands import same

WAYS: tuple[dict[str, Any], ...] = ({"scheme": "native"}, {"scheme": "residues", "slices": 14}, {"accuracy": "fp64"})


def many_axes(rng: np.random.Generator) -> None:
    """As many as an array may have, of which NumPy's own functions for shapes take half."""
    for axes in (33, 62):
        ones = (1,) * (axes - 1)
        left, right = (2, *ones, 3, 4), (*ones, 3, 4, 5)
        for a, b in ((left, right), (left, (4, 5)), ((4,), right), (left, (4,)), ((3, 4), right), (left, (0, 4, 5))):
            x, y = rng.integers(-9, 10, a).astype(float), rng.integers(-9, 10, b).astype(float)
            for way in WAYS:
                for operands in ((x, y), (cp.asarray(x), cp.asarray(y))):
                    c, report = ozaki.matmul(*operands, return_report=True, **way)
                    same(np.matmul(x, y), c)
                    assert report.bound < 1


def vectors(rng: np.random.Generator) -> None:
    """By each other they give an array without axes, as in CuPy; repeated calls, into `out` and by gemm, too."""
    for way in WAYS:
        for k in (0, 1, 70):
            x, y = (rng.integers(-9, 10, k).astype(float) for _ in range(2))
            a, b, expected = cp.asarray(x), cp.asarray(y), np.asarray(x @ y)
            for _ in range(3):
                got = ozaki.matmul(a, b, **way)
                assert isinstance(got, cp.ndarray)
                same(expected, got)
                given = [cp.full((), np.nan) for _ in range(3)]
                assert ozaki.matmul(a, b, given[0], **way) is given[0]
                assert ozaki.matmul(a, b, out=(given[1],), **way) is given[1]
                assert ozaki.gemm(2.0, a, b, 0.0, None, out=given[2], **way) is given[2]
                for out, factor in zip(given, (1, 1, 2), strict=True):
                    same(factor * expected, out)
                for alpha, beta in ((1.0, 0.0), (2.0, 0.0), (0.0, 0.0), (0.0, 2.0), (-2.0, 0.5)):
                    got = ozaki.gemm(alpha, a, b, beta, cp.asarray(np.array(3.0)), **way)
                    assert isinstance(got, cp.ndarray)
                    same(alpha * expected + beta * 3 + 0.0, got)


def copies_of_what_is_prepared(_rng: np.random.Generator) -> None:
    """It is its own copy, and its plan is what can be pickled."""
    x = cp.asarray(np.eye(4))
    left = ozaki.prepare(x, "left", ozaki.plan((4, 4), (4, 4), dtype="float64", scheme="residues", slices=14))
    assert copy.copy(left) is left and copy.deepcopy(left) is left
    with pytest.raises(TypeError, match=r"pickle the operand and `prepared\.plan`"):
        pickle.dumps(left)
    other = ozaki.prepare(x, "left", pickle.loads(pickle.dumps(left.plan)))
    same(np.eye(4), ozaki.matmul(other, x, plan=left.plan))
