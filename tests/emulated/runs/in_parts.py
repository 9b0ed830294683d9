"""Products in parts whose operands lie on GPUs (`ozaki.parts`): the bits of NumPy, and what does not fit together."""

from __future__ import annotations

import pickle
from functools import reduce
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest

import ozaki
from ozaki import parts
from ozaki.backends.cupy import parts as on_device
from runs.operands import hard, matrix, same


def described(x: np.ndarray, cuts: list[slice], side: Any) -> Any:
    """The descriptions of rows of x from those of their parts, on a GPU as in host memory."""
    k = x.shape[1 if side == "left" else 0]
    pieces = [x[:, at] if side == "left" else x[at] for at in cuts]
    extremes = [parts.extremes(cp.asarray(piece), side) for piece in pieces]
    merged = reduce(np.maximum, extremes)
    sums = [parts.sums(cp.asarray(piece), side, merged, k) for piece in pieces]
    for piece, found, added in zip(pieces, extremes, sums, strict=True):
        assert type(found) is np.ndarray and type(added) is np.ndarray
        same(parts.extremes(piece, side), found)
        same(parts.sums(piece, side, merged, k), added)
    return parts.describe(merged, reduce(np.add, sums), k, str(x.dtype))


def multiplied(a: np.ndarray, b: np.ndarray, cuts: list[slice], plan: Any) -> list[parts.Unrounded]:
    """The products of all parts, on the current GPU."""
    rows = described(a, cuts, "left"), described(b, cuts, "right")
    return [parts.multiply(cp.asarray(a[:, at]), cp.asarray(b[at]), *rows, plan) for at in cuts]


def added_up(rng: np.random.Generator, a: np.ndarray, b: np.ndarray, cuts: list[slice], plan: Any) -> None:
    """Compare the sum of the products of parts, in any order, by `add`, by arrays and after travels."""
    want = ozaki.matmul(a, b, plan=plan)
    for way in ("add", "arrays", "both", "pickle"):
        found = multiplied(a, b, cuts, plan)
        found = [found[i] for i in rng.permutation(len(found))]
        if way == "pickle":
            found = pickle.loads(pickle.dumps(found))
        total, *others = found
        before_others: list[tuple[parts.Unrounded, Any]] = []
        for i, each in enumerate(others):
            if way == "arrays" or (way == "both" and i % 2):
                for own, more in zip(total.arrays, each.arrays, strict=True):  # as MPI adds them
                    assert isinstance(own, cp.ndarray) and own.dtype != np.uint8
                    own += more
            else:
                before = each.round()
                assert total.add(each) is total
                before_others.append((each, before))
        same(want, total.round())
        for each, before in before_others:
            same(cp.asnumpy(before), each.round())  # what is added stays, too
        same(want, total.round())  # what was added stays
        if way == "both":
            same(want, pickle.loads(pickle.dumps(total)).round())


def added_on_devices(rng: np.random.Generator) -> None:
    a, b = hard(rng, 70, "f8")
    b = b[:35].T
    cuts = [slice(0, 30), slice(30, 30), slice(30, 33), slice(33, 70)]
    with mock.patch.object(on_device, "ROWS", 16):
        for scheme, slices in (("residues", 14), ("residues", 60), ("digits", 7), ("fp16-digits", 8)):
            plan = ozaki.plan(a.shape, b.shape, dtype="float64", scheme=scheme, slices=slices)
            added_up(rng, a, b, cuts, plan)
        x, y = (matrix(rng, shape, "f4") + 1j * matrix(rng, shape, "f4") for shape in ((9, 20), (20, 7)))
        x[1, 3] = np.inf
        plan = ozaki.plan(x.shape, y.shape, dtype="complex64", scheme="residues", slices=12)
        added_up(rng, x, y, [slice(0, 11), slice(11, 20)], plan)


def planned_on_devices(rng: np.random.Generator) -> None:
    a, b = matrix(rng, (20, 50), "f8"), matrix(rng, (50, 9), "f8")
    cuts = [slice(0, 7), slice(7, 50)]
    with cp.cuda.Device(1):
        rows = described(a, cuts, "left"), described(b, cuts, "right")
    for accuracy in (ozaki.Accuracy("row-column", 1e-12), "exact"):
        plan = parts.plan(*rows, accuracy=accuracy)
        with cp.cuda.Device(1):
            on_one = [(cp.asarray(a[:, at]), cp.asarray(b[at])) for at in cuts]
        first, second = (parts.multiply(*of, *rows, plan) for of in on_one)  # while another device is the current one
        found = first.add(second).round()
        assert found.data.device_id == 1
        assert first.arrays[0].data.device_id == 1
        with cp.cuda.Device(1):
            same(ozaki.matmul(a, b, accuracy=accuracy, reproducible=True), found)


def refused_parts(rng: np.random.Generator) -> None:
    a = matrix(rng, (6, 6), "f8")
    cuts = [slice(0, 3), slice(3, 6)]
    plan = ozaki.plan(a.shape, a.shape, dtype="float64", scheme="residues", slices=14)
    rows = described(a, cuts, "left"), described(a, cuts, "right")
    here = parts.multiply(cp.asarray(a[:, :3]), cp.asarray(a[:3]), *rows, plan)
    with cp.cuda.Device(1):
        there = parts.multiply(cp.asarray(a[:, 3:]), cp.asarray(a[3:]), *rows, plan)
        packed = pickle.dumps(there)
    with pytest.raises(ValueError, match="other: on GPU 1; expected a part on GPU 0"):
        here.add(there)
    with pytest.raises(ValueError, match="other: in host memory; expected a part on GPU 0"):
        here.add(parts.multiply(a[:, 3:], a[3:], *rows, plan))
    same(ozaki.matmul(a, a, plan=plan), here.add(pickle.loads(packed)).round())
    with pytest.raises(ValueError, match="b: in host memory, but a on a GPU"):
        parts.multiply(cp.asarray(a), a, *rows, plan)
    with cp.cuda.Device(1):
        other = cp.asarray(a)
    with pytest.raises(ValueError, match="a: on device 0, b: on device 1"):
        parts.multiply(cp.asarray(a), other, *rows, plan)
    of_host = ozaki.plan(a, a, slices=12, engine="float64", scheme="residues")
    with pytest.raises(ValueError, match="engine: 'float64' is not available for cupy"):
        parts.multiply(cp.asarray(a), cp.asarray(a), *rows, of_host)
    with pytest.raises(TypeError, match="x: dtype int64"):
        parts.extremes(cp.asarray(a.astype(np.int64)), "left")
