"""An emulation of CuPy, as far as the library uses it, on NumPy arrays; `install` puts it in CuPy's place.

Its kernels are those of kernels/, run by tests/emulated/cuda.h when their stream reaches them (streams.py), and its
cuBLAS is NumPy's product of integers. Memory is filled with 0xa5 when it is allocated and when it is freed. There are
two devices (gpus.py): whatever touches memory of another one than the current one raises.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import weakref
from functools import cache, partial
from math import prod
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import scipy.linalg

import gpus
import streams
from build import built
from streams import Event, Stream, current, drain, give, give_to


class Memory:
    """cupy.cuda.MemoryPointer: an address, and the object that keeps its memory alive."""

    def __init__(self, ptr: int, owner: Any) -> None:
        self.ptr, self._owner = ptr, owner

    @property
    def device_id(self) -> int:
        return gpus.device_of(self.ptr) or 0

    def __add__(self, offset: int) -> Memory:
        return Memory(self.ptr + offset, self._owner)

    def copy_from_device_async(self, source: Memory, size: int) -> None:
        """A copy from another device, on the current stream of this one, which waits for no stream of the other."""
        gpus.check("memory", self.device_id)
        give(streams.own(), lambda: ctypes.memmove(self.ptr, source.ptr, size))


class ndarray(np.ndarray):  # noqa: N801
    """cupy.ndarray: NumPy reads and writes it after all work that the current stream was given before."""

    def __new__(cls, shape: Any, dtype: Any, memory: Memory) -> ndarray:
        """Make an array in that memory, which it keeps alive."""
        count, kind = prod(shape), np.dtype(dtype)
        buffer: Any = (ctypes.c_char * max(count * kind.itemsize, 1)).from_address(memory.ptr)
        buffer._memory = memory
        return np.frombuffer(buffer, kind, count).reshape(shape).view(cls)

    @property
    def data(self) -> Memory:  # type: ignore[override]
        return Memory(self.__array_interface__["data"][0], self)

    @property
    def device(self) -> Any:
        return Device(self.data.device_id)

    def get(self) -> np.ndarray:
        _settle(self)
        return np.array(self)

    def __reduce__(self) -> Any:
        return as_array, (self.get(),)

    def set(self, of_host: np.ndarray) -> None:
        self[...] = _on_device(of_host.copy())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(hasattr(type(x), "__array_ufunc__") and not isinstance(x, np.ndarray | np.generic) for x in inputs):
            return NotImplemented  # as CuPy, for operands of other classes
        out = options.get("out", ())
        _settle(*inputs, *out)
        if out:
            options["out"] = tuple(map(_on_numpy, out))
        found = getattr(ufunc, method)(*map(_on_numpy, inputs), **options)
        return out[0] if len(out) == 1 else _on_device(found)

    def __getitem__(self, at: Any) -> Any:
        """A view: for a single element too, where NumPy returns a scalar."""
        places = at if isinstance(at, tuple) else (at,)
        if any(isinstance(place, np.ndarray | list) for place in places):
            _settle(self, *places)
            return _on_device(np.ndarray.__getitem__(_on_numpy(self), tuple(map(_on_numpy, places))))
        found = super().__getitem__(at)
        return found if isinstance(found, np.ndarray) else super().__getitem__((*places, ...))

    def __setitem__(self, at: Any, value: Any) -> None:
        _settle(self, *(at if isinstance(at, tuple) else (at,)), value)
        super().__setitem__(at, value)


def _settle(*operands: Any) -> None:
    """Check that arrays among these lie on the current device, and run all work of its current stream."""
    for x in operands:
        if isinstance(x, ndarray):
            gpus.check("an array", x.data.device_id)
        elif isinstance(x, tuple | list):
            _settle(*x)
    drain(streams.own())


def _read_first(name: str) -> Any:
    """The method of np.ndarray with that name, run after all work of the current stream."""

    def call(self: ndarray, *arguments: Any, **options: Any) -> Any:
        _settle(self, *arguments)
        found = getattr(np.ndarray, name)(self, *map(_on_numpy, arguments), **options)
        return found if not isinstance(found, np.ndarray) or np.may_share_memory(found, self) else _on_device(found)

    return call


for _name in (
    "__bool__", "__float__", "__int__", "argmax", "argmin", "astype", "copy", "fill", "item", "reshape", "tobytes",
    "tolist",
):  # fmt: skip
    setattr(ndarray, _name, _read_first(_name))
ndarray.__module__ = "cupy"


def _on_numpy(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, ndarray) else x


def as_numpy(x: Any) -> np.ndarray:
    """cupy.asnumpy."""
    return x.get() if isinstance(x, ndarray) else np.array(x)


def _on_device(x: Any) -> Any:
    """An array that NumPy has computed, in memory of the current device."""
    return as_array(_on_numpy(x)) if isinstance(x, np.ndarray) else x


def empty_of_pool(shape: Any, dtype: Any = float) -> ndarray:
    """cupy.empty."""
    shape = (shape,) if np.isscalar(shape) else tuple(shape)
    return ndarray(shape, dtype, alloc(max(prod(shape) * np.dtype(dtype).itemsize, 1)))


def as_array(x: Any, order: str = "K") -> ndarray:
    """cupy.asarray: a copy of all that lies between the first and the last element, with the same strides."""
    if isinstance(x, ndarray) and x.data.device_id == gpus.current():
        return x
    if isinstance(x, ndarray):  # CuPy copies it, and waits for no stream of the other device
        made = empty_of_pool(x.shape, x.dtype)
        made.data.copy_from_device_async(np.ascontiguousarray(_on_numpy(x)).view(ndarray).data, x.nbytes)
        return made
    x = np.asarray(x)
    first, end = np.lib.array_utils.byte_bounds(x)
    memory = empty_of_pool(end - first, np.uint8)
    if x.size:
        ctypes.memmove(memory.data.ptr, first, end - first)
    return np.ndarray.__new__(ndarray, x.shape, x.dtype, memory, x.ctypes.data - first, x.strides)


def on_arrays(function: Any) -> Any:
    """A function of NumPy as one of CuPy."""

    def call(*arguments: Any, **options: Any) -> Any:
        _settle(*arguments, *options.values())
        result = function(*map(_all_on_numpy, arguments), **{name: _on_numpy(x) for name, x in options.items()})
        if isinstance(options.get("out"), ndarray):
            return options["out"]
        if isinstance(result, tuple):
            made = [_on_device(x) for x in result]
            return result._make(made) if hasattr(result, "_make") else tuple(made)
        return _on_device(result)

    return call


def _all_on_numpy(x: Any) -> Any:
    return type(x)(map(_on_numpy, x)) if type(x) in (tuple, list) else _on_numpy(x)


class Block:
    """Device memory; when it is freed, the stream that it was allocated on overwrites it with 0xa5."""

    def __init__(self, size: int) -> None:
        values = np.full(size + 256, 0xA5, np.uint8)
        self.ptr = -(-values.ctypes.data // 256) * 256
        gpus.register(self.ptr, size)
        weakref.finalize(self, _overwrite, values, self.ptr, streams.own()).atexit = False


def _overwrite(values: np.ndarray, begin: int, stream: int) -> None:
    gpus.unregister(begin)
    streams.freed.append(values)
    give(stream, partial(values.fill, 0xA5))


def alloc(size: int) -> Memory:
    """cupy.cuda.alloc."""
    block = Block(max(size, 1))
    return Memory(block.ptr, block)


class Kernel:
    """A kernel of cupy.RawModule, loaded on the current device; a number stands for its address."""

    capability: ClassVar[str] = ""
    known: ClassVar[dict[int, Kernel]] = {}
    numbers = itertools.count(1)

    def __init__(self, device: int, file: str, function: str, macros: tuple[tuple[str, str | int], ...]) -> None:
        self.kernel, self.device = SimpleNamespace(ptr=next(self.numbers)), device
        self.run = built(file, function, macros, self.capability)
        self.max_dynamic_shared_size_bytes = 0
        self.known[self.kernel.ptr] = self


_kernel = cache(Kernel)


class Device:
    """cupy.cuda.Device."""

    compute_capability: ClassVar[str] = ""
    attributes: ClassVar[dict[str, int]] = {}

    def __init__(self, number: int | None = None) -> None:
        self.id = gpus.current() if number is None else int(number)

    def __int__(self) -> int:
        return self.id

    def use(self) -> None:
        gpus.use(self.id)

    def synchronize(self) -> None:
        streams.drain_all()

    def __enter__(self) -> Device:
        gpus.enter(self.id)
        return self

    def __exit__(self, *error: object) -> None:
        gpus.leave()


class Launcher:
    """Stands for the function that `driver.launcher` returns; can also take a copy of the arguments."""

    def __init__(
        self, function: Any, grid: Any, block: Any, shared_mem: int, arguments: ctypes.Array[ctypes.c_void_p]
    ) -> None:
        assert all(0 < n <= most for n, most in zip(grid, (2**31 - 1, 65535, 65535), strict=True)), grid
        assert 0 < prod(block) <= 1024, block
        gpus.check("a kernel", Kernel.known[function.ptr].device)
        self._function, self._shared_mem, self._arguments = function.ptr, shared_mem, arguments
        self._sizes = [(ctypes.c_uint * 3)(*size) for size in (grid, block)]

    def start(self, pieces: Any, copy: Any) -> None:
        """Run the kernel with the arguments in `copy`, a copy of the block `pieces` that the arguments point into."""
        kernel = Kernel.known[self._function]
        assert self._shared_mem <= kernel.max_dynamic_shared_size_bytes, "a launch of this kernel has allowed it less"
        moved = ctypes.addressof(copy) - ctypes.addressof(pieces)
        places = (ctypes.c_void_p * len(self._arguments))(*((at or 0) + moved for at in self._arguments))
        kernel.run(places, *self._sizes)


def gemm_ex(
    handle: int, op_b: int, op_a: int, n: int, m: int, k: int, one: int, b: int, type_b: int, ldb: int, a: int,
    type_a: int, lda: int, zero: int, c: int, type_c: int, ldc: int, compute: int, *rest: int,
) -> None:  # fmt: skip
    """cublasGemmEx for C = A B in row-major order: A is its right operand. Asserts that sums of integers are exact."""

    def matrix(at: int, rows: int, cols: int, ld: int, dtype: Any) -> np.ndarray:
        size = ((rows - 1) * ld + cols) * np.dtype(dtype).itemsize
        flat = np.frombuffer((ctypes.c_char * size).from_address(at), dtype)
        return np.lib.stride_tricks.as_strided(flat, (rows, cols), (ld * flat.itemsize, flat.itemsize))

    words, products, exact = TYPES[type_a, type_c]
    assert type_a == type_b and compute == COMPUTE[type_a, type_c]
    x = matrix(a, m, k, lda, words) if op_a == 0 else matrix(a, k, m, lda, words).T
    y = matrix(b, k, n, ldb, words) if op_b == 0 else matrix(b, n, k, ldb, words).T
    if not np.iscomplexobj(x) and all((each == np.rint(each)).all() for each in (x, y)):
        x, y = x.astype(np.float64), y.astype(np.float64)
        slices = max(abs(x).max(), abs(y).max()) <= exact  # else large floats of a native product
        assert not slices or (abs(x) @ abs(y)).max() <= exact
    matrix(c, m, n, ldc, products)[:] = x @ y


def on_current_stream(function: Any) -> Any:
    """The function run on the current stream, as CuPy runs cuBLAS; its attribute `used` lists the streams of calls."""
    used: list[int] = []

    def call(*arguments: int) -> None:
        gpus.check("a handle of cuBLAS", arguments[0])
        gpus.check("an operand of cuBLAS", *map(gpus.device_of, arguments))
        used.append(current().ptr)
        give(streams.own(), lambda: function(*arguments))

    vars(call)["used"] = used
    return call


TYPES = {
    (3, 10): ("int8", "int32", 2**31 - 1), (2, 0): ("float16", "float32", 2**24), (1, 1): ("f8", "f8", 2**53),
    (0, 0): ("f4", "f4", 2**24), (4, 4): ("c8", "c8", 2**24), (5, 5): ("c16", "c16", 2**53),
}  # fmt: skip
"""Dtypes of operands and products and the largest exact sum of integers, by numbers of cudaDataType_t (A's, C's)."""

COMPUTE = {(3, 10): 72, (2, 0): 68, (1, 1): 70, (0, 0): 69, (4, 4): 69, (5, 5): 70}
"""Numbers of cublasComputeType_t, by numbers of cudaDataType_t (A's, C's); the one of float32 never takes TF32."""


def gemm_strided(
    handle: int, op_b: int, op_a: int, n: int, m: int, k: int, one: int, b: int, type_b: int, ldb: int, step_b: int,
    a: int, type_a: int, lda: int, step_a: int, zero: int, c: int, type_c: int, ldc: int, step_c: int, count: int,
    compute: int, *rest: int,
) -> None:  # fmt: skip
    size, size_c = (np.dtype(x).itemsize for x in TYPES[type_a, type_c][:2])
    for i in range(count):
        at_a, at_b, at_c = a + size * i * step_a, b + size * i * step_b, c + size_c * i * step_c
        of_b, of_a, of_c = (at_b, type_b, ldb), (at_a, type_a, lda), (at_c, type_c, ldc)
        gemm_ex(handle, op_b, op_a, n, m, k, one, *of_b, *of_a, zero, *of_c, compute)


def install(capability: str) -> None:
    """Make `import cupy` give an emulated device of that compute capability; its kernels are built for the CPU."""
    Kernel.capability = Device.compute_capability = capability
    gpus.use(0)
    runtime = SimpleNamespace(
        getDevice=gpus.current,
        setDevice=gpus.use,
        getDeviceCount=lambda: gpus.COUNT,
        getDeviceProperties=lambda device: {"name": b"emulated device", "multiProcessorCount": 4},
        memsetAsync=memset,
        memcpyAsync=memcpy,
        memcpyPeerAsync=memcpy_peer,
        memcpy2DAsync=memcpy_2d,
        memcpyDefault=4,
        memGetInfo=lambda: (room[-1], room[-1]),
        deviceCanAccessPeer=lambda device, other: int(device != other),
        deviceEnablePeerAccess=lambda other: None,
        CUDARuntimeError=RuntimeError,
        memcpyDeviceToHost=2,
        memcpyHostToDevice=1,
        eventRecord=streams.record,
        streamWaitEvent=streams.wait_for,
        streamIsCapturing=lambda stream: False,
    )
    Device.attributes["MaxSharedMemoryPerMultiprocessor"] = {"80": 167936, "90": 233472}[capability]
    cublas = SimpleNamespace(
        gemmEx=on_current_stream(gemm_ex), gemmStridedBatchedEx=on_current_stream(gemm_strided), CUBLAS_OP_T=1,
        CUBLAS_OP_N=0, getMathMode=lambda handle: 0,
    )  # fmt: skip
    cuda = ModuleType("cupy.cuda")
    vars(cuda).update(
        MemoryPointer=Memory,
        Stream=Stream,
        Event=Event,
        Device=Device,
        runtime=runtime,
        cublas=cublas,
        driver=SimpleNamespace(),
        memory=SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {})),
        alloc=alloc,
        get_current_stream=current,
        device=SimpleNamespace(get_cublas_handle=gpus.current),
        alloc_pinned_memory=pinned,
    )
    cupy, linalg = ModuleType("cupy"), ModuleType("cupy.linalg")
    vars(linalg).update(
        {name: on_arrays(getattr(np.linalg, name)) for name in ("cholesky", "eigh", "inv", "qr", "solve", "svd")}
    )
    vars(cupy).update(
        {name: on_arrays(getattr(np, name)) for name in (
            "zeros", "full", "may_share_memory", "broadcast_to", "arange", "argmax", "argmin", "take_along_axis",
            "frexp", "where", "clip", "concatenate", "nonzero", "stack", "ldexp", "abs", "isfinite", "equal",
            "bitwise_and", "maximum", "minimum", "sign", "ascontiguousarray", "isinf", "isnan", "ones", "ones_like",
            "eye", "tri", "tril", "triu", "diag", "diagonal", "sqrt", "argsort", "matmul", "dot", "vdot", "inner",
            "tensordot", "einsum", "take", "lexsort",
        )},
        get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None),
        ndarray=ndarray, empty=empty_of_pool, asarray=as_array, asnumpy=as_numpy, cuda=cuda, linalg=linalg,
    )  # fmt: skip
    cupyx = ModuleType("cupyx.scipy.linalg")
    vars(cupyx).update({name: on_arrays(getattr(scipy.linalg, name)) for name in ("lu_factor", "solve_triangular")})
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda, "cupyx.scipy.linalg": cupyx})

    from ozaki.backends.cupy.program import compiling

    def kernel(file: str, function: str, **macros: str | int) -> Kernel:
        return _kernel(gpus.current(), file, function, tuple(sorted(macros.items())))

    mock.patch.object(compiling, "kernel", kernel).start()
    mock.patch.object(compiling, "compile_together", return_value=None).start()
    from ozaki.backends.cupy.program import driver

    mock.patch.object(driver, "launcher", Launcher).start()
    mock.patch.object(driver, "most_clusters", return_value=2).start()
    from ozaki.backends.cupy.program import calls

    mock.patch.object(calls, "block_of", _block_launched_later(calls.block_of)).start()


def memset(address: int, value: int, size: int, stream: int) -> None:
    """cudaMemsetAsync."""
    gpus.check("memory", gpus.device_of(address))
    give_to(stream, lambda: ctypes.memset(address, value, size))


def memcpy(to: int, address: int, size: int, kind: int, stream: int) -> None:
    """cudaMemcpyAsync."""
    gpus.check("memory", gpus.device_of(to), gpus.device_of(address))
    give_to(stream, lambda: ctypes.memmove(to, address, size))


def memcpy_peer(to: int, there: int, address: int, here: int, size: int, stream: int) -> None:
    """cudaMemcpyPeerAsync."""
    assert (gpus.device_of(to), gpus.device_of(address)) == (there, here)
    give_to(stream, lambda: ctypes.memmove(to, address, size))


def memcpy_2d(to: int, step_to: int, address: int, step: int, width: int, height: int, kind: int, stream: int) -> None:
    """cudaMemcpy2DAsync, between devices."""
    assert kind == 4 and width <= min(step_to, step) and {gpus.device_of(to), gpus.device_of(address)} <= {0, 1}

    def copied() -> None:
        for row in range(height):
            ctypes.memmove(to + row * step_to, address + row * step, width)

    give_to(stream, copied)


room: list[int] = [2**33]
"""Bytes that devices say they have left, the last one."""


class Pinned(np.ndarray):
    """Pinned host memory, with its address."""

    @property
    def ptr(self) -> int:
        return int(self.__array_interface__["data"][0])

    def __bool__(self) -> bool:
        """True, as for CuPy's object, which has no length."""
        return True


def pinned(size: int) -> Pinned:
    """cupy.cuda.alloc_pinned_memory; what is freed is overwritten at once, as its next owner may, before any stream."""
    values = np.full(size, 0xA5, np.uint8)
    owner: Any = (ctypes.c_char * size).from_address(values.ctypes.data)
    weakref.finalize(owner, _reused, values).atexit = False
    return np.frombuffer(owner, np.uint8).view(Pinned)


def _reused(values: np.ndarray) -> None:
    streams.freed.append(values)  # streams may still have to copy into it
    values.fill(0xA5)


def _block_launched_later(block_of: Any) -> Any:
    """`block_of` with blocks that launch when their stream reaches them, with the arguments of the time of the call."""

    def new(kernel: Any) -> Any:
        block = block_of(kernel)
        (pieces, launcher), device = block, gpus.current()

        def later(stream: int) -> None:
            assert gpus.has_context(), "CUDA_ERROR_INVALID_CONTEXT"
            gpus.check(f"the kernel {kernel.function}", device)
            gpus.check(f"an argument of {kernel.function}", *(gpus.device_of(pieces[i]) for i in kernel.addresses))
            give_to(stream, partial(launcher.start, pieces, type(pieces).from_buffer_copy(pieces)))

        return block._replace(start=later)

    return new
