"""Operands as arrays of plain numbers; those that are more than numbers are refused, with what makes numbers of them.

Units, labels, masks and the like would be lost without a word: NumPy drops them when it converts an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ozaki.interchange.classes import OfClasses
from ozaki.interchange.kinds import kind_of_class


class _More(NamedTuple):
    """What a class of arrays has beside numbers.

    Attributes
    ----------
    attributes : names that every such class has: it is known by them, and its library need not be imported
    what : what would be lost, as the end of a sentence about the array
    remedy : an expression for its numbers; {} stands for the array
    """

    attributes: tuple[str, ...]
    what: str
    remedy: str


_LABELS = "which has labels, or marks for missing values, beside its numbers"

_MORE = (
    _More(("toarray",), "a sparse array", "{}.toarray()"),
    _More(("todense",), "a sparse array", "{}.todense()"),
    _More(("magnitude", "units"), "which has a unit", "{}.magnitude"),
    _More(("value", "unit"), "which has a unit", "{}.value"),
    _More(("value", "to_value"), "which has a unit", "{}.value"),
    _More(("nominal_value", "std_dev"), "which has an uncertainty", "uncertainties.unumpy.nominal_values({})"),
    _More(("to_numpy",), _LABELS, "{}.to_numpy()"),
    _More(("to_dataarray", "coords"), _LABELS, "{}.to_dataarray().to_numpy()"),
    _More(("to_pandas", "schema"), _LABELS, "{}.to_pandas().to_numpy()"),
    _More(("gather", "redistribute"), "which is shared out over processes", "ozaki.distributed.matmul, or {}.gather()"),
    _More(("__dask_graph__", "compute"), "which is not computed yet", "ozaki.distributed.matmul, or {}.compute()"),
    _More(("__dataframe__",), _LABELS, "numpy.asarray({})"),
    _More(("unmasked", "mask", "filled", "__array_finalize__"), "which may have masked elements", "{}.filled(0)"),
)
"""Looked up from the first to the last: an array of xarray, which has labels, may also be one of dask."""

_MATRIX = _More((), "whose * is the product of matrices", "numpy.asarray({})")
_OWN = _More((), "which has more than numbers: it says itself what NumPy's functions return", "numpy.asarray({})")
_UNHASHABLE = _More((), "whose class cannot be hashed", "numpy.asarray({})")

_HOOKS = ("__array_ufunc__", "__array_function__", "__array_wrap__", "__array_finalize__")
"""Methods by which a class has its own say in NumPy's arithmetic, or hands on what it holds beside numbers."""

_PLAIN = (np.memmap, np.recarray, np.ma.core.MaskedConstant, np.ma.MaskedArray, np.ndarray)
"""Classes of NumPy that are plain arrays; fields of records are refused by dtype, masks if an element is masked."""


def check_plain(name: str, x: Any) -> None:
    """Refuse an argument of a class that has more than numbers; those of lists are looked for by `plain`.

    Raises
    ------
    TypeError
        The message names the argument, its class, and what makes numbers of it.
    """
    kind: Any = type(x)
    if (more := _more_of_class(kind)) is not None:
        raise TypeError(f"{name}: {_in_words(more, kind, name)}")


def has_more(kind: type) -> bool:
    """Whether a class of arguments has more than numbers, so that `check_plain` refuses them."""
    return _more_of_class(kind) is not None


def _in_words(more: _More, kind: type, name: str = "x") -> str:
    """What a class has beside numbers, and what would be right for the argument of that name."""
    numbers = more.remedy.format(variable_named(name))
    right = "expected a plain array to write to" if name == "out" else f"use {numbers}"
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}, {more.what}; {right}"


def variable_named(name: str) -> str:
    """A variable for the argument that messages call by that name, which may be two words."""
    return name if name.isidentifier() else "x"


@OfClasses
def _more_of_class(kind: Any) -> _More | None:
    if type(kind).__hash__ is None:
        return _UNHASHABLE
    if hasattr(kind, "_an_array"):  # of this library (`process.placement`)
        return None
    if issubclass(kind, np.generic) or kind_of_class(kind) is not None or kind.__module__.partition(".")[0] == "cupy":
        return None
    for more in _MORE:
        if all(hasattr(kind, attribute) for attribute in more.attributes):
            return more
    if issubclass(kind, np.matrix):
        return _MATRIX
    plain_class = next((base for base in kind.__mro__ if base in _PLAIN), object)
    has_hooks = any(getattr(kind, hook, _HOOKS) is not getattr(plain_class, hook, _HOOKS) for hook in _HOOKS)
    return _OWN if has_hooks and hasattr(kind, "__array__") else None


def plain(name: str, x: Any, objects: bool = False) -> npt.NDArray[Any]:
    """Convert an argument to an array of NumPy, in the byte order of the machine, without losing anything.

    With `objects`, what is no array becomes an array of one object.

    Raises
    ------
    TypeError
        If it is, or holds, something that is more than numbers (`check_plain`); if elements are masked; or if it is no
        array, and does not convert to one.
    ValueError
        For nested lists of unequal lengths.
    """
    if type(x) is np.ndarray and x.dtype.kind in "fciub" and x.dtype.isnative:
        return x
    check_plain(name, x)
    if _is_nested(x):
        check_items(name, x)
    try:
        array = np.asanyarray(x)
    except MemoryError:
        raise
    except Exception as error:  # an object's own conversion may raise anything
        if _is_nested(x) and "inhomogeneous" in str(error):
            raise ValueError(f"{name}: nested lists of unequal lengths; expected rows that are equally long") from None
        raise TypeError(f"{name}: {type(x).__name__} ({error}); {_EXPECTED}") from None
    check_plain(name, array)
    if np.ma.is_masked(array):
        raise _masked(name)
    is_object = array.ndim == 0 and array.dtype.kind in "OSUT" and not isinstance(x, np.ndarray | np.generic)
    if isinstance(x, Mapping) or (is_object and not objects):
        raise TypeError(f"{name}: {type(x).__name__}; {_EXPECTED}")
    _check_dtype(name, array.dtype)
    if array.dtype.kind == "O":
        check_items(name, array.reshape(-1).tolist())
    found = np.asarray(array)
    return found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))


def _check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Refuse dtypes whose elements are more than a number each, and those that do not say which numbers they are.

    Raises
    ------
    TypeError
    """
    x = variable_named(name)
    if dtype.names is not None:
        what = "whose elements have fields"
        field = (*dtype.names, "")[0]
        remedy = f"use {x}[{field!r}], or numpy.lib.recfunctions.structured_to_unstructured({x})"
    elif dtype.kind in "mM":
        unit = np.datetime_data(dtype)[0]
        what = "which has a unit"
        difference = x if dtype.kind == "m" else f"({x} - {x}.min())"
        remedy = f"use {difference} / numpy.timedelta64(1, {unit!r})"
    elif dtype.type is np.void and dtype.itemsize == 2:
        what = "which says no type of numbers, as of bfloat16 in NumPy's files"
        remedy = f"use {x}.view(ml_dtypes.bfloat16), if they are these"
    else:
        return
    raise TypeError(f"{name}: dtype {dtype}, {what}; {remedy}")


_EXPECTED = "expected an array of float32 or float64, real or complex"


def check_items(name: str, x: Sequence[Any], level: int = 0) -> None:
    """Refuse nested sequences that hold arrays or numbers of a class that has more than numbers, or masked elements.

    `level` is how many sequences x lies in.

    Raises
    ------
    TypeError
        As `plain`.
    """
    kinds = set(map(type, x)) - _NUMBERS
    for kind in kinds:
        if (more := _more_of_class(kind)) is not None:
            raise TypeError(f"{name}: holds {_in_words(more, kind)}")
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds) and any(map(np.ma.is_masked, x)):
        raise _masked(name)
    if level < _DEEPEST and any(issubclass(kind, Sequence) for kind in kinds):
        for each in x:
            if _is_nested(each):
                check_items(name, each, level + 1)


_NUMBERS = {float, int, complex, bool}
"""Classes that most lists hold, and that need not be looked up."""

_DEEPEST = 64
"""Levels of nested sequences that are looked through; NumPy makes arrays of no more."""


def _is_nested(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str | bytes | bytearray | memoryview)


def _masked(name: str) -> TypeError:
    return TypeError(f"{name}: masked elements have no value; fill them, as filled(0) does")
