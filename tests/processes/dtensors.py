"""Products of DTensors of many placements, by the four processes of a group of PyTorch that run this."""

import hashlib
import itertools

import launching
import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

import ozaki
from ozaki import distributed
from ozaki.distributed import Chunked, ProcessError, Slab

METHODS = {"14 residues": {"scheme": "residues", "slices": 14}, "fp64": {"accuracy": "fp64"}}

PLACES = [Shard(0), Shard(1), Replicate()]


def digest(c):
    return hashlib.sha256(np.ascontiguousarray(c).tobytes()).hexdigest()


def operands(m=5, k=203, n=7):
    rng = np.random.default_rng(57)
    return torch.from_numpy(rng.standard_normal((m, k))), torch.from_numpy(rng.standard_normal((k, n)))


def work(communicator):
    checks = [chunks, lines, planes, parts_of_the_world, keywords, combines, refuses, shares]
    for check in checks:
        check()
    return [check.__name__ for check in checks]


def chunks():
    """Shares are those that PyTorch computes, of even, uneven and empty chunks."""
    for shape in ((4,), (2, 2), (1, 4), (2, 1, 2)):
        mesh = init_device_mesh("cpu", shape)
        for extents in ((8, 4), (5, 7), (1, 3), (0, 2), (9, 0)):
            for places in itertools.product(PLACES, repeat=len(shape)):
                local, offset = compute_local_shape_and_global_offset(extents, mesh, places)
                of = Chunked(shape, tuple(getattr(place, "dim", None) for place in places))
                rows, cols = of.share(extents, torch.distributed.get_rank(), 4)
                assert (len(rows), len(cols)) == tuple(local)
                for numbers, first in zip((rows, cols), offset, strict=True):
                    assert not numbers or numbers.start == first
                assert of.shape_of([of.share(extents, rank, 4).shape for rank in range(4)]) == extents


def same(c, places, wanted):
    """Whether a DTensor has these placements, and the elements of a product of one process."""
    assert type(c) is DTensor and c.placements == tuple(places) and tuple(c.shape) == wanted.shape
    assert c.to_local().shape == distribute_tensor(torch.from_numpy(wanted), c.device_mesh, places).to_local().shape
    assert digest(c.full_tensor().numpy()) == digest(wanted)


def every(mesh, method):
    a, b = operands()
    wanted = ozaki.matmul(a.numpy(), b.numpy(), reproducible=True, **method)
    for number, (of_a, of_b) in enumerate(itertools.product(itertools.product(PLACES, repeat=mesh.ndim), repeat=2)):
        if mesh.ndim > 1 and number % 5 and of_a != of_b:
            continue
        x, y = distribute_tensor(a, mesh, of_a), distribute_tensor(b, mesh, of_b)
        places = [
            Shard(0) if left == Shard(0) else Shard(1) if right == Shard(1) else Replicate()
            for left, right in zip(of_a, of_b, strict=True)
        ]
        same(distributed.matmul(x, y, **method), places, wanted)
        if number % 3 == 0:
            same(distributed.matmul(x, y, placements=of_b, **method), of_b, wanted)


def lines():
    for method in METHODS.values():
        every(init_device_mesh("cpu", (4,)), method)


def planes():
    every(init_device_mesh("cpu", (2, 2)), METHODS["14 residues"])


def parts_of_the_world():
    """Meshes of some processes only; the others go on. Ranks ascend: else PyTorch 2.13 itself scatters wrongly."""
    a, b = operands()
    wanted = ozaki.matmul(a.numpy(), b.numpy(), accuracy="fp64", reproducible=True)
    for ranks in ([0, 1, 3], [[0], [2]]):
        mesh = torch.distributed.device_mesh.DeviceMesh("cpu", ranks)
        places = [Shard(0), Replicate()][: mesh.ndim]
        if mesh.get_coordinate() is None:
            with pytest.raises(TypeError, match=r"device mesh of torch.distributed that this process is in"):
                distributed.array(np.ones((2, 2)), Slab.X, mesh)
            continue
        x, y = distribute_tensor(a, mesh, places), distribute_tensor(b, mesh, places)
        same(distributed.matmul(x, y, accuracy="fp64"), places, wanted)
    torch.distributed.barrier()


def keywords():
    """A report, layers along k, transposes, complex and float32 elements, a process without rows."""
    mesh = init_device_mesh("cpu", (2, 2))
    a, b = operands(3, 40, 4)
    for dtype in (torch.float32, torch.complex128, torch.complex64):
        x, y = ((each if dtype == torch.float32 else each * (1 + 2j)).to(dtype) for each in (a, b))
        wanted = ozaki.matmul(x.numpy(), y.numpy(), accuracy="fp32", reproducible=True)
        of = [Shard(0), Shard(0)]
        found, report = distributed.matmul(
            distribute_tensor(x, mesh, of), distribute_tensor(y.t().contiguous(), mesh, of).t(), accuracy="fp32",
            layers=4, return_report=True, timeout=20.0,
        )  # fmt: skip
        same(found, of, wanted)
        assert report.sharing.layers == len(report.processes) == 4
    x = distribute_tensor(a * (1 + 2j), mesh, [Shard(1), Shard(0)])
    wanted = ozaki.matmul((a * (1 + 2j)).numpy(), (a * (1 + 2j)).numpy().conj().T, accuracy="fp64", reproducible=True)
    same(distributed.matmul(x, x.conj().t(), accuracy="fp64"), [Replicate(), Shard(0)], wanted)


def combines():
    mesh = init_device_mesh("cpu", (2, 2))
    a, b = operands()
    c = torch.from_numpy(np.random.default_rng(58).standard_normal((5, 7)))
    wanted = ozaki.gemm(2.0, a.numpy(), b.numpy(), -0.5, c.numpy(), accuracy="fp64", reproducible=True)
    x, y = distribute_tensor(a, mesh, [Shard(1), Shard(0)]), distribute_tensor(b, mesh, [Replicate(), Shard(0)])
    z = distribute_tensor(c, mesh, [Shard(1), Shard(1)])
    same(distributed.gemm(2.0, x, y, -0.5, z, accuracy="fp64"), [Shard(1), Shard(1)], wanted)
    places = [Shard(1), Shard(0)]
    same(distributed.gemm(2.0, x, y, -0.5, z, accuracy="fp64", placements=places), places, wanted)
    wanted = ozaki.gemm(2.0, a.numpy(), b.numpy(), 0, None, accuracy="fp64", reproducible=True)
    same(distributed.gemm(2.0, x, y, 0, None, accuracy="fp64"), [Replicate(), Shard(0)], wanted)
    assert torch.equal(z.full_tensor(), c)


def refuses():
    mesh, other = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    x = distribute_tensor(torch.ones(4, 4, dtype=torch.float64), mesh, [Shard(0)])
    partial = DTensor.from_local(torch.ones(4, 4, dtype=torch.float64), mesh, [Partial()])
    elsewhere = distribute_tensor(torch.ones(4, 4, dtype=torch.float64), other, [Shard(0), Shard(1)])
    rank = torch.distributed.get_rank()
    for operand, error, match in (
        (partial, ValueError, r"b: placement Partial\(sum\), whose parts .*; use b.redistribute\(placements=\[Repl"),
        (elsewhere, ValueError, "b: on DeviceMesh.* expected DTensors on one mesh"),
        (x.bfloat16(), TypeError, r"b: dtype torch.bfloat16; .*; use b.float\(\)"),
        (x.half(), TypeError, r"b: dtype torch.float16; .*; use b.float\(\)"),
        (x.long(), TypeError, "b: dtype torch.int64"),
        (x.detach().requires_grad_(), TypeError, r"b: requires a gradient.*; use b.detach\(\)"),
        (x.redistribute(placements=[Replicate()]).view(2, 2, 4), ValueError, "b: 3 axes"),
        (torch.ones(4, 4), TypeError, "b: Tensor beside DTensors"),
    ):
        with pytest.raises(error, match=match):
            distributed.matmul(x, operand)
    with pytest.raises(ValueError, match=r"placements: placement Partial\(sum\); expected Shard\(0\)"):
        distributed.matmul(x, x, placements=[Partial()])
    with pytest.raises(ValueError, match=r"placements: 2 placements; expected 1"):
        distributed.matmul(x, x, placements=[Shard(0), Shard(0)])
    with pytest.raises(TypeError, match=r"distribution: Slab.X of DTensors; use placements"):
        distributed.matmul(x, x, Slab.X)
    with pytest.raises(ValueError if rank else ProcessError, match=r"placements: placement Partial"):
        distributed.matmul(x, x, placements=[Partial() if rank else Shard(0)])  # one is named to those that are right
    with pytest.raises(ValueError, match=r"distribution: .* on process 0, but .* on process 2"):
        distributed.matmul(x, x, placements=[Shard(0 if rank < 2 else 1)])
    for match, call in (
        ("a: DTensor, of which each process holds a share; use ozaki.distributed.matmul", lambda: ozaki.matmul(x, x)),
        ("local: DTensor, which is shared out already", lambda: distributed.array(x, Slab.X)),
    ):
        with pytest.raises(TypeError, match=match):
            call()


def shares():
    """Tensors as shares, and a mesh in the place of a communicator."""
    mesh = init_device_mesh("cpu", (2, 2))
    local = torch.full((2, 3), torch.distributed.get_rank() + 1.0, dtype=torch.float64)
    a = distributed.array(local, Chunked((2, 2), (0, 1)), mesh, timeout=20.0)
    assert a.shape == (4, 6) and a.communicator.timeout == 20
    assert np.shares_memory(a.local, local.numpy())
    assert a.gather()[:, 0].tolist() == [1, 1, 3, 3] and a.gather()[0].tolist() == [1, 1, 1, 2, 2, 2]
    assert distributed.matmul(a, a.T, accuracy="exact").gather()[0, 0] == 15
    with pytest.raises(TypeError, match="placements: of DTensors alone; use distribution"):
        distributed.matmul(a, a.T, placements=[Shard(0)])
    for wrong, match in (
        (local.bfloat16(), r"local: dtype torch.bfloat16; .* use local.float\(\)"),
        (local.clone().requires_grad_(), "local: requires a gradient"),
    ):
        with pytest.raises(TypeError, match=match):
            distributed.array(wrong, Slab.X, mesh)


if __name__ == "__main__":
    launching.main(work)
