#!/usr/bin/env bash
# torch.distributed on gloo: is_completed() of the work that isend and irecv return stays False after the message has
# arrived, until wait() is called: a loop that polls it, to compute meanwhile, never ends. One would guess that it becomes
# True by itself, as MPI's Test and CUDA events do; the received tensor holds its elements all the while.
# seen: torch 2.13.0+cpu
# seen: irecv, 2 s later: the tensor holds [0.0, 1.0, 2.0], is_completed False
# seen: irecv, after wait: is_completed True
# seen: isend, 2 s later: is_completed False
# seen: isend, after wait: is_completed True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat > "$folder/program.py" <<'PYTHON'
import sys
import time

import torch
import torch.distributed as dist

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
x = torch.arange(3.0) if rank == 0 else torch.full((3,), -1.0)
work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
time.sleep(2)
name, before = ("isend", "irecv")[rank], work.is_completed()
holds = f"the tensor holds {x.tolist()}, " if rank else ""
arrived = rank == 0 or x.tolist() == [0.0, 1.0, 2.0]
work.wait()
if rank == 0:
    time.sleep(1)
else:
    print(f"torch {torch.__version__}")
print(f"{name}, 2 s later: {holds}is_completed {before}")
print(f"{name}, after wait: is_completed {work.is_completed()}", flush=True)
assert arrived and not before and work.is_completed()
dist.barrier()
PYTHON
"$folder/env/bin/python" -W ignore "$folder/program.py" 0 "$folder/store" &
first=$!
"$folder/env/bin/python" -W ignore "$folder/program.py" 1 "$folder/store"
wait "$first"
