"""The public functions: check, then describe, plan, split, multiply, recombine, report."""

from __future__ import annotations

from typing import Any, Literal, overload

from ozaki._accuracy import Accuracy
from ozaki._call import Call, Prepared, Side, check_out, plan_for_shapes
from ozaki._operands import DTYPES, dtype_of, left_rows, right_rows, shapes
from ozaki._plan import Plan
from ozaki._report import Report
from ozaki.backends import backend_of


@overload
def matmul(a: Any, b: Any, *, accuracy: Accuracy | str | float | None = ..., scheme: str = ..., slices: int | None = ...,
           engine: str = ..., reproducible: bool = ..., out: Any = ..., workspace_limit: int | None = ...,
           plan: Plan | None = ..., return_report: Literal[False] = ...) -> Any: ...  # fmt: skip
@overload
def matmul(a: Any, b: Any, *, accuracy: Accuracy | str | float | None = ..., scheme: str = ..., slices: int | None = ...,
           engine: str = ..., reproducible: bool = ..., out: Any = ..., workspace_limit: int | None = ...,
           plan: Plan | None = ..., return_report: Literal[True]) -> tuple[Any, Report]: ...  # fmt: skip
def matmul(
    a: Any,
    b: Any,
    *,
    accuracy: Accuracy | str | float | None = None,
    scheme: str = "auto",
    slices: int | None = None,
    engine: str = "auto",
    reproducible: bool = False,
    out: Any = None,
    workspace_limit: int | None = None,
    plan: Plan | None = None,
    return_report: bool = False,
) -> Any:
    """Multiply two matrices, or stacks of them, to a named accuracy.

    Parameters
    ----------
    a : array, shape (..., m, k) or (k,), float32 or float64, NumPy or CuPy; or a `Prepared` left operand
    b : array, shape (..., k, n) or (k,), same library and device as `a`; or a `Prepared` right operand
    accuracy : Accuracy, str, int or float, optional
        "fp32", "fp64", "dd", "qd" or a number of bits b (componentwise, min(k, 4 sqrt(k)) 2**-b), a componentwise
        tolerance (float), or `Accuracy(measure, tolerance)`. Default: what the native product of the result's dtype
        gives, by whichever is fastest here; naming an accuracy demands its proof.
    scheme : {"auto", "digits", "digits7", "residues", "native"}
        How; "auto" takes the fewest slice products.
    slices : int, optional
        Number of digits or residues, instead of the plan's own choice; needs `scheme`.
    engine : str
        "auto"; on NumPy "float64" or "int8", on CuPy "cublas".
    reproducible : bool
        Rule out the native product, whose bits depend on machine and library.
    out : array, optional
        Of the result's shape and dtype; overwritten and returned.
    workspace_limit : int, optional
        Bytes of memory to hold beside operands and result; the product is computed in panels that fit.
    plan : Plan, optional
        Made by `plan` for such shapes; replaces all of the choices above.
    return_report : bool
        Return (c, report).

    Returns
    -------
    c : array, shape (..., m, n), in the operands' library, float64 if either operand is
    report : Report
        Only if asked for. A componentwise bound costs a pass over the data and, on a GPU, a synchronisation.

    Raises
    ------
    ValueError, TypeError
        Naming the argument, before anything is computed.

    Notes
    -----
    With tol the tolerance, u the unit roundoff of the result and C the exact product, componentwise:
    abs(c - C)_ij <= (tol + u (1 + tol)) (abs(a) abs(b))_ij, unless c over- or underflows (docs/bounds.md). Entries
    that NaN or Inf touch are as in IEEE arithmetic. The inputs are never modified.
    """
    call = Call(a, b)
    plan_given = plan is not None
    if plan is None:
        plan = call.plan(accuracy, scheme, slices, engine, reproducible, workspace_limit)
    else:
        if (accuracy, scheme, slices, engine, workspace_limit) != (None, "auto", None, "auto", None) or reproducible:
            raise ValueError("plan: a plan holds accuracy, scheme, slices, engine and workspace_limit; give one or the other")
        call.check_plan(plan)
    c = call.result(out)
    workspace = call.run(plan, c)
    returned = call.returned(c, out)
    return (returned, call.report(plan, workspace, given=plan_given)) if return_report else returned


def plan(
    a: Any,
    b: Any,
    *,
    accuracy: Accuracy | str | float | None = None,
    scheme: str = "auto",
    slices: int | None = None,
    dtype: str | None = None,
    engine: str = "auto",
    reproducible: bool = False,
    workspace_limit: int | None = None,
) -> Plan:
    """Choose scheme and slices for a product, without computing it.

    Parameters
    ----------
    a, b : arrays, or two shapes
        With arrays the data decides, and the bound speaks of these operands. With shapes (tuples of int) the plan is
        made a priori: its bound is in the row-column measure and holds for all operands of these shapes.
    dtype : str, optional
        "float32" or "float64", with shapes only.
    accuracy, scheme, slices, engine, reproducible, workspace_limit
        As for `matmul`.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError, TypeError
        Also for a componentwise target without data: it depends on the exponents inside rows and columns.
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        if dtype is None:
            raise ValueError("dtype: missing; a plan from shapes needs 'float32' or 'float64'")
        if str(dtype) not in DTYPES:
            raise TypeError(f"dtype: {dtype!r} is not supported; expected 'float32' or 'float64'")
        return plan_for_shapes(shapes(a, b), str(dtype), accuracy, scheme, slices, engine, reproducible, workspace_limit)
    if dtype is not None:
        raise ValueError("dtype: the operands have their own; give it with shapes only")
    return Call(a, b).plan(accuracy, scheme, slices, engine, reproducible, workspace_limit, full=True)


def prepare(x: Any, side: Side, plan: Plan) -> Prepared:
    """Split one operand once, for many products with the same plan.

    Parameters
    ----------
    x : array of the shape that the plan has for this side
    side : {"left", "right"}
    plan : Plan
        Not a native one.

    Returns
    -------
    Prepared
        It refers to `x`, which must not change while it is in use.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side: {side!r}; expected 'left' or 'right'")
    if plan.scheme is None:
        raise ValueError("plan: the native product has no slices to prepare; plan with reproducible=True")
    backend = backend_of(("x", x))
    x = backend.asarray(x)
    dtype = dtype_of("x", x)
    m, k, n = plan.shape
    expected = (m, k) if side == "left" else (k, n)
    if x.ndim < 2 or x.shape[-2:] != expected:
        raise ValueError(f"x: shape {x.shape} does not fit the {side} side of the plan; expected (..., {expected[0]}, {expected[1]})")
    other = (k, n) if side == "left" else (m, k)
    sizes = shapes(x.shape, other) if side == "left" else shapes(other, x.shape)
    rows = left_rows(x, sizes) if side == "left" else right_rows(x, sizes)
    return Prepared(side, plan, x.shape, dtype, backend.split(backend.describe(rows), side, plan), backend)


def gemm(
    alpha: float,
    a: Any,
    b: Any,
    beta: float,
    c: Any,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    out: Any = None,
    **options: Any,
) -> Any:
    """alpha op(a) op(b) + beta c, as BLAS has it.

    Parameters
    ----------
    alpha, beta : float
        With beta == 0, c is not read (it may hold NaN); with alpha == 0 or k == 0, a and b are not.
    a, b : arrays, shapes (m, k) and (k, n), or transposed where `trans_a`, `trans_b` say so
    c : array, shape (m, n), or None with beta == 0
        Not modified, unless given as `out` too.
    out : array, optional
    **options
        As for `matmul`, except `plan` made for op(a), op(b).

    Returns
    -------
    array, shape (m, n); with `return_report=True` also the Report, whose bound is that of op(a) op(b)

    Notes
    -----
    The product is rounded once; alpha times it, beta times c and their sum are rounded in the result's dtype.
    """
    backend = backend_of(("a", a), ("b", b), *((("c", c),) if c is not None else ()))
    a, b = backend.asarray(a), backend.asarray(b)
    op_a, op_b = (x.swapaxes(-1, -2) if t else x for x, t in ((a, trans_a), (b, trans_b)))
    return_report = options.pop("return_report", False)
    sizes = shapes(op_a.shape, op_b.shape)
    if c is None and beta != 0:
        raise ValueError(f"c: missing with beta = {beta}; expected an array of shape {sizes.result}, or beta = 0")
    if c is not None and tuple(c.shape) != sizes.result:
        raise ValueError(f"c: shape {c.shape} does not fit the product; expected {sizes.result}")
    product, report = matmul(op_a, op_b, return_report=True, **options) if return_report else (matmul(op_a, op_b, **options), None)
    if alpha != 1:
        product *= product.dtype.type(alpha)
    if beta != 0:
        product += backend.asarray(c).astype(product.dtype, copy=False) * product.dtype.type(beta)
    if out is not None:
        check_out(out, product.shape, str(product.dtype), backend)
        out[...] = product
        product = out
    return (product, report) if return_report else product
