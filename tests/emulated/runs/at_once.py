"""Repeated calls from their arguments to their program: in few calls of Python, of tensors without views of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import cupy as cp
import numpy as np
import pytest
from ml_dtypes import bfloat16

import gpus
import ozaki
from runs.device import seen
from runs.operands import matrix, same

PACKAGE = Path(ozaki.__file__).parent

LAUNCHES = ("calls.py", "driver.py")
"""Files of functions that start a step of a program; how many they are is the program's."""

MOST = 25
"""Calls of Python in the library that a repeated call makes at most, beside those that start steps."""


def python_calls(rng: np.random.Generator) -> None:
    """A repeated call finds its program in few calls of Python."""
    a, b = cp.asarray(rng.standard_normal((4, 64))), cp.asarray(rng.standard_normal((64, 32)))
    x, w = (cp.asarray(cp.asnumpy(of).astype(np.float16)) for of in (a, b))
    given: dict[str, Any] = {"scheme": "residues", "slices": 5}
    plan, half = ozaki.plan(a, b, **given), ozaki.plan(x, w, accuracy="fp16")
    right = ozaki.prepare(w, "right", half)
    out, of_half = (cp.asarray(np.zeros((4, 32), of)) for of in ("f8", "f2"))
    check_calls(lambda: ozaki.matmul(a, b, **given))
    check_calls(lambda: ozaki.matmul(a, b, plan=plan))
    check_calls(lambda: ozaki.matmul(a, b, out=out, **given))
    check_calls(lambda: ozaki.matmul(a, b, scheme="native"))
    check_calls(lambda: ozaki.matmul(x, w))
    check_calls(lambda: ozaki.matmul(x, w, out=of_half))
    check_calls(lambda: ozaki.matmul(x, right, plan=half))
    check_calls(lambda: ozaki.matmul(x, right, out=of_half, plan=half))


def check_calls(call: Callable[[], Any]) -> None:
    """Check how many calls of Python in the library a repeated call makes, beside those that start steps."""
    call()
    call()
    found: list[str] = []

    def profile(frame: Any, event: str, _: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents and file.name not in LAUNCHES:
            found.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    assert len(found) <= MOST, (len(found), found)


def formats_told_apart(rng: np.random.Generator) -> None:
    """Programs of 16-bit floats serve no integers of 16 bits, and write none."""
    a, b = (cp.asarray(rng.standard_normal(shape).astype("f2")) for shape in ((8, 16), (16, 8)))
    u = cp.asarray(rng.integers(0, 9, (16, 8), "u2"))
    out, into = (cp.asarray(np.zeros((8, 8), dtype)) for dtype in ("u2", "f2"))
    expected = cp.asnumpy(a).astype("f8") @ cp.asnumpy(u)
    for _ in range(3):
        ozaki.matmul(a, b)
        ozaki.matmul(a, b, out=into)
    same(expected, ozaki.matmul(a, u))
    same(expected.T.copy(), ozaki.matmul(u.T, a.T))
    with pytest.raises(ValueError, match=r"^out: uint16; expected float16$"):
        ozaki.matmul(a, b, out=out)


def tensors_at_once(rng: np.random.Generator) -> None:
    """Programs that calls of CuPy arrays have kept serve tensors in the same memory."""
    of_dtypes: tuple[tuple[Any, dict[str, Any]], ...] = (
        ("f4", {"scheme": "residues", "slices": 4}), ("f8", {"accuracy": "fp64", "reproducible": True}),
        ("c8", {"scheme": "residues", "slices": 6}), ("f8", {"scheme": "native"}), ("f2", {}), (bfloat16, {}),
    )  # fmt: skip
    for dtype, options in of_dtypes:
        for left, right in (((5, 40), (40, 30)), ((1, 40), (40, 1)), ((40,), (40,)), ((3, 5, 40), (40, 30))):
            a, b = operand(rng, left, dtype), operand(rng, right, dtype)
            if b.shape == (40, 30):
                b = operand(rng, (30, 40), dtype).T
            expected = ozaki.matmul(a, b, **options)
            out = cp.asarray(np.zeros(expected.shape, dtype))
            ozaki.matmul(a, b, out=out, **options)
            with tensors_on_gpus() as tensor, seen() as calls:
                x, y, z = tensor(a), tensor(b), tensor(out)
                z.zero_()
                c, version = ozaki.matmul(x, y, **options), z._version
                assert ozaki.matmul(x, y, out=z, **options) is z and z._version > version
                assert (calls.long, calls.repeated) == (0, 2), (dtype, left, calls.long)
                check_same(expected, c, x)
                check_same(expected, z, x)
    prepared_for_tensors(rng)
    tensors_not_at_once(rng)
    tensors_elsewhere(rng)


def prepared_for_tensors(generator: np.random.Generator) -> None:
    """Prepared weights; and how many calls of Python tensors take."""
    a, b = operand(generator, (4, 64), bfloat16), operand(generator, (64, 32), bfloat16)
    plan = ozaki.plan(a, b, accuracy="bf16")
    right = ozaki.prepare(b, "right", plan)
    expected = ozaki.matmul(a, right, plan=plan)
    ozaki.matmul(a, right, out=cp.asarray(np.zeros((4, 32), bfloat16)), plan=plan)
    ozaki.matmul(a, b)
    with tensors_on_gpus() as tensor:
        x, y, z = tensor(a), tensor(b), tensor(cp.asarray(np.zeros((4, 32), bfloat16)))
        for into in (None, z):
            check_same(expected, ozaki.matmul(x, right, out=into, plan=plan), x)
        check_calls(lambda: ozaki.matmul(x, right, plan=plan))
        check_calls(lambda: ozaki.matmul(x, y))


def tensors_not_at_once(generator: np.random.Generator) -> None:
    """What has to be refused, converted or told of a call is so, also where a program is kept of such a call."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    options: dict[str, Any] = {"scheme": "residues", "slices": 6}
    a, b = operand(generator, (5, 40), "c8"), operand(generator, (40, 30), "c8")
    u, v = operand(generator, (5, 40), bfloat16), operand(generator, (40, 30), bfloat16)
    for _ in range(2):
        ozaki.matmul(a, b, **options)
        ozaki.matmul(u, v)
    of_conjugate = ozaki.matmul(np.conj(cp.asnumpy(a)), cp.asnumpy(b), **options)
    with tensors_on_gpus() as tensor, seen() as calls:
        x, y = tensor(a), tensor(b)
        check_same(of_conjugate, ozaki.matmul(x.conj(), y, **options), x)
        same(of_conjugate.conj(), ozaki.matmul(x, y.conj(), **options).numpy())
        with pytest.raises(TypeError, match=r"^a: requires a gradient"):
            ozaki.matmul(tensor(a).requires_grad_(), y, **options)
        with pytest.raises(TypeError, match=r"^b: .* beside a torch tensor"):
            ozaki.matmul(x, b, **options)
        halves = tensor(u), tensor(v)
        assert ozaki.matmul(halves[0], halves[1].to(torch.float16)).dtype == torch.float32
        assert ozaki.matmul(halves[0].to(torch.float16), halves[1]).dtype == torch.float32
        with FlopCounterMode(display=False):
            ozaki.matmul(x, y, **options)
        assert calls.repeated == 0
        with torch.no_grad():
            check_same(ozaki.matmul(a, b, **options), ozaki.matmul(tensor(a).requires_grad_(), y, **options), x)
        assert calls.repeated == 2


def tensors_elsewhere(generator: np.random.Generator) -> None:
    """Tensors on another device than the current one, and on a stream of their own."""
    options: dict[str, Any] = {"scheme": "residues", "slices": 6}
    with cp.cuda.Device(1):
        a, b = operand(generator, (5, 40), "f8"), operand(generator, (40, 30), "f8")
        expected = cp.asnumpy(ozaki.matmul(a, b, **options))
        stream = cp.cuda.Stream()
    with seen() as calls:
        of_arrays = ozaki.matmul(a, b, **options)  # without an enclosing `with` statement
        with cp.cuda.Device(1):
            same(expected, of_arrays)
        with tensors_on_gpus({1: stream.ptr}) as tensor:
            c = ozaki.matmul(x := tensor(a), tensor(b), **options)
            assert gpus.current() == 0
            stream.synchronize()
            same(expected, c.numpy())
            assert type(c) is type(x)
    assert (calls.long, calls.repeated) == (0, 2)


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """An operand on the current device."""
    x = matrix(rng, shape, "f8")
    return cp.asarray((x + 1j * matrix(rng, shape, "f8") if dtype == "c8" else x).astype(dtype))


def check_same(expected: Any, c: Any, like: Any) -> None:
    """Check that a tensor of the class and dtype of another one has the bits of an array."""
    import torch

    assert type(c) is type(like) and c.dtype == like.dtype
    cp.cuda.Device().synchronize()
    found, wanted = c, cp.asnumpy(expected)
    if wanted.dtype.itemsize == 2:
        found, wanted = c.view(torch.int16), wanted.view(np.int16)
    same(wanted, found.numpy())


@contextmanager
def tensors_on_gpus(streams: dict[int, int] | None = None) -> Iterator[Callable[[Any], Any]]:
    """Let PyTorch have the emulated devices, as far as tensors of results and operands go.

    The value makes a tensor in the memory of a CuPy array. `streams` are PyTorch's, by devices, if they are not CuPy's.
    """
    import torch

    from ozaki.interchange import tensors

    def tensor(x: Any) -> Any:
        of_host = x.view(np.ndarray)
        if x.dtype == bfloat16:
            return torch.from_numpy(of_host.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(of_host)

    def empty(shape: tuple[int, ...], steps: tuple[int, ...], dtype: Any, device: Any) -> Any:
        with cp.cuda.Device(device.index):
            return tensor(cp.empty(shape, bfloat16 if dtype == torch.bfloat16 else str(dtype).removeprefix("torch.")))

    def stream(device: int) -> int:
        return cp.cuda.get_current_stream().ptr if streams is None else streams[device]

    with (
        mock.patch.object(tensors, "_is_on_gpu", lambda x: gpus.device_of(x.data_ptr()) is not None),
        mock.patch.object(tensors, "_device_of", lambda x: gpus.device_of(x.data_ptr())),
        mock.patch.object(torch, "empty_strided", empty),
        mock.patch.object(torch._C, "_cuda_getCurrentRawStream", stream, create=True),
    ):
        yield tensor
