"""DTensors of PyTorch as matrices of which each process holds a share, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from ozaki.distributed.arrays import Array, refuse_dtype
from ozaki.distributed.chunks import Chunked
from ozaki.distributed.communicators import communicator_of
from ozaki.distributed.communicators.communicator import Communicator, agree
from ozaki.interchange.kinds import is_dtensor
from ozaki.interchange.tensors import TENSORS
from ozaki.process.placement import on_gpu
from ozaki.records.formats import DTYPES

TIMEOUT = 60.0
"""Seconds to wait for another process, at most, if the caller names no others."""


class Taken(NamedTuple):
    """The operands of a product as arrays, and how its result becomes a DTensor.

    Attributes
    ----------
    a, b, c : c is None where there is none
    distribution : of the result
    mesh, placements : of the result
    """

    a: Array
    b: Array
    c: Array | None
    distribution: Chunked
    mesh: Any
    placements: tuple[Any, ...]

    def given_back(self, result: Array) -> Any:
        """The result as a DTensor, on the memory of its shares."""
        local = torch.from_dlpack(result.local) if on_gpu(result.local) else torch.from_numpy(result.local)
        return DTensor.from_local(
            local, self.mesh, self.placements, run_check=False,
            shape=torch.Size(result.shape), stride=(result.shape[1], 1),
        )  # fmt: skip


def taken(a: Any, b: Any, c: Any, placements: Sequence[Any] | None, timeout: float | None) -> Taken:
    """Take the operands of a product. All processes of their mesh call it.

    Placements of the result, unless they are named: those of c; without c, on each dimension of the mesh `Shard(0)`
    where a has it, else `Shard(1)` where b has it, else `Replicate()`. None of these is partial, as those of DTensor's
    own product may be.

    Raises
    ------
    TypeError, ValueError
        On the process whose arguments cannot be used; others raise `ProcessError`.
    """
    given = [(name, x) for name, x in (("a", a), ("b", b), ("c", c)) if x is not None]
    for name, x in given:
        if not is_dtensor(type(x)):
            raise TypeError(f"{name}: {type(x).__name__} beside DTensors; expected a DTensor on their mesh")
    mesh = a.device_mesh
    communicator = communicator_of(mesh, TIMEOUT if timeout is None else timeout)
    arrays: dict[str, Array] = {}
    chosen, error = None, None
    try:
        for name, x in given:
            if x.device_mesh != mesh:
                raise ValueError(f"{name}: on {x.device_mesh}, but a on {mesh}; expected DTensors on one mesh")
            arrays[name] = _array(name, x, communicator)
        if placements is not None:
            if not isinstance(placements, Sequence):
                raise TypeError(f"placements: {placements!r}; expected a sequence, one for each dimension of the mesh")
            chosen = tuple(placements)
        else:
            chosen = c.placements if c is not None else _of_product(a.placements, b.placements)
        distribution = _distribution("placements", mesh, chosen)
    except (TypeError, ValueError) as problem:
        error = problem
    agree(communicator, "taking DTensors", error)
    assert chosen is not None
    return Taken(arrays["a"], arrays["b"], arrays.get("c"), distribution, mesh, chosen)


def _of_product(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        Shard(0) if x.is_shard(0) else Shard(1) if y.is_shard(1) else Replicate() for x, y in zip(a, b, strict=True)
    )


def _array(name: str, x: Any, communicator: Communicator) -> Array:
    """A DTensor as an array; nothing is copied, but lazy conjugates.

    Raises
    ------
    TypeError, ValueError
    """
    if x.ndim != 2:
        raise ValueError(f"{name}: {x.ndim} axes; expected a matrix, two axes")
    if str(x.dtype).removeprefix("torch.") not in DTYPES:
        refuse_dtype(name, x.dtype)
    if x.requires_grad and torch.is_grad_enabled():
        raise TypeError(f"{name}: requires a gradient, which is not tracked here; use {name}.detach()")
    distribution = _distribution(name, x.device_mesh, x.placements)
    local = x.detach().to_local()
    if hasattr(local, "wait"):  # of a redistribution that is still on its way
        local = local.wait()
    view = TENSORS.view(name, local)[0]
    expected = distribution.share(tuple(x.shape), communicator.rank, communicator.size).shape
    if view.shape != expected:
        raise ValueError(
            f"{name}: local shape {view.shape} on process {communicator.rank} of the mesh; expected {expected}, as "
            "placements cut it"
        )
    return Array(view, tuple(x.shape), distribution, communicator)


def _distribution(name: str, mesh: Any, placements: Sequence[Any]) -> Chunked:
    """The distribution that placements are.

    Raises
    ------
    TypeError, ValueError
    """
    if len(placements) != mesh.ndim:
        raise ValueError(
            f"{name}: {len(placements)} placements; expected {mesh.ndim}, one for each dimension of the mesh"
        )
    axes: list[int | None] = []
    for each in placements:
        if type(each) is Replicate:
            axes.append(None)
        elif type(each) is Shard and -2 <= each.dim < 2:
            axes.append(each.dim % 2)
        elif name != "placements" and getattr(each, "is_partial", bool)():
            raise ValueError(
                f"{name}: placement {each!r}, whose parts PyTorch would add in floating point; use {name}.redistribute"
                f"(placements={[Replicate() if other is each else other for other in placements]!r})"
            )
        else:
            raise ValueError(f"{name}: placement {each!r}; expected Shard(0), Shard(1) or Replicate()")
    return Chunked(tuple(mesh.shape), tuple(axes))
