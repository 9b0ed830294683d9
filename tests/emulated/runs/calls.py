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


def copies_of_what_is_prepared(_rng: np.random.Generator) -> None:
    """It is its own copy, and its plan is what can be pickled."""
    x = cp.asarray(np.eye(4))
    left = ozaki.prepare(x, "left", ozaki.plan((4, 4), (4, 4), dtype="float64", scheme="residues", slices=14))
    assert copy.copy(left) is left and copy.deepcopy(left) is left
    with pytest.raises(TypeError, match=r"pickle the operand and `prepared\.plan`"):
        pickle.dumps(left)
    again = ozaki.prepare(x, "left", pickle.loads(pickle.dumps(left.plan)))
    same(np.eye(4), ozaki.matmul(again, x, plan=left.plan))
