"""The operators `ozaki::matmul` and `ozaki::addmm` of PyTorch: kernels, shapes, gradients, vmap.

Options are arguments of types that operators have: an accuracy is a text (`text_of`). Kernels run on CPUs and CUDA
devices by `ozaki.matmul` and `ozaki.gemm`, on views of the tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_type_hints

import torch

from ozaki.caches import cached
from ozaki.call.halves import half_asked, half_by_default
from ozaki.driver.watching import named
from ozaki.functions.products import gemm
from ozaki.functions.products import matmul as multiply
from ozaki.interchange.halves import EIGHT_BITS
from ozaki.records.accuracy import Accuracy
from ozaki.records.options import AccuracyOptions, Options
from ozaki.records.shapes import shapes
from ozaki.schemes import Words

LIBRARY = torch.library.Library("ozaki", "DEF")

_TYPES = {
    Accuracy | str | float | None: "str",
    str | Words: "str",
    str: "str",
    bool: "bool",
    bool | None: "bool?",
    int | None: "int?",
}
"""What each type of an option is as an argument of an operator."""

_NAMES = [name for name in Options._fields if name in AccuracyOptions.__optional_keys__]
"""The options that the operators have, in their order, `accuracy` first."""

_ARGUMENTS = ", ".join(f"{_TYPES[get_type_hints(Options)[name]]} {name}" for name in _NAMES)

LIBRARY.define(f"matmul(Tensor a, Tensor b, {_ARGUMENTS}) -> Tensor")
LIBRARY.define(f"addmm(Tensor c, Tensor a, Tensor b, Scalar beta, Scalar alpha, {_ARGUMENTS}) -> Tensor")


def arguments_of(options: Options) -> tuple[Any, ...]:
    """Options as the arguments of the operators."""
    return text_of(options.accuracy), *(getattr(options, name) for name in _NAMES[1:])


def text_of(accuracy: Accuracy | str | float | None) -> str:
    """An accuracy as the argument of an operator: "fp64" itself, "bits=60", "tolerance=1e-20", "" for none."""
    if accuracy is None or isinstance(accuracy, str):
        return accuracy or ""
    if isinstance(accuracy, Accuracy):
        return f"accuracy={accuracy.measure},{accuracy.tolerance!r},{accuracy.exponent}"
    if isinstance(accuracy, bool):
        raise TypeError("accuracy: a bool; expected a name, a number of bits or a tolerance")
    if hasattr(accuracy, "__index__"):
        return f"bits={int(accuracy)}"
    return f"tolerance={float(accuracy)!r}"


@cached(256)
def _accuracy(text: str) -> Accuracy | str | float | None:
    """The accuracy of a text that `text_of` made."""
    kind, equals, value = text.partition("=")
    if not equals or kind not in ("bits", "tolerance", "accuracy"):
        return text or None
    if kind == "accuracy":
        measure, tolerance, exponent = value.split(",")
        named: Any = measure  # `Accuracy` refuses what is no measure
        return Accuracy(named, float(tolerance), exponent=int(exponent))
    return int(value) if kind == "bits" else float(value)


def _options(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Options of `ozaki.matmul` of the arguments of an operator."""
    accuracy, *others = arguments
    return dict(zip(_NAMES, (_accuracy(accuracy), *others), strict=True))


# Kernels -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def _matmul(a: Any, b: Any, *options: Any) -> Any:
    return multiply(a, b, **_options(options)).contiguous()  # compiled code counts on that


@torch.no_grad()
@named("addmm")
def _addmm(c: Any, a: Any, b: Any, beta: Any, alpha: Any, *options: Any) -> Any:
    sizes = shapes(tuple(a.shape), tuple(b.shape)).result
    if beta == 0:
        c = None
    else:
        try:
            c = c.expand(sizes)
        except RuntimeError:
            raise ValueError(f"c: shape {tuple(c.shape)}; expected {sizes}, or one that broadcasts to it") from None
    return gemm(alpha, a, b, beta, c, **_options(options)).contiguous()


for _device in ("CPU", "CUDA"):
    LIBRARY.impl("matmul", _matmul, _device)
    LIBRARY.impl("addmm", _addmm, _device)


# Shapes --------------------------------------------------------------------------------------------------------------


@torch.library.register_fake("ozaki::matmul", lib=LIBRARY)
def _shape_of_matmul(a: Any, b: Any, *options: Any) -> Any:
    torch._check(a.shape[-1] == b.shape[-2], lambda: f"b: shape {tuple(b.shape)} does not fit a of {tuple(a.shape)}")
    torch._check(a.device == b.device, lambda: f"b: lies on {b.device}, but a lies on {a.device}; move one of them")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=_dtype(a, b, options))


@torch.library.register_fake("ozaki::addmm", lib=LIBRARY)
def _shape_of_addmm(c: Any, a: Any, b: Any, beta: Any, alpha: Any, *options: Any) -> Any:
    return _shape_of_matmul(a, b, *options)


def _dtype(a: Any, b: Any, options: tuple[Any, ...]) -> torch.dtype:
    """The dtype of a product: that which both promote to; of 16-bit floats theirs, or float32 if options say so."""
    asked = Options(**_options(options))
    formats = [_counts_as(x.dtype) for x in (a, b)]
    half = half_asked(asked)[0] or half_by_default(formats, asked)
    if half is not None:
        of_half: torch.dtype = getattr(torch, half)
        return of_half
    found = torch.promote_types(*(getattr(torch, name) for name in formats))
    return torch.float32 if found in (torch.float16, torch.bfloat16) else found


def _counts_as(dtype: torch.dtype) -> str:
    """The format as which operands of a dtype are multiplied."""
    name = str(dtype).removeprefix("torch.")
    if name.startswith(EIGHT_BITS):
        return "bfloat16"  # which has all of these numbers
    return name if dtype.is_floating_point or dtype.is_complex else "float64"


def product(a: Any, b: Any, options: Sequence[Any]) -> Any:
    """The product of two stacks of matrices, with derivatives."""
    return (Product.apply if _transformed() else torch.ops.ozaki.matmul)(a, b, *options)


def sum_of_product(c: Any, a: Any, b: Any, beta: complex, alpha: complex, options: Sequence[Any]) -> Any:
    """Beta c + alpha a b, with derivatives."""
    return (SumOfProduct.apply if _transformed() else torch.ops.ozaki.addmm)(c, a, b, beta, alpha, *options)


def _transformed() -> bool:
    """Whether `torch.func` or forward derivatives are at work, which need the functions below.

    Else the operators, which know their gradients, are called at once: `torch.compile` does not take such functions,
    and they take longer than the launch of a small product.
    """
    if torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active():
        innermost = torch._C._functorch.peek_interpreter_stack().key()
        return bool(innermost != torch._C._functorch.TransformType.Functionalize)  # which takes operators alone
    return bool(torch.autograd.forward_ad._current_level >= 0)


# Derivatives and vmap ------------------------------------------------------------------------------------------------


class Product(torch.autograd.Function):
    """`ozaki::matmul` with its derivatives, which are products of the same options, also under `torch.func`."""

    @staticmethod
    def forward(a: Any, b: Any, *options: Any) -> Any:
        return torch.ops.ozaki.matmul(a, b, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, b, *ctx.options = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        wanted, options = ctx.needs_input_grad, ctx.options
        of_a = _gradient(grad, b.mH, a, options) if wanted[0] else None
        of_b = _gradient(a.mH, grad, b, options) if wanted[1] else None
        return of_a, of_b, *(None for _ in options)

    @staticmethod
    def jvp(ctx: Any, tangent_a: Any, tangent_b: Any, *_: Any) -> Any:
        a, b = ctx.saved_tensors
        terms = []
        if tangent_a is not None:
            terms.append(product(tangent_a, b, ctx.options))
        if tangent_b is not None:
            terms.append(product(a, tangent_b, ctx.options))
        return sum(terms[1:], start=terms[0])

    @staticmethod
    def vmap(info: Any, axes: tuple[Any, ...], a: Any, b: Any, *options: Any) -> tuple[Any, int]:
        return Product.apply(*_mapped_operands(axes[:2], a, b), *options), 0


class SumOfProduct(torch.autograd.Function):
    """`ozaki::addmm` with its derivatives."""

    @staticmethod
    def forward(c: Any, a: Any, b: Any, beta: Any, alpha: Any, *options: Any) -> Any:
        return torch.ops.ozaki.addmm(c, a, b, beta, alpha, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        c, a, b, ctx.beta, ctx.alpha, *ctx.options = inputs
        ctx.shape, ctx.dtype = c.shape, c.dtype
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        wanted, options = ctx.needs_input_grad, ctx.options
        of_c = _as(grad * _conjugate(ctx.beta), ctx.shape, ctx.dtype) if wanted[0] else None
        alpha = _conjugate(ctx.alpha)
        of_a = _gradient(grad, b.mH, a, options, alpha) if wanted[1] else None
        of_b = _gradient(a.mH, grad, b, options, alpha) if wanted[2] else None
        return of_c, of_a, of_b, None, None, *(None for _ in options)

    @staticmethod
    def jvp(ctx: Any, tangent_c: Any, tangent_a: Any, tangent_b: Any, *_: Any) -> Any:
        a, b = ctx.saved_tensors
        terms = []
        if tangent_a is not None:
            terms.append(ctx.alpha * product(tangent_a, b, ctx.options))
        if tangent_b is not None:
            terms.append(ctx.alpha * product(a, tangent_b, ctx.options))
        if tangent_c is not None:
            shape = (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
            terms.append((ctx.beta * tangent_c).expand(shape))
        return sum(terms[1:], start=terms[0])

    @staticmethod
    def vmap(
        info: Any, axes: tuple[Any, ...], c: Any, a: Any, b: Any, beta: Any, alpha: Any, *options: Any
    ) -> tuple[Any, int]:
        return SumOfProduct.apply(*_mapped_terms(info, axes[:3], c, a, b), beta, alpha, *options), 0


def _conjugate(factor: Any) -> Any:
    return factor.conjugate() if isinstance(factor, complex) else factor


def _gradient(left: Any, right: Any, of: Any, options: Sequence[Any], alpha: Any = 1) -> Any:
    """The gradient of an operand: alpha left right, summed along the axes along which the operand was broadcast.

    The inner dimension of one product runs over these axes, too, so that the sum is rounded once.
    """
    rank = max(left.dim(), right.dim()) - 2
    left, right = (x.reshape(*(1,) * (rank + 2 - x.dim()), *x.shape) for x in (left, right))
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    of_operand = (*(1,) * (rank + 2 - of.dim()), *of.shape[:-2])
    summed = [axis for axis in range(rank) if of_operand[axis] == 1 and batch[axis] != 1]
    if summed:
        kept = [axis for axis in range(rank) if axis not in summed]
        left = left.permute(*kept, rank, *summed, rank + 1).flatten(len(kept) + 1)
        right = right.permute(*kept, *summed, rank, rank + 1).flatten(len(kept), -2)
    if alpha == 1:
        found = product(left, right, options)
    else:
        found = sum_of_product(left.new_zeros(()), left, right, 0, alpha, options)
    return _as(found.reshape(of.shape), of.shape, of.dtype)


def _as(gradient: Any, shape: Any, dtype: torch.dtype) -> Any:
    """A gradient of an operand of this shape and dtype: summed along axes that were broadcast, real of a real one."""
    if gradient.is_complex() and not dtype.is_complex:
        gradient = gradient.real
    return gradient.sum_to_size(shape).to(dtype)


def _rank(x: Any, axis: int | None) -> int:
    """Axes of the batch of a stack of matrices, without the mapped one."""
    return int(x.dim()) - 2 - (axis is not None)


def _mapped(x: Any, axis: int | None, rank: int) -> Any:
    """A tensor whose mapped axis comes first, before a batch of `rank` axes and the two of a matrix."""
    if axis is None:
        return x
    x = x.movedim(axis, 0)
    return x.reshape(x.shape[0], *(1,) * (rank + 3 - x.dim()), *x.shape[1:])


def _mapped_operands(axes: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Operands of one product in place of those along a mapped axis."""
    rank = max(_rank(a, axes[0]), _rank(b, axes[1]))
    return _mapped(a, axes[0], rank), _mapped(b, axes[1], rank)


def _mapped_terms(info: Any, axes: Any, c: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Addend and operands of one product in place of those along a mapped axis."""
    rank = max(_rank(a, axes[1]), _rank(b, axes[2]))
    if axes[1] is None and axes[2] is None:  # one product for all addends
        a, axes = a.expand(info.batch_size, *a.shape), (axes[0], 0, None)
    return _mapped(c, axes[0], rank), _mapped(a, axes[1], rank), _mapped(b, axes[2], rank)


def _vmap_matmul(info: Any, axes: Any, a: Any, b: Any, *options: Any) -> tuple[Any, int]:
    return torch.ops.ozaki.matmul(*_mapped_operands(axes[:2], a, b), *options), 0


def _vmap_addmm(info: Any, axes: Any, c: Any, a: Any, b: Any, *others: Any) -> tuple[Any, int]:
    return torch.ops.ozaki.addmm(*_mapped_terms(info, axes[:3], c, a, b), *others), 0


# What the operators themselves know, which compiled code calls.
torch.library.register_autograd("ozaki::matmul", Product.backward, setup_context=Product.setup_context, lib=LIBRARY)
torch.library.register_autograd(
    "ozaki::addmm", SumOfProduct.backward, setup_context=SumOfProduct.setup_context, lib=LIBRARY
)
torch.library.register_vmap("ozaki::matmul", _vmap_matmul, lib=LIBRARY)
torch.library.register_vmap("ozaki::addmm", _vmap_addmm, lib=LIBRARY)
