#!/usr/bin/env bash
# torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp, a switch among those of CUDA, decides in which format PyTorch
# multiplies bfloat16 attention on a CPU, too: by default the math backend multiplies float32 copies; after the switch
# bfloat16, with other bits and an error twice as large. So what counts the products of a program finds none of 16 bits.
# seen: torch 2.13.0 on cpu
# seen: switch False: multiplies torch.float32, gives torch.bfloat16, error 0.0036
# seen: switch True: multiplies torch.bfloat16, gives torch.bfloat16, error 0.0063
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 torch==2.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode


class Products(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "bmm" in str(function):
            self.dtypes.add(str(args[0].dtype))
        return function(*args, **(kwargs or {}))


torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 16, 64, dtype=torch.bfloat16) for _ in range(3))
exact = scaled_dot_product_attention(q.double(), k.double(), v.double())
errors = {}
print("torch", torch.__version__.split("+")[0], "on", q.device)
for switch, dtype in ((False, "torch.float32"), (True, "torch.bfloat16")):
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(switch)
    with sdpa_kernel(SDPBackend.MATH), Products() as found:
        found.dtypes = set()
        out = scaled_dot_product_attention(q, k, v)
    errors[switch] = float((out.double() - exact).abs().max())
    print(f"switch {switch}: multiplies {', '.join(found.dtypes)}, gives {out.dtype}, error {errors[switch]:.4f}")
    assert found.dtypes == {dtype} and out.dtype == torch.bfloat16
assert errors[True] > 1.5 * errors[False]
PYTHON
