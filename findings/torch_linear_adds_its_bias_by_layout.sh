#!/usr/bin/env bash
# torch.nn.functional.linear with a bias depends on how its operand lies in memory: of a contiguous one in three
# dimensions, product and bias are rounded once; of the same numbers transposed in memory the product is rounded to
# bfloat16 first, and its sum with the bias again. 256 + 1 - 1 is 256 or 255. A batch of one sequence that was transposed
# is contiguous, one of two is not, so a row's result depends on how many others are beside it.
# seen: torch 2.13.0: contiguous 256.0, transposed 255.0
# seen: one sequence, transposed 256.0; the same one of two 255.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 torch==2.13.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch

x = torch.tensor([256.0, 1.0], dtype=torch.bfloat16).expand(3, 2, 2).contiguous()  # places, sequences, features
weight, bias = torch.ones(1, 2, dtype=torch.bfloat16), torch.full((1,), -1.0, dtype=torch.bfloat16)


def first_of(operand):
    return float(torch.nn.functional.linear(operand, weight, bias)[0, 0, 0])


batch_first = x.transpose(0, 1)
assert torch.equal(batch_first, batch_first.contiguous())
contiguous, transposed = first_of(batch_first.contiguous()), first_of(batch_first)
print(f"torch {torch.__version__.split('+')[0]}: contiguous {contiguous}, transposed {transposed}")
one = first_of(x[:, :1].contiguous().transpose(0, 1))
print(f"one sequence, transposed {one}; the same one of two {transposed}")
assert (contiguous, transposed, one) == (256, 255, 256)
PYTHON
