"""The libraries whose arrays are taken beside NumPy's and CuPy's: what each offers (`Kind`), and how they are known."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ozaki.interchange.classes import OfClasses

Given = tuple[int, tuple[Any, ...], tuple[int, ...]]
"""An argument as a program on a GPU is given it: its device; all of it that the program depends on; its addresses.

What the program depends on is, of a single array, the dtype, the shape and the strides in bytes; the dtype is a
character of NumPy's, or the name of a 16-bit format."""


class Kind(Protocol):
    """Arrays of one library.

    Attributes
    ----------
    name : what one array is called in messages, as "a torch tensor"
    """

    name: str

    def view(self, label: str, x: Any, halves: bool = False) -> tuple[Any, Hashable]:
        """The elements of x as an array of NumPy or CuPy, and its device, which prints as its library prints it.

        The array is a view; of 16-bit floats with `halves` a `HalfArray`, a view, else a float32 copy.

        Raises
        ------
        TypeError, ValueError, ImportError
            If x cannot be taken; the message starts with `label`, the name of the argument.
        """
        ...

    def given(self, x: Any) -> Given | None:
        """An array that a program on a GPU may read and write as it is, with no check left; None of anything else."""
        ...

    def stream(self, device: int) -> int | None:
        """The address of the stream on which the library works now on a GPU; None where it is told of each operation.

        It is told, or something between it and its caller is, where a program is traced or transformed.
        """
        ...

    def new(self, shape: tuple[int, ...], dtype: str, device: int) -> tuple[Any, int]:
        """A new array for a result on a GPU, its elements undefined, and its address."""
        ...

    def on(self, device: Any) -> AbstractContextManager[Any]:
        """Within it, NumPy or CuPy works on that device, on the stream on which the library works now."""
        ...

    def written(self, out: Any) -> None:
        """Tell the library that the memory of `out` has other elements now."""
        ...

    def holds(self, dtype: Any) -> bool:
        """Whether arrays of this kind may have a dtype of NumPy's as things are set."""
        ...

    def made(self, c: Any, device: Any) -> Any:
        """A NumPy or CuPy array, or a NumPy scalar, as an array of this kind on that device; a view, if c is one."""
        ...

    def made_of_bits(self, bits: Any, half: str, device: Any) -> Any:
        """An array of uint16 of NumPy or CuPy, the bits of numbers of a 16-bit format, as an array of this kind."""
        ...


def kind_of(x: Any) -> Kind | None:
    """The kind of an array, or of one in a tuple; None of NumPy's, CuPy's and all that is no array."""
    if type(x) is tuple:
        return next((kind for each in x if (kind := kind_of(each)) is not None), None)
    of: Any = type(x)
    return kind_of_class(of)


@OfClasses
def kind_of_class(of: Any) -> Kind | None:
    """The kind of arrays of a class, which is known by its bases' names: no library is imported to ask it."""
    for base in of.__mro__:
        library = base.__module__.partition(".")[0]
        if library == "torch" and base.__name__ == "Tensor":
            from ozaki.interchange.tensors import TENSORS

            return TENSORS
        if library in ("jax", "jaxlib") and base.__name__ in ("ArrayImpl", "Tracer"):
            from ozaki.interchange.jax_arrays import JAX_ARRAYS

            return JAX_ARRAYS
    return None


@OfClasses
def is_dtensor(of: Any) -> bool:
    """Whether a class is that of PyTorch's tensors of which each process holds a share."""
    return any(base.__name__ == "DTensor" and base.__module__.startswith("torch.distributed") for base in of.__mro__)
