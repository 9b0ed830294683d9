"""Products of many layouts by processes whose shares lie on GPUs: the SHA-256 of each, by its name."""

import cupy as cp
import launching
import numpy as np
from products import METHODS, digest, layouts, operands

import ozaki
from ozaki import distributed


def expected():
    """What one call of NumPy gives, by the name of the method; rows are not scaled along k on GPUs."""
    a, b = operands()
    c, found = np.ones((a.shape[0], b.shape[1])), {}
    for name, method in METHODS.items():
        options = {**method, "reproducible": True, "inner_scaling": False}
        found[name] = digest(ozaki.matmul(a, b, **options))
        found[f"gemm, {name}"] = digest(ozaki.gemm(2.0, a, b, -0.5, c, **options))
    return found


def work(communicator):
    cp.cuda.Device(communicator.rank % cp.cuda.runtime.getDeviceCount()).use()
    (a, b), found = operands(), {}
    c = np.ones((a.shape[0], b.shape[1]))
    for name, distributions in layouts(communicator.size).items():
        x, y, z = (share(each, of, communicator) for each, of in zip((a, b, c), distributions, strict=True))
        for method, options in METHODS.items():
            product = distributed.matmul(x, y, distributions[2], **options)
            assert isinstance(product.local, cp.ndarray)
            found[f"{name}, {method}"] = method, digest(cp.asnumpy(product.gather()))
            more = distributed.gemm(2.0, x, y, -0.5, z, **options)
            found[f"{name}, gemm, {method}"] = f"gemm, {method}", digest(cp.asnumpy(more.gather()))
    return found


def share(x, of, communicator):
    """The share of this process, on its GPU."""
    return distributed.array(cp.asarray(distributed.share_of(x, of, communicator).local), of, communicator)


if __name__ == "__main__":
    launching.main(work)
