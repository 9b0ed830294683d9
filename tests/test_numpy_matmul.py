"""NumPy's own tests of `matmul`, run on `ozaki.matmul`; and the differences between the two, with reasons."""

import re
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

import ozaki

theirs = pytest.importorskip(
    "numpy._core.tests.test_multiarray", reason="NumPy was installed without its tests", exc_type=ImportError
)

A = np.array([[1.0, 2.0], [3.0, 4.0]])


class Subclass(np.ndarray):
    pass


class Convertible:
    """Converts to an array; its subclasses tell NumPy what to return for a product."""

    def __array__(self, dtype=None, copy=None):
        return A


class Overriding(Convertible):
    def __array_ufunc__(self, *arguments, **options):
        return "what __array_ufunc__ returns"


class Refusing(Convertible):
    __array_ufunc__ = None


class Wrapping(Convertible):
    __array_priority__ = 1000

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return "what __array_wrap__ returns"


class Difference(NamedTuple):
    """A call, the outcomes with `np.matmul` and `ozaki.matmul` (what `outcome` begins with), and why they differ."""

    call: object
    numpy: str
    ours: str
    why: str


_ACCURACY = "rounds to what accuracy and dtypes say, not to what a cast says"
_OWN = "a product is of plain arrays; what it means for others, they say when they call matmul"
_MORE = "what such a class has beside numbers, as a unit, would be lost"
_REFUSED = "TypeError: [ab]: .* has more than numbers.*; use numpy.asarray"

DIFFERENCES = {
    **{
        f"dtype {char}": Difference(
            lambda matmul, char=char: matmul(A.astype(char), A.astype(char)),
            "ndarray",
            "TypeError: [ab]: dtype .* is not supported; expected float32 or float64",
            "slices and bounds are of binary floats of 24 or 53 bits",
        )
        for char in "gG"
    },
    **{
        f"integers {char}": Difference(
            lambda matmul, char=char: matmul(A.astype(char), A.astype(char))[0, 0],
            np.dtype(char).type.__name__,
            "float64",
            "sums of NumPy's integers wrap around; as float64 numbers they do not, and dtype='int64' is an error there",
        )
        for char in "?bhilqBHILQ"
    },
    "objects that are integers": Difference(
        lambda matmul: matmul(A.astype(int).astype(object), A.astype(int).astype(object))[0, 0],
        "int",
        "float64",
        "integers are one kind, whatever holds them; dtype='mp' gives every bit",
    ),
    "other objects": Difference(
        lambda matmul: matmul(A.astype(object), A.astype(object)),
        "ndarray",
        "TypeError: a: dtype object is not supported; .*ozaki.mparray",
        "Python multiplies them, by whatever they are",
    ),
    "out of another dtype": Difference(
        lambda matmul: matmul(A, A, out=np.zeros((2, 2), complex)),
        "ndarray",
        "ValueError: out: shape .* and dtype .*; expected",
        _ACCURACY,
    ),
    "out of another shape": Difference(
        lambda matmul: matmul(A, A, out=np.zeros((3, 2, 2))),
        "ndarray",
        "ValueError: out: shape .* and dtype .*; expected",
        "the same matrix three times is no product that anybody asks for, but a wrong shape is a mistake",
    ),
    "casting=": Difference(lambda matmul: matmul(A, A, casting="no"), "ndarray", "TypeError: .*'casting'", _ACCURACY),
    "axes=": Difference(
        lambda matmul: matmul(A, A, axes=[(0, 1)] * 3),
        "ndarray",
        "TypeError: .*'axes'",
        "views of the operands and of out (np.moveaxis) are the same, without a copy",
    ),
    "order=": Difference(
        lambda matmul: matmul(A, A, order="F"), "ndarray", "TypeError: .*'order'", "out may lie in any order"
    ),
    "a subclass": Difference(lambda matmul: matmul(A.view(Subclass), A), "Subclass", "ndarray", _OWN),
    "masks, none of them set": Difference(lambda matmul: matmul(np.ma.array(A), A), "MaskedArray", "ndarray", _OWN),
    "masked elements": Difference(
        lambda matmul: matmul(np.ma.masked_equal(A, 2.0), A),
        "MaskedArray",
        "TypeError: a: .*masked elements",
        "NumPy multiplies what lies below the masks, which no bound speaks of",
    ),
    "__array_ufunc__": Difference(lambda matmul: matmul(Overriding(), A), "str", _REFUSED, _MORE),
    "__array_ufunc__ = None": Difference(
        lambda matmul: matmul(A, Refusing()), "TypeError: .*does not support ufuncs", _REFUSED, _MORE
    ),
    "__array_wrap__": Difference(lambda matmul: matmul(Wrapping(), A), "str", _REFUSED, _MORE),
    "overflow": Difference(
        lambda matmul: matmul(np.full((1, 2), 1e308), np.ones((2, 1))),
        "RuntimeWarning: overflow",
        "ndarray",
        "results follow IEEE 754, and a report counts rows with NaN or Inf; nothing on the way overflows that NumPy "
        "could warn of",
    ),
}


def outcome(call):
    """The name of the type that a call returns, or the error or warning that it raises, as a text."""
    try:
        with warnings.catch_warnings(action="error"):
            return type(call()).__name__
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_differs(name):
    """Each listed difference exists; one that no longer does must leave the list."""
    difference = DIFFERENCES[name]
    assert re.match(difference.numpy, outcome(lambda: difference.call(np.matmul)))
    assert re.match(difference.ours, outcome(lambda: difference.call(ozaki.matmul)))


def refusal(a, b, out):
    """The listed difference because of which `ozaki.matmul` refuses a call; None if it does not."""
    a, b = np.asarray(a), np.asarray(b)
    for x in (a, b):
        if f"dtype {x.dtype.char}" in DIFFERENCES:
            return DIFFERENCES[f"dtype {x.dtype.char}"]
        if x.dtype == object and not all(isinstance(value, int) for value in x.flat):
            return DIFFERENCES["other objects"]
    if out is not None and out.dtype != (np.float64 if of_integers(a, b) else np.result_type(a, b)):
        return DIFFERENCES["out of another dtype"]
    if out is not None and out.shape != np.shape(np.matmul(a, b)):
        return DIFFERENCES["out of another shape"]
    return None


def of_integers(a, b):
    """Whether NumPy's product of a and b is one of integers or bools, or of objects."""
    return np.result_type(a, b).kind in "biuO"


def product(a, b, out=None, *, way):
    """`ozaki.matmul`; for a call that it refuses, assert the listed error, and return NumPy's product.

    The result has NumPy's dtype where ours has more bits: of floats of 16 bits, which count as float32, and of
    integers, which count as float64.
    """
    refused = refusal(a, b, out)
    if refused is None:
        found = ozaki.matmul(a, b, out, **way)
        if out is not None:
            return found
        return found.astype(np.result_type(a, b)) if of_integers(a, b) or np.result_type(a, b) == "e" else found
    assert re.match(refused.ours, outcome(lambda: ozaki.matmul(a, b, out, **way)))
    return np.matmul(a, b, out)


class NumpyWithOurs:
    """NumPy with our matmul, which NumPy's tests get as `np`."""

    def __init__(self, matmul):
        self.matmul = matmul

    def __getattr__(self, name):
        return getattr(np, name)


class TestMatmul(theirs.TestMatmul):
    @pytest.fixture(
        autouse=True, params=({}, {"reproducible": True}, {"reproducible": True, "engine": "int8-simulated"}), ids=str
    )
    def ours(self, request, monkeypatch):
        self.matmul = partial(product, way=request.param)
        monkeypatch.setattr(theirs, "np", NumpyWithOurs(self.matmul))
