"""Functions that PyTorch takes apart into products, not always alike: within a block always in one way.

A batch of one sequence may be contiguous where one of several is not, and have other roundings then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _linear(below: Callable[..., Any], x: Any, weight: Any, bias: Any = None) -> Any:
    """The bias is part of a product, rounded once: of PyTorch only where x is contiguous, and no vector."""
    if bias is None or x.dim() == 0 or weight.dim() != 2:
        return below(x, weight, bias)
    return below(x.unsqueeze(0), weight, bias).squeeze(0) if x.dim() == 1 else below(x.contiguous(), weight, bias)


def _matmul(below: Callable[..., Any], a: Any, b: Any) -> Any:
    """Rows are those of a: of a matrix a that requires a gradient and a stack b PyTorch computes (bᵀ aᵀ)ᵀ."""
    if not 0 < a.dim() < 3 <= b.dim():
        return below(a, b)
    if a.dim() == 1:
        return _matmul(below, a.unsqueeze(0), b).squeeze(-2)
    return below(a.expand(*b.shape[:-2], *a.shape), b)


COMPOSED: dict[str, Callable[..., Any]] = {"linear": _linear, "matmul": _matmul}
"""How functions of aten are computed by what PyTorch does next with their arguments."""


def takes(x: Any) -> bool:
    """Whether an operand is a dense tensor, of which these functions are made of products."""
    return x.layout is torch.strided and not x.is_nested
