"""NumPy's own tests of contractions, run on ours; and the differences between the two, with reasons.

`einsum` and `tensordot` are `ozaki`'s; `dot`, `inner`, `vdot`, `multi_dot`, and these two again, NumPy's functions
inside a block of `ozaki.emulate`, which leaves to NumPy what it does not take.
"""

import re
from functools import partial

import numpy as np
import pytest
from test_numpy_matmul import A, Difference, NumpyWithOurs, outcome

import ozaki

REASON = "NumPy was installed without its tests"
of_arrays, of_einsum, of_numbers, of_linalg = (
    pytest.importorskip(f"numpy.{name}", reason=REASON, exc_type=ImportError)
    for name in (
        "_core.tests.test_multiarray",
        "_core.tests.test_einsum",
        "_core.tests.test_numeric",
        "linalg.tests.test_linalg",
    )
)
MULTIPLY = "ij,jk->ik"

_ACCURACY = "rounds to what accuracy and dtypes say, not to what a cast says"
_ONE_WAY = "one way to say it is enough"

DIFFERENCES = {
    "lists of axes": Difference(
        lambda einsum: einsum(A, [0, 1], A, [1, 2], [0, 2]), "ndarray", "TypeError: subscripts: ndarray; exp", _ONE_WAY
    ),
    "out=": Difference(
        lambda einsum: einsum(MULTIPLY, A, A, out=np.zeros((2, 2))), "ndarray", "TypeError: .*'out'", "not offered yet"
    ),
    "casting=": Difference(
        lambda einsum: einsum(MULTIPLY, A, A, casting="unsafe"), "ndarray", "TypeError: .*'casting'", _ACCURACY
    ),
    "order=": Difference(
        lambda einsum: einsum(MULTIPLY, A, A, order="F"), "ndarray", "TypeError: .*'order'", "results are C-contiguous"
    ),
    "optimize=": Difference(
        lambda einsum: einsum(MULTIPLY, A, A, optimize=True),
        "ndarray",
        "TypeError: .*'optimize'",
        "more than two operands are always contracted in a good order",
    ),
    **{
        f"dtype {char}": Difference(
            lambda einsum, char=char: einsum("ij->ji", A.astype(char)),
            "ndarray",
            "TypeError: operand 0: dtype .* is not supported",
            "slices and bounds are of binary floats of 24 or 53 bits",
        )
        for char in "gGO"
    },
    "integers": Difference(
        lambda einsum: einsum("i,i", np.array([1, 2]), np.array([3, 4])),
        "int64",
        "float64",
        "sums of NumPy's integers wrap around; as float64 numbers they do not, and dtype='int64' is an error there",
    ),
    "a label for sizes 1 and 3, twice in an operand": Difference(
        lambda einsum: einsum("ii,i->", np.ones((3, 1)), np.ones(3)),
        "ValueError: dimensions in operand 0 for collapsing index 'i' don't match",
        "ValueError: subscripts: axes 'i' of operand 0 have sizes 3 and 1; expected equal",
        "both refuse it: the words differ",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_differs(name):
    """Each listed difference exists; one that no longer does must leave the list."""
    difference = DIFFERENCES[name]
    assert re.match(difference.numpy, outcome(lambda: difference.call(np.einsum)))
    assert re.match(difference.ours, outcome(lambda: difference.call(ozaki.einsum)))


def refusal(args, kwargs):
    """The listed difference because of which `ozaki.einsum` refuses a call; None if it does not."""
    if args and not isinstance(args[0], str):
        return "lists of axes"
    for name in ("out", "casting", "order"):
        if kwargs.get(name) is not None:
            return f"{name}="
    for x in map(np.asarray, args[1:]):
        if x.dtype.char in "gG" or (x.dtype == object and not all(isinstance(value, int) for value in x.flat)):
            return f"dtype {x.dtype.char}"
    return None


def like_numpys(function, operands):
    """What `function` of ours gives to an accuracy, in NumPy's dtype; of integers exactly, and then modulo 2**bits."""
    dtype = np.result_type(*map(np.asarray, operands))
    if dtype.kind in "iu":
        exact = function(dtype="mp").to_integers()
        return np.asarray(exact & 2 ** (8 * dtype.itemsize) - 1, object).astype(np.uint64).astype(dtype)[()]
    found = function(accuracy="fp64")
    return np.asarray(found).astype(dtype)[()] if dtype.kind in "bO" or dtype == "e" else found


def einsum(*args, **kwargs):
    """`ozaki.einsum`; for a call that it refuses by the list, assert its error, and return NumPy's result."""
    refused = refusal(args, kwargs)
    options = {name: x for name, x in kwargs.items() if name != "optimize" and x is not None}
    if refused is None and options:
        return ozaki.einsum(*args, accuracy="fp64", **options)
    if refused is None:
        return like_numpys(partial(ozaki.einsum, *args), args[1:])
    with pytest.raises(TypeError):
        ozaki.einsum(*args, **options)
    return np.einsum(*args, **kwargs)


def tensordot(a, b, axes=2):
    if a.dtype.char in "gG":
        return np.tensordot(a, b, axes)
    return like_numpys(partial(ozaki.tensordot, a, b, axes), (a, b))


SUMS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "longdouble",
        "cfloat64", "cfloat128", "clongdouble", "object")  # fmt: skip
"""NumPy has the same long test for each dtype: of these it is left out, to save time, and runs for float64."""


def not_run(*names):
    """Attributes that leave tests of a base class out."""
    return dict.fromkeys((*names, *(f"test_einsum_sums_{dtype}" for dtype in SUMS)))


class TestEinsum(of_einsum.TestEinsum):
    """NumPy's tests, but for those of what is no product: views, and what objects do when they are multiplied.

    Nor is there one whose products of thousands of integers take long when they are exact.
    """

    vars().update(
        not_run("test_einsum_views", "test_einsum_object_errors", "test_object_loop", "test_einsum_broadcast")
    )

    @pytest.fixture(autouse=True)
    def ours(self, monkeypatch):
        numpy = NumpyWithOurs(None)
        numpy.einsum, numpy.tensordot = einsum, tensordot
        monkeypatch.setattr(of_einsum, "np", numpy)


@pytest.fixture
def emulated(monkeypatch):
    """NumPy's functions as `ozaki.emulate` replaces them, also where tests took them by name before."""
    with ozaki.emulate(accuracy="fp64") as run:
        monkeypatch.setattr(of_arrays, "dot", np.dot)
        monkeypatch.setattr(of_linalg, "multi_dot", np.linalg.multi_dot)
        yield run


@pytest.mark.usefixtures("emulated")
class TestEmulatedEinsum(of_einsum.TestEinsum):
    vars().update(not_run())


@pytest.mark.usefixtures("emulated")
class TestDot(of_arrays.TestDot):
    """NumPy's tests, but for those of its BLAS, which take long, and of `out` in an order that NumPy refuses."""

    vars().update(not_run("test_huge_vectordot", "test_accelerate_framework_sgemv_fix", "test_dot_3args_errors"))


@pytest.mark.usefixtures("emulated")
class TestInner(of_arrays.TestInner):
    pass


@pytest.mark.usefixtures("emulated")
class TestVdot(of_arrays.TestVdot):
    pass


@pytest.mark.usefixtures("emulated")
class TestMultiDot(of_linalg.TestMultiDot):
    pass


@pytest.mark.usefixtures("emulated")
class TestTensordot(of_numbers.TestTensordot):
    pass
