"""Products of tensors with gradients."""

from __future__ import annotations

from typing import Any, Unpack

import torch

from ozaki.records.options import AccuracyOptions, Options, takes
from ozaki.records.prepared import Prepared
from ozaki.records.shapes import shapes
from ozaki.torch.operators import arguments_of, product, sum_of_product
from ozaki.torch.products import as_matrices, of_vectors


@takes(AccuracyOptions)
def matmul(a: Any, b: Any, **options: Unpack[AccuracyOptions]) -> Any:
    """Multiply two tensors, as `torch.matmul` does, to a named accuracy.

    Parameters
    ----------
    a : tensor, shape (..., m, k) or (k,), float32, float64, complex64 or complex128, on a CPU or a CUDA device
        The product of two of float16, or of bfloat16, is rounded once to that format; with an accuracy of more bits, as
        "fp32", it is float32. Floats of 8 bits count as bfloat16.
    b : tensor, shape (..., k, n) or (k,), on the same device
    **options
        As for `ozaki.matmul`; of `scheme` names alone. Products of gradients have the same.

    Returns
    -------
    tensor, shape (..., m, n), without m or n where that operand is a vector
        Of the dtype that both promote to. Its bound is that of `ozaki.matmul`.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        As `ozaki.matmul`; for tensors on two devices, or on others than CPUs and CUDA devices; for sparse and quantised
        ones.

    Examples
    --------
    >>> import torch, ozaki.torch
    >>> a = torch.eye(2, dtype=torch.float64, requires_grad=True)
    >>> ozaki.torch.matmul(a, 3 * a, accuracy="fp64").sum().backward()
    >>> a.grad
    tensor([[6., 6.],
            [6., 6.]], dtype=torch.float64)
    """
    asked = Options.of("matmul", options, AccuracyOptions)
    _check(a=a, b=b)
    try:
        c = product(*as_matrices(a, b), arguments_of(asked))
    except ValueError:
        shapes(tuple(a.shape), tuple(b.shape))  # if they are wrong, it says so of vectors, not of what became of them
        raise
    return of_vectors(c, a, b)


@takes(AccuracyOptions)
def bmm(a: Any, b: Any, **options: Unpack[AccuracyOptions]) -> Any:
    """Multiply two stacks of matrices, as `torch.bmm` does, to a named accuracy.

    Parameters
    ----------
    a, b : tensors, shapes (batch, m, k) and (batch, k, n)
    **options
        As of `matmul`.

    Returns
    -------
    tensor, shape (batch, m, n)

    Raises
    ------
    ValueError, TypeError
        As `matmul`; also for other shapes.

    Examples
    --------
    >>> import torch, ozaki.torch
    >>> ozaki.torch.bmm(torch.ones(4, 2, 3), torch.ones(4, 3, 1)).shape
    torch.Size([4, 2, 1])
    """
    _check(a=a, b=b)
    for name, x in (("a", a), ("b", b)):
        if x.dim() != 3:
            raise ValueError(f"{name}: shape {tuple(x.shape)}; expected three axes (use matmul for others)")
    if a.shape[0] != b.shape[0]:
        raise ValueError(f"b: {b.shape[0]} matrices, but a has {a.shape[0]}; expected as many")
    return matmul(a, b, **options)


@takes(AccuracyOptions)
def addmm(c: Any, a: Any, b: Any, *, beta: complex = 1, alpha: complex = 1, **options: Unpack[AccuracyOptions]) -> Any:
    """Compute beta c + alpha a b, as `torch.addmm` does; by exact slices rounded once (`ozaki.gemm`).

    Parameters
    ----------
    c : tensor of a shape that broadcasts to that of the product; not read where beta is 0
    a, b : tensors, shapes (..., m, k) and (..., k, n)
    beta, alpha : number
    **options
        As of `matmul`.

    Returns
    -------
    tensor, shape (..., m, n)

    Raises
    ------
    ValueError, TypeError
        As `ozaki.gemm`.

    Examples
    --------
    >>> import torch, ozaki.torch
    >>> x = torch.full((2, 2), 1e-20, dtype=torch.float64)
    >>> ozaki.torch.addmm(-2 * torch.ones_like(x), x + 1, torch.ones_like(x), accuracy="dd", reproducible=True)
    tensor([[0., 0.],
            [0., 0.]], dtype=torch.float64)
    """
    asked = Options.of("addmm", options, AccuracyOptions)
    _check(a=a, b=b, c=c)
    for name, x in (("a", a), ("b", b)):
        if x.dim() < 2:
            raise ValueError(f"{name}: shape {tuple(x.shape)}; expected a matrix or a stack of matrices")
    return sum_of_product(c, a, b, beta, alpha, arguments_of(asked))


def _check(**tensors: Any) -> None:
    """Refuse what are no dense tensors on one device, by the names of arguments.

    Raises
    ------
    TypeError, ValueError
    """
    device = None
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            remedy = " (ozaki.matmul takes prepared operands, without gradients)" if isinstance(x, Prepared) else ""
            raise TypeError(f"{name}: {type(x).__name__}; expected a torch tensor{remedy}")
        if x.layout is not torch.strided:
            raise TypeError(f"{name}: a tensor of layout {x.layout}; expected a dense one, as {name}.to_dense()")
        if x.dim() == 0 and name != "c":
            raise ValueError(f"{name}: a scalar; expected at least one dimension (multiply by a scalar with *)")
        if device is not None and x.device != device:
            raise ValueError(f"{name}: lies on {x.device}, but a lies on {device}; move one of them")
        device = x.device
