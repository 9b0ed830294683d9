"""`emulate`: the matrix products of all code inside a `with` block, through `ozaki`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ozaki._accuracy import Accuracy
from ozaki._api import gemm, matmul
from ozaki._choices import Choices
from ozaki.account import Account
from ozaki.planning.given import check_alone

aten = torch.ops.aten

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Dtypes of tensors whose products are emulated; others are left to PyTorch."""


def emulate(
    accuracy: Accuracy | str | float | None = None,
    *,
    report: bool = False,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    scheme: str = "auto",
    slices: int | None = None,
    engine: str = "auto",
    reproducible: bool = False,
    workspace_limit: int | None = None,
) -> Emulation:
    """Send every matrix product of the code inside a `with` block through `ozaki`.

    These are the products of `@`, `torch.matmul`, `mm`, `bmm`, `addmm`, `einsum`, `tensordot`, `linear`, `torch.linalg`
    and of gradients: whatever dispatches to an operator that is a matrix product (`PRODUCTS`). Other operators multiply
    matrices inside, where nobody can reach them: attention, convolutions, factorisations. They run as they are, and the
    account names those that are known (`INSIDE`). It holds for the thread that enters the block, and for gradients.
    When the block ends, everything is as before.

    Parameters
    ----------
    accuracy, scheme, slices, engine, reproducible, workspace_limit
        As for `ozaki.matmul`, of each product.
    report : bool
        Prove a bound for every product, for the account: it takes a pass over the operands of each, and on a GPU waits
        for it.
    dtypes : tuple of torch.dtype
        Only products of tensors of these dtypes are emulated. Default: float32, float64, complex64 and complex128.

    Returns
    -------
    Emulation
        The context manager, whose `account` says what ran.

    Raises
    ------
    ValueError, TypeError
        For choices that are wrong for every product; others from the products, as `ozaki.matmul` raises them.

    Examples
    --------
    >>> import torch, ozaki.torch
    >>> layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    >>> with ozaki.torch.emulate(accuracy="fp64", report=True) as run:
    ...     layer(torch.ones(4, 3, dtype=torch.float64)).sum().backward()
    >>> [(entry.operator, entry.shape, entry.count) for entry in run.account.entries]
    [('addmm', (4, 3, 2), 1), ('mm', (2, 4, 3), 1)]
    """
    choices = Choices(accuracy, scheme, slices, engine, reproducible, workspace_limit)
    check_alone(choices)
    return Emulation(choices._asdict(), report, dtypes)


class Emulation(TorchDispatchMode):
    """What `emulate` returns: within it, products run through `ozaki`.

    Attributes
    ----------
    account : Account
        What ran how, and what was left to PyTorch.
    """

    def __init__(self, options: dict[str, Any], report: bool, dtypes: tuple[torch.dtype, ...]) -> None:
        super().__init__()
        self._options, self._report, self._dtypes = options, report, dtypes
        self.account = Account()

    def __str__(self) -> str:
        return str(self.account)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        known = func.namespace == "aten" and func._overloadname in ("default", "out")
        product = PRODUCTS.get(name.removesuffix("_")) if known else None
        if product is None:
            return self._other(func, name, args, kwargs)
        out, reason = kwargs.get("out"), self._obstacle(args, kwargs)
        if reason:
            self.account.leave(name, reason)
            return func(*args, **kwargs)
        if not _fits(args, out, product.axes):
            return func(*args, **kwargs)  # which raises PyTorch's own error
        factors = {key: value for key, value in kwargs.items() if key != "out"} if kwargs else kwargs
        with torch.no_grad():
            found = product.run(partial(self._product, name), *args, **factors)
            if name.endswith("_"):
                return args[0].copy_(found)
            if out is None:
                return found
            if out.shape != found.shape:
                out.resize_(found.shape)
            return out.copy_(found)

    def _other(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Run an operator that is no product: in inference mode those that are made of others are taken apart here."""
        if func.namespace == "aten" and name in INSIDE:
            self.account.leave(name, "its products are inside")
        nested = any(isinstance(x, torch.Tensor) and x.is_nested for x in args)
        if torch.is_inference_mode_enabled() and func.namespace == "aten" and not nested:
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)

    def _obstacle(self, args: Any, kwargs: dict[str, Any]) -> str:
        """Why a product is left to PyTorch; empty if it is not."""
        for x in args if "out" not in kwargs else (*args, kwargs["out"]):
            if not isinstance(x, torch.Tensor):
                continue
            if x.dtype not in self._dtypes:
                return f"dtype {x.dtype}".replace("torch.", "")
            if type(x) not in (torch.Tensor, torch.nn.Parameter):
                return type(x).__name__
            if x.layout is not torch.strided or x.is_nested:
                return "a nested tensor" if x.is_nested else f"layout {x.layout}".replace("torch.", "")
            if not (x.is_cpu or x.is_cuda):
                return f"device {x.device.type}"
        return ""

    def _product(self, name: str, a: Any, b: Any, alpha: Any = 1, beta: Any = 0, c: Any = None) -> Any:
        """Alpha a b + beta c, entered in the account."""
        if c is None and alpha == 1:
            run = partial(matmul, a, b, **self._options)
        else:
            run = partial(gemm, alpha, a, b, beta, c, **self._options)
        return self.account.multiply(name, a, b, run, self._report)


def _mm(run: Any, a: Any, b: Any) -> Any:
    return run(a, b)


def _addmm(run: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    shape = (*a.shape[:-1], *b.shape[-1:]) if b.dim() > 1 else a.shape[:-1]
    return run(a, b, alpha, beta, None if beta == 0 else c.expand(shape))


def _addbmm(run: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """The sum of the products of two stacks: one product, whose inner dimension runs over the stack, too."""
    batch, m, k = a.shape
    a, b = a.movedim(0, 1).reshape(m, batch * k), b.reshape(batch * k, b.shape[-1])
    return _addmm(run, c, a, b, beta=beta, alpha=alpha)


def _vdot(run: Any, a: Any, b: Any) -> Any:
    return run(a.conj(), b)


class _Product(NamedTuple):
    """How an operator is computed, and how many axes its operands have; the addend of a sum comes before them."""

    run: Callable[..., Any]
    axes: tuple[int, int]


PRODUCTS = {
    "mm": _Product(_mm, (2, 2)),
    "bmm": _Product(_mm, (3, 3)),
    "mv": _Product(_mm, (2, 1)),
    "dot": _Product(_mm, (1, 1)),
    "vdot": _Product(_vdot, (1, 1)),
    "addmm": _Product(_addmm, (2, 2)),
    "baddbmm": _Product(_addmm, (3, 3)),
    "addmv": _Product(_addmm, (2, 1)),
    "addbmm": _Product(_addbmm, (3, 3)),
}
"""Operators of aten that are matrix products; their variants that end in "_", and those with `out`, too."""


def _fits(args: Any, out: Any, axes: tuple[int, int]) -> bool:
    """Whether the operands of a product are as PyTorch takes them: of one dtype, and of shapes that fit."""
    a, b = args[-2:]
    if (
        (a.dim(), b.dim()) != axes
        or any(x.dtype != a.dtype for x in args)
        or (out is not None and out.dtype != a.dtype)
    ):
        return False
    return bool(a.shape[-1] == b.shape[-min(axes[1], 2)] and (axes[0] < 3 or a.shape[0] == b.shape[0]))


INSIDE = {
    "_addmm_activation", "_scaled_dot_product_attention_math", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_mm", "_int_mm", "_trilinear", "cholesky_solve",
    "convolution", "convolution_backward", "linalg_cholesky_ex", "linalg_eig", "_linalg_eigh",
    "linalg_householder_product",
    "linalg_inv_ex", "linalg_ldl_factor_ex", "linalg_lstsq", "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve",
    "linalg_matrix_exp", "linalg_qr", "_linalg_solve_ex", "linalg_solve_triangular", "_linalg_svd", "lstm", "gru",
    "mkldnn_linear", "_sparse_addmm",
}  # fmt: skip
"""Operators that multiply matrices inside; the account names those that ran."""
