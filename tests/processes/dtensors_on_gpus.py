"""Products of DTensors on GPUs: whether each process has its part of the product of one, by placements."""

import itertools

import launching
import numpy as np
import torch
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh

import ozaki
from ozaki import distributed


def work(communicator):
    device = communicator.rank % torch.cuda.device_count()
    torch.cuda.set_device(device)
    mesh = init_device_mesh("cuda", (communicator.size,))
    rng, found = np.random.default_rng(58), {}
    a, b = rng.standard_normal((9, 203)), rng.standard_normal((203, 7))
    want = ozaki.matmul(a, b, scheme="residues", slices=14)
    for places in itertools.product((Shard(0), Shard(1), Replicate()), repeat=2):
        x, y = (part(each, place, mesh, device) for each, place in zip((a, b), places, strict=True))
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                x, y = x * 2, y / 2  # on this stream: what is read has to wait for it
                c = distributed.matmul(x, y, placements=[places[0]], scheme="residues", slices=14)
            stream.synchronize()
            mine = part(want, places[0], mesh, device).to_local()
            found[f"{places}"] = c.to_local().is_cuda and torch.equal(c.to_local(), mine)
    return found


def part(x, place, mesh, device):
    """The share of this process, as DTensor cuts it, as a DTensor."""
    local = torch.from_numpy(x).to(device)
    if isinstance(place, Shard):
        each = -(-x.shape[place.dim] // mesh.size())
        first = min(mesh.get_rank() * each, x.shape[place.dim])
        local = local.narrow(place.dim, first, min(each, x.shape[place.dim] - first)).contiguous()
    return DTensor.from_local(local, mesh, [place], shape=torch.Size(x.shape), stride=(x.shape[1], 1))


if __name__ == "__main__":
    launching.main(work)
