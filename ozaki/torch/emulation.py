"""`emulate`: the matrix products of all code inside a `with` block, through `ozaki`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar, Unpack

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ozaki.account import Account
from ozaki.call.halves import ACCURACIES, half_asked, half_by_default
from ozaki.functions.decorating import decorated
from ozaki.planning.asking import check_alone
from ozaki.records.accuracy import Accuracy
from ozaki.records.formats import HALVES
from ozaki.records.options import MethodOptions, Options, takes
from ozaki.torch.dispatch import ENTERED, Block, Settings

_Function = TypeVar("_Function", bound=Callable[..., Any])

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Dtypes of tensors whose products are emulated unless others are asked for."""


@takes(MethodOptions)
def emulate(
    accuracy: Accuracy | str | float | None = None,
    *,
    report: bool = False,
    dtypes: tuple[torch.dtype, ...] | None = None,
    **options: Unpack[MethodOptions],
) -> Emulation:
    """Send every matrix product of the code inside a `with` block through `ozaki`.

    These are the products of `@`, `torch.matmul`, `mm`, `bmm`, `addmm`, `einsum`, `tensordot`, `linear`, `torch.linalg`
    and of gradients: whatever dispatches to an operator that is a matrix product (`PRODUCTS`). Other operators multiply
    matrices inside, where nobody can reach them: attention, convolutions, factorisations, and the functions that
    `torch.cond` and its like call, which PyTorch 2.6 and 2.7 refuse inside. They run as they are, and the account names
    those that are known (`INSIDE`). It holds for the thread that enters the block, in an event loop for the task that
    does and those that it makes, and for gradients. When the block ends, everything is as before.

    What a tracer writes down inside (`make_fx`, `torch.func.linearize`) are products of the library with these options,
    for as long as the graph lives.

    Parameters
    ----------
    accuracy, **options
        As for `ozaki.matmul`, of each product.
    report : bool
        Prove a bound for every product, for the account: it takes a pass over the operands of each, and on a GPU waits
        for it.
    dtypes : tuple of torch.dtype
        Only products of tensors of these dtypes are emulated. Default: float32, float64, complex64 and complex128; with
        accuracy="bf16" or "fp16" those of that format alone, each rounded once to it: the bits of a row of the left
        operand then depend neither on the batch nor on the device. Without an accuracy torch.bfloat16 and torch.float16
        may be named, too, beside others.

    Returns
    -------
    Emulation
        The context manager, whose `account` says what ran.

    Raises
    ------
    ValueError, TypeError
        For options that are wrong for every product, and dtypes whose products would have another dtype with these
        options; others from the products, as `ozaki.matmul` raises them.

    Notes
    -----
    Attention is products of its own where PyTorch takes it apart: where a program writes it so, and in
    `torch.nn.functional.scaled_dot_product_attention` within `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`. PyTorch
    multiplies float32 there, also of 16-bit tensors, unless
    `torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)` was called, on CPUs too. A block inside of another
    one leaves what it does not emulate to that one: `emulate(accuracy="exact", dtypes=(torch.float32,))` around one of
    accuracy="bf16" takes these products, and all others of float32, each the exact one rounded once.

    Examples
    --------
    >>> import torch, ozaki.torch
    >>> layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    >>> with ozaki.torch.emulate(accuracy="fp64", report=True) as run:
    ...     layer(torch.ones(4, 3, dtype=torch.float64)).sum().backward()
    >>> [(entry.operator, entry.shape, entry.count) for entry in run.account.entries]
    [('addmm', (4, 3, 2), 1), ('mm', (2, 4, 3), 1)]
    """
    asked = Options.of("emulate", options, MethodOptions)._replace(accuracy=accuracy)
    half, _ = half_asked(asked)
    if half is None:
        check_alone(asked)
    if dtypes is None:
        dtypes = DTYPES if half is None else (getattr(torch, half),)
    else:
        _check_dtypes(dtypes, half, asked)
    return Emulation(Settings(asked, report, tuple(dtypes)))


def _check_dtypes(dtypes: Any, half: str | None, options: Options) -> None:
    """Refuse dtypes that no product has, or of which it would have another one with these options.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(dtypes, tuple | list) or not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
        raise TypeError(f"dtypes: {dtypes!r}; expected a tuple of dtypes of torch, as (torch.bfloat16,)")
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        if dtype not in DTYPES and name not in HALVES:
            raise TypeError(f"dtypes: {dtype}; expected dtypes of 16-bit or longer floats, or of complex numbers")
        if half is not None and name != half:
            raise ValueError(
                f"dtypes: {dtype}, but accuracy={options.accuracy!r} is of {half} alone; omit dtypes, and give others "
                "a block of their own around this one"
            )
        if half is None and name in HALVES and half_by_default((name, name), options) is None:
            raise ValueError(
                f"dtypes: {dtype}, whose products would be float32 with these options; use accuracy="
                f"{next(each for each, of in ACCURACIES.items() if of == name)!r}, without scheme, or omit {dtype}"
            )


class Emulation:
    """What `emulate` returns: within it, products run through `ozaki`.

    It may be entered several times, also at once, and decorates functions: each call is a block.

    Attributes
    ----------
    account : Account
        What ran how, and what was left to PyTorch, in all its blocks.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._blocks: list[Block] = []  # those that have not ended
        self.account = Account()

    def __str__(self) -> str:
        return str(self.account)

    def __enter__(self) -> Emulation:
        block = Block(self._settings, self.account)
        block.start()
        self._blocks.append(block)
        ENTERED.enter(block)
        return self

    def __exit__(self, *error: Any) -> None:
        block = self._to_end()
        self._blocks.remove(block)
        block.is_open = False
        ENTERED.here()  # which drops it
        # PyTorch takes modes off its stack from the top alone: a block that ends while one that another task entered
        # later lasts only stops emulating, and leaves the stack with that one.
        while isinstance(top := _get_current_dispatch_mode(), Block) and not top.is_open:
            top.stop()

    def _to_end(self) -> Block:
        """The block that ends: the last one of this context, or, where another one ends it, of this thread.

        Raises
        ------
        RuntimeError
            If another thread entered it.
        """
        here = [block for block in self._blocks if block.thread == get_ident()]
        if not here:
            raise RuntimeError("ozaki.torch.emulate: a block ends in a thread that did not enter it")
        entered = ENTERED.here()
        return next((block for block in reversed(here) if block in entered), here[-1])

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function, each of whose calls is then a block.

        Raises
        ------
        TypeError
            For a generator, whose code runs between the lines of its caller.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__}: a generator; expected a function (write the `with` block inside it)")
        return decorated(function, lambda: self)  # type: ignore[return-value]
