"""Which operators of PyTorch are matrix products, and how each is one; and those that multiply matrices inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


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


class Operator(NamedTuple):
    """How an operator is computed, and how many axes its operands have; the addend of a sum comes before them."""

    run: Callable[..., Any]
    axes: tuple[int, int]


PRODUCTS = {
    "mm": Operator(_mm, (2, 2)),
    "bmm": Operator(_mm, (3, 3)),
    "mv": Operator(_mm, (2, 1)),
    "dot": Operator(_mm, (1, 1)),
    "vdot": Operator(_vdot, (1, 1)),
    "addmm": Operator(_addmm, (2, 2)),
    "baddbmm": Operator(_addmm, (3, 3)),
    "addmv": Operator(_addmm, (2, 1)),
    "addbmm": Operator(_addbmm, (3, 3)),
}
"""Operators of aten that are matrix products; their variants that end in "_", and those with `out`, too."""


def fits(args: Any, out: Any, axes: tuple[int, int]) -> bool:
    """Whether the operands of a product are as PyTorch takes them: of one dtype, and of shapes that fit."""
    a, b = args[-2:]
    if (
        (a.dim(), b.dim()) != axes
        or any(x.dtype != a.dtype for x in args)
        or (out is not None and out.dtype != a.dtype)
    ):
        return False
    return _equal(a.shape[-1], b.shape[-min(axes[1], 2)]) and (axes[0] < 3 or _equal(a.shape[0], b.shape[0]))


def _equal(size: Any, other: Any) -> bool:
    """Whether two sizes are equal; of sizes without values, which tracers have, the operator that is traced says so."""
    equal = size == other
    return isinstance(equal, torch.SymBool) or bool(equal)


def as_matrices(a: Any, b: Any) -> tuple[Any, Any]:
    """The operands of a product as stacks of matrices: of a vector a row on the left, a column on the right."""
    return (a.unsqueeze(0) if a.dim() == 1 else a), (b.unsqueeze(-1) if b.dim() == 1 else b)


def of_vectors(c: Any, a: Any, b: Any) -> Any:
    """The product of what `as_matrices` made of a and b, without the axes that vectors got there."""
    if b.dim() == 1:
        c = c.squeeze(-1)
    return c.squeeze(-1 if b.dim() == 1 else -2) if a.dim() == 1 else c


INSIDE = {
    "_addmm_activation", "_cdist_forward", "_convolution", "_cudnn_attention_backward", "_cudnn_attention_forward",
    "_cudnn_rnn", "_cudnn_rnn_backward", "_efficient_attention_backward", "_efficient_attention_forward",
    "_euclidean_dist", "_flash_attention_backward", "_flash_attention_forward", "_foreach_mm", "_grouped_mm",
    "_int_mm", "_linalg_det", "_linalg_eigh", "_linalg_eigvals", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd",
    "_linear_cross_entropy_batch_chunked", "_mixed_dtypes_linear", "_native_multi_head_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_grouped_mm", "_scaled_grouped_mm_v2", "_scaled_mm", "_scaled_mm_v2", "_sparse_addmm",
    "_sparse_mm_reduce_impl", "_sparse_sparse_matmul", "_transformer_encoder_layer_fwd", "_trilinear",
    "_weight_int4pack_mm", "_weight_int8pack_mm", "cholesky", "cholesky_inverse", "cholesky_solve", "conv_tbc",
    "convolution", "convolution_backward", "geqrf", "gru", "linalg_cholesky_ex", "linalg_eig", "linalg_eigvals",
    "linalg_householder_product", "linalg_inv_ex", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_lstsq",
    "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_exp", "linalg_matrix_sqrth", "linalg_pinv",
    "linalg_polar", "linalg_qr", "linalg_solve_triangular", "linear", "lstm", "mkldnn_linear", "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward", "ormqr", "triangular_solve",
}  # fmt: skip
"""Operators that multiply matrices inside; the account names those that ran."""
