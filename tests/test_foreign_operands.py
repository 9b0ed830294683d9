"""Operands that are more than numbers are refused by every public function, with what makes numbers of them.

Classes of other libraries are stood for by classes of the same module, name and attributes: none has to be installed.
With those that are, the errors are the same (`test_real_libraries`).
"""

import gc
import importlib
import types
import weakref
from collections import deque
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np
import pytest

import ozaki
from ozaki import linalg, reference, tensor_core
from ozaki.interchange.classes import OfClasses

A = np.array([[4.0, 1.0], [1.0, 3.0]])
PLAN = ozaki.plan((2, 2), (2, 2), dtype="float64", scheme="residues", slices=14)
FACTORS = linalg.lu_factor(A)

FUNCTIONS = {
    "matmul a": (lambda x: ozaki.matmul(x, A), "a"),
    "matmul b": (lambda x: ozaki.matmul(A, b=x, accuracy="fp64"), "b"),
    "matmul out": (lambda x: ozaki.matmul(A, A, out=x), "out"),
    "matmul out, a tuple": (lambda x: ozaki.matmul(A, A, out=(x,)), "out"),
    "matmul a, mp": (lambda x: ozaki.matmul(x, A, dtype="mp"), "a"),
    "plan a": (lambda x: ozaki.plan(x, A), "a"),
    "plan b": (lambda x: ozaki.plan(A, x), "b"),
    "prepare": (lambda x: ozaki.prepare(x, "left", PLAN), "x"),
    "gemm a": (lambda x: ozaki.gemm(1, x, A, 0, None), "a"),
    "gemm b": (lambda x: ozaki.gemm(1, A, x, 0, None, trans_b=True), "b"),
    "gemm c": (lambda x: ozaki.gemm(1, A, A, 1, x), "c"),
    "gemm out": (lambda x: ozaki.gemm(1, A, A, 1, A, out=x), "out"),
    "residual a": (lambda x: ozaki.residual(x, A, A), "a"),
    "residual x": (lambda x: ozaki.residual(A, x, A), "x"),
    "residual b": (lambda x: ozaki.residual(A, A, x), "b"),
    "einsum": (lambda x: ozaki.einsum("ij,jk,kl", A, x, A), "operand 1"),
    "einsum of one": (lambda x: ozaki.einsum("ij->i", x), "operand 0"),
    "tensordot a": (lambda x: ozaki.tensordot(x, A, 1), "a"),
    "tensordot b": (lambda x: ozaki.tensordot(A, x, 1), "b"),
    "matrix_power": (lambda x: ozaki.matrix_power(x, 2), "a"),
    "mparray": (ozaki.mparray, "x"),
    "mparray, rounded": (lambda x: ozaki.mparray(x, bits=30), "x"),
    "MPArray @": (lambda x: ozaki.mparray(A).__matmul__(x), "b"),
    "exact_matmul": (lambda x: reference.exact_matmul(x, A), "a"),
    "exact_entries": (lambda x: reference.exact_entries(A, x, [0], [1]), "b"),
    "mpmath_matmul": (lambda x: reference.mpmath_matmul(A, x), "b"),
    **{
        f"{name} {argument}": (
            lambda x, name=name, place=place: getattr(reference, name)(*[A] * place, x, *[A] * (2 - place)),
            argument,
        )
        for name in (
            "componentwise_error", "componentwise_errors", "normwise_error", "relative_error", "relative_residual",
            "row_column_error",
        )
        for place, argument in enumerate("cab")
    },
    "mma": (lambda x: tensor_core.mma(A, x, 0), "b"),
    "round_to": (lambda x: tensor_core.round_to(x, "fp16"), "x"),
    "solve a": (lambda x: linalg.solve(x, A), "a"),
    "solve b": (lambda x: linalg.solve(A, x), "b"),
    "lu_solve": (lambda x: linalg.lu_solve(FACTORS, x), "b"),
    "lstsq a": (lambda x: linalg.lstsq(x, A), "a"),
    "lstsq b": (lambda x: linalg.lstsq(A, x), "b"),
    **{
        name: (getattr(linalg, name), "a") for name in ("inv", "lu_factor", "cholesky", "qr", "eigh", "eigvalsh")
    },
    "eigh b": (lambda x: linalg.eigh(A, x), "b"),
    "eigvalsh b": (lambda x: linalg.eigvalsh(A, x), "b"),
    **{name: (getattr(linalg, name), "a") for name in ("svd", "svdvals", "cond", "pinv")},
    **{name: (getattr(linalg, name), "a") for name in ("lq", "eig", "eigvals", "det", "slogdet", "expm")},
    "cho_solve b": (lambda x: linalg.cho_solve((A, True), x), "b"),
    "solve_triangular": (lambda x: linalg.solve_triangular(x, A), "a"),
    "solve_triangular b": (lambda x: linalg.solve_triangular(A, x), "b"),
    **{name: (partial(getattr(linalg, name), 1.0, b=A), "a") for name in ("trmm", "symm", "hemm")},
    "herk": (lambda x: linalg.herk(1.0, x), "a"),
    "syrk": (lambda x: linalg.syrk(1.0, x), "a"),
    "matrix_rank": (linalg.matrix_rank, "A"),
    "norm": (linalg.norm, "x"),
}  # fmt: skip


def test_every_public_function_with_arrays_is_among_them():
    named = {name.split()[0].rstrip(",") for name in FUNCTIONS}
    others = {"ascupy", "asnumpy"}  # of `MPArray`s alone
    others |= {"cache_info", "clear_caches", "emulate", "get_num_threads", "recording", "set_num_threads"}  # of none
    public = {name for name in ozaki.__all__ if isinstance(getattr(ozaki, name), types.FunctionType)}
    of_modules = {
        name for module in (linalg, reference) for name in module.__all__
        if isinstance(getattr(module, name), types.FunctionType)
    }  # fmt: skip
    assert (public - others) | of_modules | {"mma", "round_to"} <= named


def stand_in(module, name, base=object, **members):
    """A class of another library, as far as it matters: module, name, and members."""
    kind = type(name, (base,), {"__array__": lambda self, dtype=None, copy=None: A, **members})
    kind.__module__ = module
    return kind


def of_class(kind):
    return A.view(kind) if issubclass(kind, np.ndarray) else kind()


def call(*_, **__):
    raise AssertionError("called")


ufunc = {"__array_ufunc__": call}
FOREIGN = {
    "scipy.csr_array": (stand_in("scipy.sparse._csr", "csr_array", toarray=call, todense=call), "sparse", "toarray()"),
    "cupyx.csr_matrix": (stand_in("cupyx.scipy.sparse._csr", "csr_matrix", toarray=call), "sparse", "toarray()"),
    "sparse.COO": (stand_in("sparse.numba_backend._coo.core", "COO", todense=call, **ufunc), "sparse", "todense()"),
    "jax.BCOO": (stand_in("jax.experimental.sparse.bcoo", "BCOO", todense=call), "sparse", "todense()"),
    "pandas.DataFrame": (
        stand_in("pandas", "DataFrame", to_numpy=call, __dataframe__=call, **ufunc), "labels", "to_numpy()",
    ),
    "pandas.Series": (stand_in("pandas", "Series", to_numpy=call, get=call, **ufunc), "labels", "to_numpy()"),
    "polars.DataFrame": (stand_in("polars.dataframe.frame", "DataFrame", to_numpy=call), "labels", "to_numpy()"),
    "pyarrow.Table": (stand_in("pyarrow.lib", "Table", to_pandas=call, schema=None), "labels", "to_pandas().to_nu"),
    "xarray.DataArray": (
        stand_in("xarray.core.dataarray", "DataArray", to_numpy=call, compute=call, __dask_graph__=call, **ufunc),
        "labels", "to_numpy()",
    ),
    "xarray.Dataset": (
        stand_in("xarray.core.dataset", "Dataset", to_dataarray=call, coords=None), "labels",
        "to_dataarray().to_numpy()",
    ),
    "modin.Frame": (stand_in("modin", "Frame", __dataframe__=call), "labels", "numpy.asarray("),
    "astropy.Quantity": (
        stand_in("astropy.units.quantity", "Quantity", np.ndarray, unit="m", value=A, **ufunc), "unit", ".value",
    ),
    "pint.Quantity": (stand_in("pint", "Quantity", units="m", magnitude=A), "unit", ".magnitude"),
    "quantities.Quantity": (
        stand_in("quantities.quantity", "Quantity", np.ndarray, units="m", magnitude=A), "unit", ".magnitude",
    ),
    "unyt.unyt_array": (
        stand_in("unyt.array", "unyt_array", np.ndarray, to_value=call, value=A, **ufunc), "unit", ".value",
    ),
    "uncertainties.Variable": (
        stand_in("uncertainties.core", "Variable", nominal_value=1.0, std_dev=0.1), "uncertainty", "nominal_values(",
    ),
    "dask.Array": (stand_in("dask.array.core", "Array", compute=call, __dask_graph__=call, **ufunc), "not computed",
                   "compute()"),
    "astropy.MaskedNDArray": (
        stand_in("astropy.utils.masked.core", "MaskedNDArray", np.ndarray, unmasked=A, mask=A, filled=call, **ufunc),
        "masked", "filled(0)",
    ),
    "numpy.matrix": (np.matrix, "whose *", "numpy.asarray("),
    "mine.Info": (stand_in("mine", "Info", np.ndarray, __array_finalize__=lambda self, x: None), "more than numbers",
                  "numpy.asarray("),
    "mine.Own": (stand_in("mine", "Own", **ufunc), "more than numbers", "numpy.asarray("),
    "mine.Refusing": (stand_in("mine", "Refusing", __array_ufunc__=None), "more than numbers", "numpy.asarray("),
}  # fmt: skip


def refusal(function, x, error=TypeError):
    with pytest.raises(error) as found:
        function(x)
    return str(found.value)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", FOREIGN)
def test_refused_by_name_and_remedy(kind):
    of, what, remedy = FOREIGN[kind]
    for function, (run, name) in FUNCTIONS.items():
        message = refusal(run, of_class(of))
        assert message.startswith(f"{name}: {kind}, ") and what in message, function
        assert ("expected a plain array to write to" if name == "out" else remedy) in message, function


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", FOREIGN)
def test_refused_within_lists(kind):
    of, what, remedy = FOREIGN[kind]
    for x in ([of_class(of)] * 2, deque([of_class(of)]), [[1.0, of_class(of)]], [[[[of_class(of)]]]]):
        for function, (run, name) in FUNCTIONS.items():
            if name != "out":
                message = refusal(run, x)
                assert message.startswith(f"{name}: holds {kind}, "), function
                assert what in message and remedy in message, function


def test_objects_that_are_more_than_numbers():
    x = np.empty(2, object)
    x[:] = [1.0, of_class(FOREIGN["pint.Quantity"][0])]
    for function in ("matmul a", "mparray", "exact_matmul", "solve b"):
        run, name = FUNCTIONS[function]
        assert refusal(run, x) == f"{name}: holds pint.Quantity, which has a unit; use x.magnitude"


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("dtype", [None, "mp"])
def test_factors(dtype):
    for kind, (of, what, remedy) in FOREIGN.items():
        message = refusal(lambda x: ozaki.gemm(x, A, A, 0, None, dtype=dtype), of_class(of))
        assert message.startswith(f"alpha: {kind}, ") and what in message and remedy.rstrip("()") in message
    message = refusal(lambda x: ozaki.gemm(1, A, A, x, A, dtype=dtype), np.timedelta64(2, "s"))
    assert message.startswith("beta: dtype timedelta64[s], which has a unit; use beta / numpy.timedelta64(1, 's')")


def test_what_an_object_converts_to():
    quantity = FOREIGN["astropy.Quantity"][0]

    class Converting:
        def __array__(self, dtype=None, copy=None):
            return A.view(quantity)

    for function in ("matmul a", "mparray", "exact_matmul"):
        run, name = FUNCTIONS[function]
        assert refusal(run, Converting()).startswith(f"{name}: astropy.Quantity, which has a unit")


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_refused_beside_arrays_of_frameworks(library):
    framework = pytest.importorskip(library, reason=f"{library} is not installed")
    t = framework.ones((2, 2)) if library == "torch" else framework.numpy.ones((2, 2))
    for kind in ("pandas.DataFrame", "astropy.Quantity", "scipy.csr_array"):
        of, what, remedy = FOREIGN[kind]
        x = of_class(of)
        for run, name in (
            (lambda x: ozaki.matmul(t, x), "b"),
            (lambda x: ozaki.matmul(x, t), "a"),
            (lambda x: ozaki.gemm(1, t, t, 1, x), "c"),
            (lambda x: ozaki.einsum("ij,jk", t, x), "operand 1"),
            (lambda x: linalg.solve(t, x), "b"),
        ):
            message = refusal(run, x)
            assert message.startswith(f"{name}: {kind}, ") and what in message and remedy in message
        assert f"a: holds {kind}, " in refusal(lambda x: ozaki.matmul([[x]], A), x)


DTYPES = {
    "fields": (np.zeros((2, 2), [("re", "f8"), ("im", "f8")]), "['re']"),
    "records": (np.rec.array(np.zeros((2, 2), [("re", "f8")])), "structured_to_unstructured"),
    "times": (np.zeros((2, 2), "m8[ms]"), " / numpy.timedelta64(1, 'ms')"),
    "dates": (np.zeros((2, 2), "M8[D]"), ".min()) / numpy.timedelta64(1, 'D')"),
    "two bytes": (np.zeros((2, 2), "V2"), "ml_dtypes.bfloat16"),
}


@pytest.mark.parametrize("kind", DTYPES)
def test_dtypes_that_are_more_than_numbers(kind):
    x, remedy = DTYPES[kind]
    for function, (run, name) in FUNCTIONS.items():
        if name != "out":
            message = refusal(run, x)
            assert message.startswith(f"{name}: dtype ") and remedy in message, function


NO_ARRAYS = [
    None, {}, {1.0}, "matrix", b"matrix", (i for i in range(2)), object(), int, np.ndarray, MappingProxyType({}),
    np.polynomial.Polynomial([1.0, 2.0]),
]  # fmt: skip


@pytest.mark.parametrize("function", ["matmul a", "gemm b", "prepare", "tensordot b", "exact_matmul", "solve a", "mma"])
def test_what_is_no_array(function):
    run, name = FUNCTIONS[function]
    for x in NO_ARRAYS:
        assert refusal(run, x).startswith(f"{name}: {type(x).__name__}; expected an array")
    message = refusal(run, [[1.0, 2.0], [3.0]], ValueError)
    assert message == f"{name}: nested lists of unequal lengths; expected rows that are equally long"


def test_endless_lists_end():
    x = []
    x.append(x)
    with pytest.raises((TypeError, ValueError), match=r"^a: "):
        ozaki.matmul(x, A)


class Sub(np.ndarray):
    """A class that has nothing beside its numbers."""


def arrays_that_are_taken(tmp_path):
    yield np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype="f8", shape=(2, 2))
    yield from (A.view(Sub), A.view(np.recarray), np.ma.array(A), A.astype(">f8"), A.astype("<f8"))
    yield from (A.tolist(), deque(A.tolist()), memoryview(A), [np.ma.array(row) for row in A], [*A.astype(">f8")])


def test_plain_arrays_are_taken(tmp_path):
    for x in arrays_that_are_taken(tmp_path):
        expected = np.array(x, "f8")
        assert np.array_equal(ozaki.matmul(x, np.eye(2), scheme="residues", slices=14), expected)
        assert np.array_equal(ozaki.einsum("ij->ij", x), expected)
        assert np.array_equal(reference.exact_matmul(x, A)[0] * 2.0 ** reference.exact_matmul(x, A)[1], expected @ A)
        assert (ozaki.mparray(x) == expected).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i2", "u8"])
def test_byte_orders_are_alike(dtype):
    """Whatever a function makes of an array, it makes of one in the other byte order, and of one in a list."""

    def outcome(run, x):
        try:
            found = run(x)
        except (TypeError, ValueError) as error:
            return str(error)
        if isinstance(found, ozaki.MPArray):
            found = [part.to_ints() for part in ((found.real, found.imag) if found.is_complex else (found,))]
        return repr(found)

    x = A.astype(dtype)
    for name, (run, argument) in FUNCTIONS.items():
        if argument != "out" and name not in ("prepare", "inv", "lu_factor", "cholesky", "qr", "eigh", "eigvalsh"):
            assert outcome(run, x.astype(x.dtype.newbyteorder())) == outcome(run, x), name


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    half = A.astype(ml_dtypes.bfloat16)
    assert ozaki.matmul(half, half).dtype == half.dtype
    assert (ozaki.mparray(half) == half.astype("f4")).all() and ozaki.mparray(half).bits == 8
    assert (ozaki.matrix_power(half, 2) == ozaki.matrix_power(half.astype("f4"), 2)).all()
    assert ozaki.matrix_power(half, 2, accuracy="fp32").dtype == "float32"
    assert ozaki.matmul(half.view("V2").view(ml_dtypes.bfloat16), half).dtype == half.dtype
    assert ozaki.matmul(half, A.astype("f2")).dtype == "float32"
    assert reference.componentwise_error(ozaki.matmul(half, half, accuracy="fp32"), half, half) < 2**-23


def real(kind):
    """An array of a class of a library that is installed."""
    library, _, name = kind.partition(".")
    module = {"scipy.sparse": "scipy.sparse"}.get(kind.rpartition(".")[0], library)
    pytest.importorskip(module, reason=f"{module} is not installed")
    found = importlib.import_module(module)
    if library == "pint":
        return A * found.UnitRegistry().meter
    if library == "astropy":
        return A * importlib.import_module("astropy.units").m
    if library == "dask":
        return importlib.import_module("dask.array").from_array(A)
    if name == "Dataset":
        return found.Dataset({"a": (("x", "y"), A)})
    return getattr(found, name.rpartition(".")[2])(A if "Series" not in name else A[0])


@pytest.mark.parametrize(
    ("kind", "remedy"),
    {
        "scipy.sparse.csr_array": ".toarray()", "scipy.sparse.csr_matrix": ".toarray()",
        "scipy.sparse.dia_array": ".toarray()", "scipy.sparse.lil_matrix": ".toarray()",
        "pandas.DataFrame": ".to_numpy()", "pandas.Series": ".to_numpy()", "polars.DataFrame": ".to_numpy()",
        "xarray.DataArray": ".to_numpy()", "xarray.Dataset": ".to_dataarray().to_numpy()",
        "astropy.Quantity": ".value", "pint.Quantity": ".magnitude", "dask.Array": ".compute()",
    }.items(),
)  # fmt: skip
def test_real_libraries(kind, remedy):
    x = real(kind)
    for function, (run, name) in FUNCTIONS.items():
        message = refusal(run, x)
        assert message.startswith(f"{name}: {kind.partition('.')[0]}."), function
        assert name == "out" or remedy in message, function
    a = eval(f"x{remedy}", {"x": x})
    assert ozaki.matmul(np.atleast_2d(np.squeeze(a)), A, accuracy="fp64").shape[-1] == 2


@pytest.mark.parametrize(
    ("x", "remedy"),
    [
        (A.astype("g"), r"{}\.astype\('float64'\) rounds .*, ozaki\.mparray\({}\) keeps all bits"),
        (A.astype("G"), r"{}\.astype\('complex128'\) rounds .*, ozaki\.mparray\({}\) keeps all bits"),
        (A.astype("U"), r"ozaki\.mparray\({}, bits\)"),
        (A.astype("S"), r"ozaki\.mparray\({}\.astype\(str\), bits\)"),
        (A.astype("U").astype(np.dtypes.StringDType()), r"ozaki\.mparray\({}, bits\)"),
    ],
)
def test_remedies_name_a_variable_and_lead_to_a_result(x, remedy):
    """Also of operands that messages call by two words, and of the addend of `residual`, which gemm calls c."""
    for call, name, variable in (
        (lambda: ozaki.matmul(x, A), "a", "a"),
        (lambda: ozaki.einsum("ij,jk", A, x), "operand 1", "x"),
        (lambda: ozaki.residual(A, A, x), "b", "b"),
    ):
        with pytest.raises(TypeError, match=f"^{name}: dtype .* is not supported; .*{remedy.format(*[variable] * 2)}"):
            call()
    assert (ozaki.mparray(x.astype(str) if x.dtype.kind == "S" else x, bits=60).real == A).all()


def test_masks_of_words_and_exponents():
    masked = np.ma.array(A, mask=np.eye(len(A)))
    x = ozaki.mparray(A)
    for call, name in (
        (lambda: ozaki.mparray((masked, masked)), "x"),
        (lambda: ozaki.residual(A, (A, masked), A), "x"),
        (lambda: x.ldexp(masked.astype(int)), "exponents"),
    ):
        with pytest.raises(TypeError, match=f"^{name}: masked elements have no value"):
            call()


class Operator:
    """As a linear operator of SciPy: it has the dtype of an array, and is none."""

    dtype, shape = np.dtype(float), A.shape


def test_what_has_a_dtype_and_is_no_array():
    x = ozaki.mparray(A)
    for call, name in (
        (lambda: x == Operator(), "other: the number"),
        (lambda: x < Operator(), "other: the number"),
        (lambda: ozaki.mparray((Operator(), Operator())), "x: item 0 of the tuple"),
    ):
        with pytest.raises(TypeError, match=f"^{name} is of type Operator"):
            call()


def test_no_class_is_kept_with_what_its_methods_hold():
    def multiplied():
        held = np.eye(2)

        class Mine:
            def __array__(self, dtype=None, copy=None):
                return held

        assert (ozaki.matmul(Mine(), A) == A).all()
        return weakref.ref(held), weakref.ref(Mine)

    seen = multiplied()
    gc.collect()
    assert [each() for each in seen] == [None, None]


def test_a_class_that_changes_is_looked_at_anew():
    class Mine:
        def __array__(self, dtype=None, copy=None):
            return A

    assert (ozaki.matmul(Mine(), np.eye(2)) == A).all()
    Mine.value, Mine.unit = 1, "m"
    with pytest.raises(TypeError, match=r"^a: .*Mine, which has a unit; use a\.value"):
        ozaki.matmul(Mine(), np.eye(2))


def test_classes_of_libraries_are_looked_at_once():
    looked = []
    found = OfClasses(lambda kind: looked.append(kind) or kind.__name__)
    kinds = [np.ndarray, np.ma.MaskedArray, float, type(None), type(lambda: 0), type(PLAN)]
    for _ in range(2):
        assert [found(kind) for kind in kinds] == [kind.__name__ for kind in kinds]
    assert looked == kinds
    assert [found(Fraction) for _ in range(2)] == ["Fraction"] * 2 and looked == [*kinds, Fraction, Fraction]


def test_a_class_that_cannot_be_hashed():
    class Meta(type):
        __hash__ = None

    class Mine(metaclass=Meta):
        def __array__(self, dtype=None, copy=None):
            return A

    with pytest.raises(TypeError, match=r"^b: .*Mine, whose class cannot be hashed; use numpy.asarray\(b\)"):
        ozaki.matmul(A, b=Mine())
