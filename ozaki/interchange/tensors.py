"""Tensors of PyTorch as arrays of NumPy or CuPy, and back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy as np
import torch
from torch._ops import _get_dispatch_mode_pre_dispatch
from torch.autograd import forward_ad

from ozaki.caches import cached
from ozaki.interchange.halves import EIGHT_BITS, HalfArray
from ozaki.interchange.kinds import Given, is_dtensor
from ozaki.interchange.streams import on_stream
from ozaki.records.formats import HALVES


class Tensors:
    """Tensors on CPUs and CUDA devices (`kinds.Kind`)."""

    name = "a torch tensor"

    def view(self, label: str, x: Any, halves: bool = False) -> tuple[Any, torch.device]:
        """The elements of a tensor, and its device; a copy of lazy conjugates and negatives, and of 16-bit floats.

        With `halves` of these the bits, a view.

        Raises
        ------
        TypeError
            If the tensor requires a gradient or has a forward derivative, is sparse or quantised, or has no elements of
            its own, as those that `torch.compile` traces; if PyTorch traces the program, whose graph would hold these
            elements; or if nothing of its dtype can be multiplied.
        ValueError
            If it lies on a device that is neither a CPU nor of CUDA.
        ImportError
            If it lies on a GPU, and CuPy is not installed.
        """
        if is_dtensor(type(x)):
            raise TypeError(
                f"{label}: DTensor, of which each process holds a share; use ozaki.distributed.matmul or gemm, or "
                f"{label}.full_tensor()"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise TypeError(
                f"{label}: requires a gradient, which is not tracked here; use {label}.detach() (of products "
                "ozaki.torch.matmul, which tracks it)"
            )
        if forward_ad._current_level >= 0 and _has_tangent(x):
            raise TypeError(
                f"{label}: has a forward derivative, which is not tracked here; use ozaki.torch.matmul, or "
                f"torch.autograd.forward_ad.unpack_dual({label}).primal"
            )
        if _is_traced():
            raise TypeError(
                f"{label}: a tensor of a traced program, in whose graph the result would be a constant; use "
                "ozaki.torch.matmul, which can be traced"
            )
        if x.layout is not torch.strided or x.is_nested:
            raise TypeError(f"{label}: a tensor of layout {x.layout}; expected a dense one, as {label}.to_dense()")
        if x.is_quantized:
            raise TypeError(f"{label}: a quantised tensor; use {label}.dequantize()")
        if not (x.is_cuda or x.is_cpu):
            raise ValueError(f"{label}: lies on {x.device}; expected a CPU or a CUDA device, as {label}.cpu()")
        if type(x) not in (torch.Tensor, torch.nn.Parameter) and _has_no_memory(x):
            raise TypeError(
                f"{label}: {type(x).__name__}, which has no elements; call this outside of what traces (of products "
                "use ozaki.torch.matmul, which can be traced)"
            )
        if _is_wrapped(x):
            raise TypeError(
                f"{label}: a tensor that torch.func transforms; call this outside of it (of products use "
                "ozaki.torch.matmul)"
            )
        half, eight = _HALVES.get(x.dtype), str(x.dtype).startswith(f"torch.{EIGHT_BITS}")
        if label == "out" and _is_lazy(x):
            raise TypeError("out: a lazy conjugate, negative or zero; expected a tensor to write to")
        if label == "out" and (eight or (half and not halves)):
            raise TypeError(f"out: {x.dtype}, which no result has here; expected a tensor of the dtype of the result")
        if eight:
            x, half = x.to(torch.bfloat16), "bfloat16"  # exact
        if x._is_zerotensor():  # zeros of forward derivatives, which have no memory
            x = x.new_zeros(x.shape)
        if x.is_conj() or x.is_neg():
            x = x.resolve_conj().resolve_neg()
        if half and halves and x.is_cuda:
            return HalfArray(_on_gpu(label, x), half), x.device
        if half and halves:
            bits, device = self.view(label, x.detach().view(torch.int16))
            return HalfArray(bits.view(np.uint16), half), device
        if half:
            x = x.float()
        try:
            return _on_gpu(label, x) if x.is_cuda else x.detach().numpy(), x.device
        except (TypeError, KeyError):
            raise TypeError(
                f"{label}: dtype {x.dtype} is not supported; expected float32 or float64, complex64 or complex128"
            ) from None

    def given(self, x: Any) -> Given | None:
        """A dense tensor on a GPU that `view` takes without a copy; None of any other."""
        if type(x) not in _PLAIN or not _is_on_gpu(x) or x.layout is not _DENSE or x.is_nested:
            return None
        if (x.requires_grad and torch.is_grad_enabled()) or _is_wrapped(x) or x.is_neg() or x._is_zerotensor():
            return None
        described = _contiguous(x.dtype, x.shape)
        if described is None or (described[0] in _COMPLEX and x.is_conj()):
            return None
        if not x.is_contiguous():
            name, shape, _ = described
            size = x.element_size()
            described = name, shape, tuple([size * step for step in x.stride()])
        return _device_of(x), described, (x.data_ptr(),)

    def stream(self, device: int) -> int | None:
        """PyTorch's current one; None within modes, traced programs and forward derivatives, which `view` asks of."""
        of = torch._C  # a tracer is in the first of these stacks, or notes calls before they are dispatched
        if of._len_torch_dispatch_stack() or of._len_torch_function_stack() or forward_ad._current_level >= 0:
            return None
        if _get_dispatch_mode_pre_dispatch(TRACER) is not None:
            return None
        stream: int = of._cuda_getCurrentRawStream(device)
        return stream

    def new(self, shape: tuple[int, ...], dtype: str, device: int) -> tuple[Any, int]:
        """A new tensor in PyTorch's memory.

        Raises
        ------
        cupy.cuda.memory.OutOfMemoryError
            If that does not suffice.
        """
        of = _OF_RESULTS[dtype]
        try:  # `torch.empty` takes longer to tell its signatures apart
            c = torch.empty_strided(shape, _steps(shape), dtype=of, device=_gpu(device))
        except torch.cuda.OutOfMemoryError:
            import cupy as cp

            raise cp.cuda.memory.OutOfMemoryError(prod(shape) * of.itemsize, 0) from None
        return c, c.data_ptr()

    def on(self, device: torch.device | None) -> AbstractContextManager[Any]:
        """Within it, CuPy works on a tensor's device, on PyTorch's current stream there."""
        if device is None or device.type == "cpu":
            return nullcontext()
        return on_stream(device.index, torch._C._cuda_getCurrentRawStream(device.index))

    def written(self, out: Any) -> None:
        """Let autograd know that the elements have changed, of which it may have kept some for a gradient."""
        torch.autograd.graph.increment_version(out)

    def holds(self, dtype: Any) -> bool:
        """Whether arrays of a dtype that results have become tensors as they are: all do."""
        return True

    def made(self, c: Any, device: torch.device) -> Any:
        """An array as a tensor."""
        if device is None or device.type == "cpu":
            return torch.from_numpy(np.asarray(c))
        # PyTorch goes on on the stream on which c is computed, so neither has to wait for the other.
        return torch.utils.dlpack.from_dlpack(c.__dlpack__(stream=-1))

    def made_of_bits(self, bits: Any, half: str, device: torch.device) -> Any:
        """An array of bits as a tensor of a 16-bit format."""
        return self.made(bits.view(np.int16), device).view(getattr(torch, half))


TENSORS = Tensors()

TRACER = torch._C._TorchDispatchModeKey.PROXY
"""The key of the mode by which a tracer of PyTorch writes down what is called."""


def _has_tangent(x: Any) -> bool:
    """Whether a tensor has a forward derivative that somebody asks for: not in an operator, which knows its own."""
    below = torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)
    return not below and forward_ad.unpack_dual(x).tangent is not None


def _is_traced() -> bool:
    """Whether a tracer of PyTorch writes down what is called: not in an operator, which it has written down."""
    return torch._C._get_dispatch_mode(TRACER) is not None or _get_dispatch_mode_pre_dispatch(TRACER) is not None


def _is_lazy(x: Any) -> bool:
    """Whether the elements of a tensor are others than those in its memory."""
    return bool(x.is_conj() or x.is_neg() or x._is_zerotensor())


def _has_no_memory(x: Any) -> bool:
    """Whether a tensor of a class of its own stands for others, or for none."""
    try:
        return bool(x.numel() and x.data_ptr() == 0)
    except (RuntimeError, NotImplementedError):
        return True


_HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}

_OF_RESULTS = {
    name: getattr(torch, name) for name in ("float32", "float64", "complex64", "complex128", "float16", "bfloat16")
}
"""The dtypes of tensors that programs read and write, by their names."""

_NAMES = {dtype: name for name, dtype in _OF_RESULTS.items()}

_COMPLEX = ("F", "D")
"""The characters of complex dtypes of NumPy."""

_DENSE = torch.strided

_PLAIN = {torch.Tensor, torch.nn.Parameter}
"""Classes whose tensors have elements of their own."""

_is_on_gpu: Callable[[Any], bool] = torch.Tensor.is_cuda.__get__
_device_of: Callable[[Any], int] = torch.Tensor.get_device
"""Whether a tensor lies on a GPU, and its number."""

_is_wrapped: Callable[[Any], bool] = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether `torch.func` transforms a tensor."""


@cached(64)
def _gpu(number: int) -> torch.device:
    """The GPU of that number."""
    return torch.device("cuda", number)


@cached(1024)
def _contiguous(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], tuple[int, ...]] | None:
    """A contiguous tensor as `Given` describes it; None if programs read no such elements.

    Its strides are those that CuPy gives such an array; along an axis of one element PyTorch's may be others.
    """
    name = _NAMES.get(dtype)
    if name is None:
        return None
    char = name if name in HALVES else np.dtype(name).char
    return char, tuple(shape), tuple([dtype.itemsize * step for step in _steps(shape)])


@cached(1024)
def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a contiguous array."""
    steps, step = [], 1
    for count in reversed(shape):
        steps.append(step)
        step *= max(count, 1)
    return tuple(reversed(steps))


_DTYPES = {
    getattr(torch, name): np.dtype(name)
    for name in ("float32", "float64", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8", "bool")
} | dict.fromkeys(_HALVES, np.dtype("uint16"))
"""The dtypes of CuPy arrays in the memory of tensors; of 16-bit floats that of their bits."""


def _on_gpu(label: str, x: Any) -> Any:
    """A CuPy array on the memory of a CUDA tensor, which it keeps alive.

    It does what `cupy.from_dlpack` does, without the calls from library to library and back, which take longer than
    the launch of a small product.
    """
    try:
        import cupy as cp
    except ImportError:
        raise ImportError(
            f"{label}: a CUDA tensor, whose products run through CuPy; pip install 'cupy-cuda13x[ctk]' (or 12x)"
        ) from None
    dtype, size = _DTYPES[x.dtype], x.nbytes
    if x.is_contiguous():
        steps = None
    else:
        steps = tuple(step * dtype.itemsize for step in x.stride())
        size = sum(step * (count - 1) for step, count in zip(steps, x.shape, strict=True)) + dtype.itemsize
    memory = cp.cuda.UnownedMemory(x.data_ptr(), size, x, x.device.index)
    return cp.ndarray(tuple(x.shape), dtype, cp.cuda.MemoryPointer(memory, 0), steps)
