"""Products: check, then ask, measure, choose, split, multiply, recombine, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Complex
from typing import Any, Literal, Unpack, overload

import numpy as np

from ozaki.backends import Backend, backend_of, repeated, repeated_at_once
from ozaki.call.halves import as_given, half_asked
from ozaki.call.operands import as_array, holds_complex
from ozaki.call.pair import Pair
from ozaki.devices.product import Functions
from ozaki.driver.computing import compute
from ozaki.driver.repeating import keep
from ozaki.driver.reporting import report
from ozaki.driver.settling import settled
from ozaki.driver.watching import Watched, named, watching
from ozaki.driver.works import Works
from ozaki.functions.on_devices import DevicesReport, multiply_on_devices
from ozaki.functions.plans import account, planned_for, prepare
from ozaki.interchange.calls import any_arrays
from ozaki.interchange.halves import HalfArray, as_bits, half_format_of, plain_halves
from ozaki.interchange.kinds import kind_of_class
from ozaki.multiprecision.numbers import Numbers
from ozaki.planning.checks import (
    check_plan_alone,
    check_report,
    check_transposition,
)
from ozaki.process.environment import default_environment
from ozaki.records.formats import HALVES
from ozaki.records.options import NONE_GIVEN, Options, ProductOptions, takes
from ozaki.records.plan import Chosen, Plan
from ozaki.records.prepared import Prepared
from ozaki.records.progress import SILENT, ProgressFunction, progress_of
from ozaki.records.report import AskedReport, Report, ReportKind, kinds_of


@overload
def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    plan: Plan | None = None,
    devices: None = None,
    progress: ProgressFunction | None = None,
    return_report: Literal[False] = False,
    **options: Unpack[ProductOptions],
) -> Any: ...
@overload
def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    plan: Plan | None = None,
    devices: None = None,
    progress: ProgressFunction | None = None,
    return_report: Literal[True] | ReportKind | tuple[ReportKind, ...],
    **options: Unpack[ProductOptions],
) -> tuple[Any, Report]: ...
@overload
def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    plan: Plan | None = None,
    devices: Any,
    progress: ProgressFunction | None = None,
    return_report: Literal[False] = False,
    **options: Unpack[ProductOptions],
) -> Any: ...
@overload
def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    plan: Plan | None = None,
    devices: Any,
    progress: ProgressFunction | None = None,
    return_report: Literal[True],
    **options: Unpack[ProductOptions],
) -> tuple[Any, DevicesReport]: ...
@takes(ProductOptions)
def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    plan: Plan | None = None,
    devices: Any = None,
    progress: ProgressFunction | None = None,
    return_report: AskedReport = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Multiply two matrices, or stacks of them, to a named accuracy.

    Parameters
    ----------
    a : array, shape (..., m, k) or (k,), or a `Prepared` left operand
        Float32, float64, complex64 or complex128, NumPy or CuPy, or an `MPArray`. A tensor of PyTorch or a concrete
        array of JAX is taken, too, and gives one. The product of two of bfloat16, or of float16, has that format;
        beside others, or where more bits are asked for, they count as float32. Floats of 8 bits count as bfloat16.
        Integers and bools, also in lists, count as float64, which must hold them; with `dtype`, or beside an `MPArray`,
        they may have any length.
        A matrix of mpmath or python-flint, or an array of numpy_quaddtype, counts as the `MPArray` of its numbers. What
        has a unit, labels, masked elements or another meaning beside its numbers is refused, with the word that makes
        numbers of it.
    b : array, shape (..., k, n) or (k,), same library and device as `a`; or a `Prepared` right operand
    out : array, optional
        Of the result's shape and dtype, where the operands lie; overwritten and returned. It may overlap an operand. A
        tuple of one array stands for that array, as in NumPy's ufuncs.
    accuracy : Accuracy, str, int or float, optional
        What has to be proven; the fastest here of the native product, slices and words that proves it runs.

        =========================================  ==================================================================
        "fp32", "fp64", "dd", "qd", a number of    componentwise, min(k, 4 sqrt(k)) 2**-b, at most 1/2
        bits b (int)
        "bf16", "fp16"                             componentwise 2**-8, 2**-11, of two operands of that format, rounded
                                                   once to it; a row has the same bits whatever rows are beside it
        a float below 1                            componentwise, that tolerance
        `Accuracy(measure, tolerance)`, or a       that measure and tolerance
        text as "relative:1e-12"
        "exact"                                    every bit, by residues or the slices that `scheme` names; a float
                                                   result is the exact one, correctly rounded
        =========================================  ==================================================================

        Default, by the result:

        =========================================  ==================================================================
        floats of 16 bits, of one format           "bf16" or "fp16"
        other floats                               the fastest of the native product, slices that prove "fp32" or
                                                   "fp64", and, for float32 on Hopper, words whose proven error is no
                                                   larger than the native product's
        dtype="int64"                              "exact"
        multiprecision, of integers                "exact": with dtype="mp" if an operand holds integers, or both are
                                                   whole numbers; else if integers or an `fmpz_mat` meet whole numbers
        multiprecision, of others                  the larger `bits` of the operands, at least 53
        =========================================  ==================================================================
    scheme : str or Words, optional
        What computes the product. "auto" chooses, among slices "digits" or "residues", whichever needs fewer slice
        products for this data. Products of slices, also of "digits7" and "fp16-digits", are added exactly and rounded
        once. "native" is the array library's own product. For float32 also low-precision words, whose products are
        added in floating point: "single-fp16", "single-bf16", "single-tf32", "markidis", "feng", "halfhalf",
        "tf32tf32", "double-fp16", "double-bf16", "triple-bf16", "fabsum-v1", "fabsum-v2", "two-stage", or
        `Words(...)`.
    slices : int, optional
        Number of digits or residues, instead of the plan's own choice; needs `scheme`.
    engine : str
        What multiplies slices; "auto" chooses. NumPy: "float64" multiplies integers as wide as float64 BLAS adds
        exactly; "int8", slower, the slices that a GPU multiplies. CuPy: "cublas", on every GPU, or "fused", this
        library's own kernels (compute capability 9.0); "hopper" is an old name of it.
    reproducible : bool
        Rule out the native product and words, whose bits depend on machine and library.
    inner_scaling : bool, optional
        Slice A S and S^-1 B in place of A and B, S a diagonal of powers of two (docs/definitions.md, 10): the product
        is the same, and where elements are graded along the inner dimension, as columns in other units are, fewer
        slices prove as much. None: where that is so, and no number of slices is named. True: in any case; it has bounds
        in the componentwise measure alone, and broadcast operands, words and multiprecision numbers are not scaled.
    verify : bool
        Check the product of integers that is rounded by random projections, so that a silent fault of memory or of a
        processor shows (docs/checking.md); `report.verified` counts them. Rules out the native product and words.
    workspace_limit : int, optional
        Most bytes of memory to hold at a time beside operands and result. Where more would be needed, the plan is
        proven and the product computed in panels that fit; the bits do not change. Not counted: what the array
        library takes for a native product, copies of 16-bit or lazily conjugated tensors of PyTorch and of 16-bit
        arrays of JAX, and on a GPU some 60 bytes for each row and column.
    dtype : str, optional
        The format of the result: "float32" or "float64" (of complex operands "complex64" or "complex128"), rounded
        once; "int64", exact; "mp" for an `MPArray` of as many bits as the accuracy asks for, "mp106" for one of 106,
        complex if an operand is; `numpy_quaddtype.QuadPrecDType()` for what is "mp113", or exact, rounded to quads.
        "bfloat16", "float16": as accuracy="bf16", "fp16". Default: that of the operands; of 16-bit ones float32 where
        another accuracy, a scheme, an engine, `inner_scaling` or `verify` is asked for, which those have not.
    plan : Plan, optional
        A plan that `ozaki.plan` made for these shapes; it replaces all of the options above but `dtype`. One made from
        other operands is first proven for these, and refused if it misses its accuracy, unless it has strict=False.
    devices : "all", int, "cuda:1", or a list of these, optional
        GPUs of this process that compute the product of two matrices by slices, with the bits of one (`reproducible` is
        True then): each some rows of the result, in blocks that its memory holds. Operands lie in memory of the host,
        memory maps too, or on any device; `a` may be a list of strips of rows, one for each device, and `b` one of
        strips of columns. The result lies in `out`, an array or a list of strips of rows, or where `a` lies. The call
        returns when it is complete; the report is a `DevicesReport`. Not with verify=True, inner_scaling=True, a
        `workspace_limit` or a narrower `dtype`, nor of 16-bit operands, which become float32 by `astype`. None: where
        the operands lie.
    progress : function of (done, total, unit), optional
        Called now and then from the thread of this call, at most ten times a second, and at the end with done == total:
        so many units of the product are done: "steps" (a slice product of parts of the operands, or their splitting or
        rounding), "tiles" of words, "rows" of a result of 16 bits, or, on a GPU, "launches", which the device may not
        have completed. Planning is not counted. A native product is one unit, "products", and so is one by the program
        of an earlier call.
        A product that is computed once more, for a relative accuracy, begins anew. What the function raises ends the
        product; `out` then may hold any of its own and of the product's entries.
    return_report : bool, "relative", "bounds", or a tuple of both
        Return (c, report). "relative": also prove the largest error of any entry relative to that entry itself,
        `report.relative_bound`. "bounds": also a bound of the error of each entry, `report.bounds`.

    Returns
    -------
    c : array, shape (..., m, n), without m or n where that operand is a vector, in the operands' library
        Its dtype is `dtype`; without, an `MPArray` if either operand is one, else the one that NumPy would give. The
        product of two vectors is a scalar of NumPy, or an array without axes of CuPy or of multiprecision.
    report : Report
        Only if asked for. A componentwise bound costs a pass over the data and, on a GPU, a synchronisation.

    Raises
    ------
    ValueError, TypeError
        For an argument that cannot be used, which the message names; before anything is computed. So for an integer
        that float64 does not hold, without `dtype`. Of an accuracy that cannot be proven for these elements, a call of
        CuPy arrays like an earlier one may know only after it has overwritten `out`.
    NotImplementedError
        For words on CuPy arrays, where the device's tensor cores are not those that the words' bound holds for.
    VerificationError
        With verify=True, if the product is wrong, and so is the one that is computed in its place.
    OverflowError
        With dtype="int64", if an entry does not fit; the message names it. A ValueError names one that is not whole.

    Notes
    -----
    With tol the tolerance, u the unit roundoff of the result and C the exact product, componentwise:
    abs(c - C)_ij <= (tol + u (1 + tol)) (abs(a) abs(b))_ij, unless c over- or underflows (docs/bounds.md); of a
    multiprecision result abs(c - C)_ij <= tol (abs(a) abs(b))_ij. Of complex operands abs is the complex modulus, and
    each part of c is rounded once. Entries that NaN or Inf touch are as in IEEE arithmetic: of complex operands each
    part is the sum of real products of parts. The inputs are never modified.

    On a GPU, a call with an a-priori plan or a given count (and no report) does not wait for the device. A CUDA graph
    can capture it with engine="fused" (CuPy lets none capture cuBLAS): call once before, on the same stream and with
    the same shapes, so that the kernels are compiled; give `out`; and let intermediate arrays come from a memory pool
    that nothing else uses while the graph lives, as `with cupy.cuda.using_allocator(cupy.cuda.MemoryPool().malloc)`.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, b = np.array([[1e16, 1.0, -1e16]]), np.ones((3, 1))
    >>> c, report = ozaki.matmul(a, b, accuracy="dd", return_report=True)
    >>> float(c[0, 0]), report.scheme, report.slices
    (1.0, 'residues', 28)
    """
    asked = Options.of("matmul", options) if options else NONE_GIVEN
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    if devices is None:
        looked = False
        if return_report is False and progress is None:
            looked, before = repeated_at_once(a, b, out, plan, asked)
            if before is not None:
                return _returned_before("matmul", a, b, out, asked, before)
        return _matmul(a, b, out, asked, plan, progress, return_report, looked)
    check_report(return_report)
    if plan is not None:
        check_plan_alone(plan, asked)
    half = half_asked(asked)[0] if plan is None else plan.dtype
    if half in HALVES:
        raise ValueError(
            f"devices: products rounded to {half} have no such option; omit it, or give a and b as float32 with "
            "accuracy='fp32'"
        )
    told = progress_of(progress)
    return multiply_on_devices(devices, a, b, out, asked, plan, bool(return_report), told, _FUNCTIONS, planned_for)


@any_arrays("a", "b", "out", halves=True)
@default_environment
def _matmul(
    a: Any,
    b: Any,
    out: Any,
    options: Options,
    plan: Plan | None,
    progress: ProgressFunction | None,
    return_report: AskedReport,
    looked: bool,
) -> Any:
    """Multiply arrays of NumPy or CuPy; `looked`: as of `_multiply`."""
    return _multiply(a, b, options, plan, out=out, return_report=return_report, progress=progress, looked=looked)


def _returned_before(name: str, a: Any, b: Any, out: Any, options: Options, before: tuple[Any, Chosen]) -> Any:
    """What the caller gets of a product by the program of an earlier call, which is logged and recorded."""
    c, chosen = before
    half = chosen.plan.dtype
    if out is None and half in HALVES and kind_of_class[type(c)] is None:
        c = as_given(c, half, (a, b))
    if watching():
        Watched(name, a, b, dtype=options.dtype).ran_before(chosen)
    return c


def _multiply(
    a: Any,
    b: Any,
    options: Options,
    plan: Plan | None = None,
    *,
    out: Any = None,
    return_report: AskedReport = False,
    terms: tuple[Any, Any, Any] | None = None,
    adjoint: bool = False,
    progress: ProgressFunction | None = None,
    copied: int = 0,
    looked: bool = False,
) -> Any:
    """The product, or with `terms`, alpha, beta and c, the expression alpha a b + beta c; arguments as of `matmul`.

    `adjoint` says that b is the conjugate transpose of a, in other memory; `copied` are the bytes of copies so far;
    `looked`, that the program of an earlier product like this was looked for in vain.
    """
    a, b = plain_halves(a), plain_halves(b)
    key: tuple[Any, ...] = plan, *options.key
    check_report(return_report)
    counter, name = SILENT if progress is None else progress_of(progress), "matmul" if terms is None else "gemm"
    if terms is None and not (return_report or looked) and (before := repeated(a, b, None, out, key)) is not None:
        if progress is not None:
            counter.end()
        return _returned_before(name, a, b, out, options, before)
    if plan is not None:
        check_plan_alone(plan, options)
    with np.errstate(all="ignore"):
        memory = account(options, plan)
        if copied:
            memory.hold_copy(copied)
        pair = Pair(a, b, memory, options, plan, out, terms, adjoint)  # check: two stacks of rows, and what is added
        watched = Watched(name, pair.left, pair.right, pair.combination, pair.asked) if watching() else None
        if terms is not None:  # a repeated call is known by what the factors are, and where the addend lies
            key = *key, pair.combination and pair.combination.factors, adjoint
            if not return_report and (before := repeated(*pair.given, key)) is not None:
                c, chosen = before
                c = pair.returned(c)
                if progress is not None:
                    counter.end()
                if watched is not None:
                    watched.ran_before(chosen)
                return c
        works = Works(pair, plan, counter, options.verify)
        try:
            found = settled(works, plan, bool(return_report))  # ask, measure what the plan depends on, choose
            if watched is not None:
                watched.chosen(found.chosen, found.question, found.facts)
            c = compute(works, found.plan)  # split, multiply, recombine
        except BaseException:
            works.release()
            raise
        reported = None
        if return_report:
            # Before the result overwrites an operand in `out`.
            reported = report(works, found, kinds_of(return_report), c)
        elif pair.backend.keep is not None:
            keep(works, found, key)
        c = pair.returned(c)
        if reported is not None:
            reported = replace(reported, workspace_bytes=memory.most)  # to return the result may have taken more
        if progress is not None:
            counter.end()
        if watched is not None:
            watched.ran(found.chosen, reported)
        return c if reported is None else (c, reported)


@named("matmul", solves=True)
def _multiply_block(a: Prepared, b: Prepared, plan: Plan) -> Any:
    """The product of some rows and columns of larger matrices, on the device where both lie."""
    return _multiply(a, b, NONE_GIVEN, plan)


@default_environment
def multiply_rearranged(
    a: Any, b: Any, given: Sequence[Any], options: Options, backend: Backend, progress: ProgressFunction | None
) -> Any:
    """The product of matrices that were made of the `given` operands by moving elements, as `matmul` computes it."""
    copied = sum(_copied_bytes(x, given, backend) for x in (a, b))
    return _multiply(a, b, options, progress=progress, copied=copied)


def _copied_bytes(x: Any, given: Sequence[Any], backend: Backend) -> int:
    """Bytes of an operand that does not lie in the memory of one of those that the caller gave; 0 of any other."""
    if isinstance(x, Prepared):
        return 0
    arrays = [as_bits(each) for each in given if isinstance(each, Numbers | HalfArray) or backend.owns(each)]
    moved = as_bits(x)
    return 0 if any(backend.overlap(moved, each) for each in arrays) else int(moved.nbytes)


@any_arrays("a", "b", "c", "out", halves=True)
@default_environment
@np.errstate(all="ignore")
@takes(ProductOptions)
def gemm(
    alpha: complex,
    a: Any,
    b: Any,
    beta: complex,
    c: Any,
    *,
    trans_a: bool | Literal["N", "T", "C"] = False,
    trans_b: bool | Literal["N", "T", "C"] = False,
    out: Any = None,
    plan: Plan | None = None,
    progress: ProgressFunction | None = None,
    return_report: AskedReport = False,
    **options: Unpack[ProductOptions],
) -> Any:
    """Compute alpha op(a) op(b) + beta c, as gemm of BLAS does; by exact slices rounded once.

    Parameters
    ----------
    alpha, beta : number
        With beta == 0, c is not read (it may hold NaN); with alpha == 0 or k == 0, a and b are not. A float result
        takes the nearest float64; a multiprecision expression the number itself, which must be a whole number times a
        power of two: an int, a float, such a Fraction, or one of mpmath, gmpy2 or python-flint. Of a complex product
        they may be complex; where a factor has an imaginary part, the product is rounded first. Those of a
        multiprecision expression are real.
    a, b : arrays, shapes (..., m, k) and (..., k, n), or prepared operands
        With `trans_a` or `trans_b` the last two axes are exchanged, with "C" of complex conjugates. Of a matrix times
        its own (conjugate) transpose one triangle is multiplied, by residues and unless something is added.
    c : array or `MPArray`, shape (..., m, n), or None with beta == 0
        Of the result's dtype or float32, or, with `dtype`, any that operands may have. Not modified, unless given as
        `out` too.
    trans_a, trans_b : bool or {"N", "T", "C"}
        Multiply the transpose of `a`, of `b` (True or "T"), its conjugate transpose ("C"), or the operand (False, "N").
    out : array, optional
        Of the result's shape and dtype; overwritten and returned. It may be `c`, or overlap an operand; then memory
        for the result is held beside it.
    plan, progress, return_report, **options
        As for `matmul`; a `plan` must be made for op(a) and op(b). They are those of the product; an `MPArray` as c
        makes the result one, of as many bits as if it were an operand.

    Returns
    -------
    array or MPArray, shape (..., m, n), for two vectors as in `matmul`; with `return_report=True` also the Report,
    whose `rounded_once` says what its bound is that of

    Raises
    ------
    ValueError, TypeError
        For an argument that cannot be used, which the message names, also a factor that the dtype does not hold; before
        anything is computed. For engine="fused" with digits, whose kernels round nothing but products.
    NotImplementedError, OverflowError
        As in `matmul`.

    Notes
    -----
    By residues and digits, D = alpha op(a) op(b) + beta c is one expression: with tol the tolerance of the accuracy, u
    the unit roundoff of the result, abs(d - D)_ij <= (1 + u) abs(alpha) tol (abs(a) abs(b))_ij + u abs(D_ij)
    componentwise, unless d over- or underflows. So `gemm(-1, a, x, 1, y, accuracy="dd")` is a residual with all its
    digits, and with accuracy="exact" D is correctly rounded (or, in multiprecision, exact). The native product and
    words are rounded first; alpha times them, beta times c and their sum are rounded in the result's dtype, and so are
    alpha and beta. `reproducible=True` rules these out. docs/definitions.md says what NaN and Inf give.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> a, x = np.array([[1.0, 1e-20], [0.1, 3.0]]), np.array([1.0, 1.0])
    >>> y = a @ x
    >>> y - a @ x, ozaki.gemm(-1, a, x, 1, y, accuracy="dd")
    (array([0., 0.]), array([-1.00000000e-20,  8.32667268e-17]))
    """
    asked = Options.of("gemm", options)
    a, b, c = plain_halves(a), plain_halves(b), plain_halves(c)
    backend = backend_of(("a", a), ("b", b), *((("c", c),) if c is not None else ()))
    op_a, op_b = _transposed("a", a, trans_a, backend), _transposed("b", b, trans_b, backend)
    one_adjoint = {trans_a, trans_b} in ({"C", "N"}, {"C", False})
    adjoint = one_adjoint and holds_complex(op_a) and backend.same_view(a, b)
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    copied = _copied_bytes(op_a, (a,), backend) + _copied_bytes(op_b, (b,), backend)
    split = isinstance(op_a, Prepared) or isinstance(op_b, Prepared) or plan is not None
    if isinstance(alpha, Complex) and alpha == 0 and not split:
        op_a, op_b = op_a[..., :0], op_b[..., :0, :] if op_b.ndim > 1 else op_b[:0]  # nothing to multiply
    return _multiply(
        op_a, op_b, asked, plan, out=out, return_report=return_report, terms=(alpha, beta, c), adjoint=adjoint,
        progress=progress, copied=copied,
    )  # fmt: skip


def _transposed(name: str, x: Any, op: bool | Literal["N", "T", "C"], backend: Backend) -> Any:
    """op(x) of `gemm`: an operand, a view of its transpose, or its conjugate transpose.

    Raises
    ------
    ValueError, TypeError
        If there is no such operation, or none of this operand.
    """
    check_transposition(f"trans_{name}", op)
    prepared = isinstance(x, Prepared)
    x = x if prepared or half_format_of(x) else as_array(name, x, backend)
    if not op or op == "N":
        return x
    if prepared or x.ndim < 2:
        what = "a prepared operand" if prepared else f"an operand of shape {x.shape}"
        raise ValueError(f"trans_{name}: {what} cannot be transposed; expected a matrix, or trans_{name}=False")
    return (x.conj() if op == "C" and holds_complex(x) else x).swapaxes(-1, -2)


_FUNCTIONS = Functions(_multiply_block, prepare)
"""What a product on several devices calls on each of them."""
