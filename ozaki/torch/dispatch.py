"""One entered block of `emulate`: the mode of PyTorch to which the operators of its code come."""

from __future__ import annotations

from functools import partial
from threading import current_thread, get_ident
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ozaki.account import Account
from ozaki.functions.products import gemm, matmul
from ozaki.interchange.tensors import TRACER
from ozaki.locks import Lock
from ozaki.process.blocks import Blocks
from ozaki.records.options import Options
from ozaki.torch.composed import COMPOSED, takes
from ozaki.torch.operators import arguments_of
from ozaki.torch.products import INSIDE, PRODUCTS, as_matrices, fits, of_vectors

_LAZY = tuple(getattr(torch._C.DispatchKey, name) for name in ("Conjugate", "Negative", "ZeroTensor"))
"""What applies lazy conjugates, negatives and zeros to the memory of tensors before a kernel reads it."""


class Settings(NamedTuple):
    """What `emulate` was asked for."""

    options: Options
    report: bool
    dtypes: tuple[torch.dtype, ...]


class Block(TorchDispatchMode):
    """One entered block.

    A mode belongs to a thread, and so sees the operators of all tasks of an event loop, and those of the threads in
    which autograd computes the gradients that this thread waits for. Only code whose context entered the block (or was
    made of one that did) is emulated; of gradients the code that waits for them, which is the code that last called an
    operator: `backward` calls some before it starts.

    Attributes
    ----------
    is_open : bool
        Whether the block has not ended.
    thread : int
        The thread that entered it.
    dtypes : tuple of torch.dtype
        Of the tensors whose products it emulates.
    """

    supports_higher_order_operators = True

    def __init__(self, settings: Settings, account: Account) -> None:
        super().__init__()
        self._settings, self._account = settings, account
        self._emulates = True
        self.dtypes = settings.dtypes
        self.is_open, self.thread, self._of_thread = True, get_ident(), current_thread()

    def start(self) -> None:
        """Put the block on the stack of modes of this thread."""
        with _LOCK.held:
            self.__enter__()
            _STARTED.append(self)
            for block in [block for block in _STARTED if not block._of_thread.is_alive()]:  # whose stack is gone
                block._hand_over()

    def stop(self) -> None:
        """Take the block, which is the last one, off the stack of modes of this thread."""
        with _LOCK.held:
            self._hand_over()
            self.__exit__(None, None, None)

    def _hand_over(self) -> None:
        """Leave `_STARTED`, and to the block that began next what PyTorch noted when this one did.

        PyTorch notes for all threads at once whether there are modes (`torch.compile` then runs programs as they are).
        A mode that ends writes what was noted when it began: wrong, where another one has begun since and lasts. It is
        that one which has to write so.
        """
        place = _STARTED.index(self)
        for later in _STARTED[place + 1 : place + 2]:
            for name in [name for name in vars(self) if name.startswith("old_")]:
                before, since = vars(self)[name], vars(later)[name]
                before[0], since[0] = since[0], before[0]
        del _STARTED[place]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        if get_ident() == self.thread:
            self._emulates = self in ENTERED.here()
        # PyTorch excludes these keys while a mode runs, so that kernels which conjugate lazily inside (`linalg_pinv`)
        # would read the memory as it is.
        excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(_LAZY[0])  # all of them, or none
        if excluded:
            for key in _LAZY:
                torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        try:
            return (self._emulated if self._emulates else _as_it_is)(func, args, kwargs or {})
        finally:
            if excluded:
                for key in _LAZY:
                    torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)

    def _emulated(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator of the block's own code."""
        if isinstance(func, torch._ops.HigherOrderOperator):  # as torch.cond, which calls functions
            self._account.leave(func.name(), "its products are inside")
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        known = func.namespace == "aten" and func._overloadname in ("default", "out")
        product = PRODUCTS.get(name.removesuffix("_")) if known else None
        if product is None:
            return self._other(func, name, args, kwargs)
        traced = torch._C._get_dispatch_mode(TRACER) is not None
        out, reason = kwargs.get("out"), self._obstacle(args, kwargs, traced)
        if reason:
            self._account.leave(name, reason)
            return func(*args, **kwargs)
        if not fits(args, out, product.axes):
            return func(*args, **kwargs)  # which raises PyTorch's own error
        factors = {key: value for key, value in kwargs.items() if key != "out"} if kwargs else kwargs
        with torch.no_grad():
            found = product.run(partial(self._traced if traced else self._product, name), *args, **factors)
            if name.endswith("_"):
                return args[0].copy_(found)
            if out is None:
                return found
            if out.shape != found.shape:
                out.resize_(found.shape)
            return out.copy_(found)

    def _other(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Run an operator that is no product: in inference mode those that are made of others are taken apart here."""
        nested = any(isinstance(x, torch.Tensor) and x.is_nested for x in args)
        if torch.is_inference_mode_enabled() and func.namespace == "aten" and not nested:
            with self:
                if name in COMPOSED and func._overloadname == "default":
                    found = _composed(name, func.decompose, *args, **kwargs)
                else:
                    found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        if name in INSIDE:
            self._account.leave(name, "its products are inside")
        return func(*args, **kwargs)

    def _obstacle(self, args: Any, kwargs: dict[str, Any], traced: bool) -> str:
        """Why a product is left to PyTorch; empty if it is not."""
        if traced and not isinstance(self._settings.options.scheme, str):
            return "traced, where only a scheme with a name can be written down"
        for x in args if "out" not in kwargs else (*args, kwargs["out"]):
            if not isinstance(x, torch.Tensor):
                continue
            if x.dtype not in self.dtypes:
                return f"dtype {x.dtype}".replace("torch.", "")
            if type(x) not in (torch.Tensor, torch.nn.Parameter) and not (traced and _stands_for_another(x)):
                return type(x).__name__
            if x.layout is not torch.strided or x.is_nested:
                return "a nested tensor" if x.is_nested else f"layout {x.layout}".replace("torch.", "")
            if not (x.is_cpu or x.is_cuda):
                return f"device {x.device.type}"
        return ""

    def _product(self, name: str, a: Any, b: Any, alpha: Any = 1, beta: Any = 0, c: Any = None) -> Any:
        """Alpha a b + beta c, entered in the account."""
        if c is None and alpha == 1:
            run = partial(matmul, a, b, **self._settings.options._asdict())
        else:
            run = partial(gemm, alpha, a, b, beta, c, **self._settings.options._asdict())
        return self._account.multiply(name, a, b, run, self._settings.report)

    def _traced(self, name: str, a: Any, b: Any, alpha: Any = 1, beta: Any = 0, c: Any = None) -> Any:
        """Alpha a b + beta c by an operator that a tracer writes down, as it does not what the library computes."""
        self._account.trace(name)
        left, right = as_matrices(a, b)
        if c is None and alpha == 1:
            found = torch.ops.ozaki.matmul(left, right, *arguments_of(self._settings.options))
        else:
            c = left if c is None else c.unsqueeze(-1) if b.dim() == 1 else c  # any, of which beta = 0 reads nothing
            found = torch.ops.ozaki.addmm(c, left, right, beta, alpha, *arguments_of(self._settings.options))
        return of_vectors(found, a, b)


_STARTED: list[Block] = []
"""The blocks on the stacks of all threads, the first one first."""

_LOCK = Lock()

ENTERED: Blocks[Block] = Blocks("ozaki.torch.emulate")
"""The blocks that the running code is in."""


_COMPOSED_KEY = "PythonTLSSnapshot"
"""Of kernels that run before all others where modes are at work: after them PyTorch takes such functions apart."""

_AFTER_IT = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, _COMPOSED_KEY))

_LIBRARY = torch.library.Library("aten", "IMPL")


def _composed(name: str, below: Any, x: Any, *others: Any, **named: Any) -> Any:
    """Run a function that PyTorch takes apart, as `COMPOSED` does if a block has the products of tensors like x."""
    if takes(x) and any(x.dtype in block.dtypes for block in ENTERED.here()):
        return COMPOSED[name](below, x, *others, **named)
    return below(x, *others, **named)


def _of_keys(name: str, keys: Any, *args: Any) -> Any:
    """The same as a kernel of PyTorch.

    Where modes would see the function, as in inference mode, it is taken apart here: PyTorch 2.11 demands that
    they be reached by its own kernel, in whose place this one is.
    """
    function, keys = getattr(torch.ops.aten, name).default, keys & _AFTER_IT
    seen = keys.highestPriorityTypeId() in (torch._C.DispatchKey.Python, *_LAZY)
    return _composed(name, function.decompose if seen else partial(function.redispatch, keys), *args)


for _name in COMPOSED:
    _LIBRARY.impl(_name, partial(_of_keys, _name), _COMPOSED_KEY, with_keyset=True)


def _as_it_is(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator of code outside the block."""
    return func(*args, **kwargs)


def _stands_for_another(x: Any) -> bool:
    """Whether a tensor is one of those that tracers pass through a program."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(x, FakeTensor | FunctionalTensor)
