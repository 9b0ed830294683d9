"""Products of PyTorch tensors: operators with gradients, and a mode that sends a whole program's products here.

`matmul`, `addmm` and `bmm` are operators of PyTorch (`torch.library`): they have gradients, also of gradients, run
under `torch.compile(fullgraph=True)` and `torch.func.vmap`, and take complex tensors, on CPUs and CUDA devices.
`ozaki.matmul` itself takes tensors, too, where no gradient is wanted, and can return a report.

Examples
--------
>>> import torch
>>> import ozaki.torch
>>> a = torch.tensor([[1e16, 1.0, -1e16]], dtype=torch.float64, requires_grad=True)
>>> b = torch.ones(3, 1, dtype=torch.float64)
>>> ozaki.torch.matmul(a, b, accuracy="dd")
tensor([[1.]], dtype=torch.float64, grad_fn=<...>)
"""

from ozaki.torch.emulation import Emulation, emulate
from ozaki.torch.functions import addmm, bmm, matmul

__all__ = ["Emulation", "addmm", "bmm", "emulate", "matmul"]
