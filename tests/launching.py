"""Programs run by several processes, or by threads in their place.

A program is a file in tests/processes that has `work(communicator, *args)`, with args as strings, and ends with
`launching.main(work)`. What `work` returns becomes JSON.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "processes"


def with_threads(program, size, *args, timeout=90.0):
    """What `work` returns in each thread."""
    from ozaki.distributed.communicators.threads import run

    spec = util.spec_from_file_location(f"processes_{program}", PROGRAMS / f"{program}.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return run(size, lambda communicator: module.work(communicator, *map(str, args)), timeout)


def with_gloo(program, size, *args, timeout=90.0, limit=300.0, engine="gloo"):
    """The line of each process of a group of PyTorch: {"result": what `work` returns}, or what `main` tells of errors.

    None for a process that has written none. All are killed after `limit` seconds. `timeout` is the communicator's.
    """
    needs("torch.distributed")
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [sys.executable, PROGRAMS / f"{program}.py", engine, timeout, Path(folder, "store"), rank, size, *args]
            for rank in range(size)
        ]
        return _lines(commands, size, limit)


def with_nccl(program, size, *args, **options):
    """As `with_gloo`, of a group that moves tensors of GPUs by NCCL."""
    return with_gloo(program, size, *args, engine="nccl", **options)


def with_mpi(program, size, *args, timeout=90.0, limit=300.0):
    """As `with_gloo`, of the processes that mpiexec starts; those that are left when one ends go on."""
    needs("mpi4py")
    command = [mpiexec(), *_goes_on(), "-n", size, sys.executable, PROGRAMS / f"{program}.py", "mpi", timeout, *args]
    return _lines([command], size, limit)


def needs(module):
    """Skip a test where a module is not installed; it is not imported."""
    try:
        found = util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{module} is not installed")


def mpiexec():
    """The mpiexec beside Python, else that of the system; else the test is skipped."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("mpiexec is not installed")
    return found


def _goes_on():
    """The option by which mpiexec of MPICH does not kill the others when a process ends; Open MPI has another."""
    text = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True).stdout
    return ["-disable-auto-cleanup"] if "HYDRA" in text else ["--continuous"]


def _lines(commands, size, limit):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "TESTS_LIMIT": str(int(limit) + 5),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    found, errors = [None] * size, []
    with tempfile.TemporaryDirectory() as folder:
        started, end = [], time.monotonic() + limit
        try:
            for place, command in enumerate(commands):
                with open(Path(folder, f"{place}.out"), "wb") as out, open(Path(folder, f"{place}.err"), "wb") as err:
                    started.append(
                        subprocess.Popen(
                            [str(word) for word in command],
                            stdin=subprocess.DEVNULL,
                            stdout=out,
                            stderr=err,
                            env=environment,
                            start_new_session=True,
                        )
                    )
            for each in started:
                try:
                    each.wait(max(end - time.monotonic(), 0))
                except subprocess.TimeoutExpired:
                    errors.append(f"not ended within {limit} s")
        finally:
            for each in started:
                each.terminate()  # mpiexec ends the processes that it has started; none where it has ended
            for each in started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.wait(2)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.pid, signal.SIGKILL)
                each.wait()
        for place in range(len(commands)):
            for line in Path(folder, f"{place}.out").read_text().splitlines():
                if line.startswith('{"rank"'):
                    each = json.loads(line)
                    found[each.pop("rank")] = each
            errors.append(Path(folder, f"{place}.err").read_text())
    print(*errors, sep="\n")  # shown where a test fails
    return found


def main(work):
    """What a program does in each process: its line is written, and it ends."""
    signal.alarm(int(os.environ["TESTS_LIMIT"]))  # kills this process, even if nobody is left who would
    engine, timeout, *args = sys.argv[1:]
    if engine != "mpi":
        import torch.distributed as dist

        store, rank, size, *args = args
        backend = "gloo" if engine == "gloo" else "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, init_method=f"file://{store}", rank=int(rank), world_size=int(size))
    else:
        from mpi4py import MPI

    from ozaki.distributed.communicators import communicator_of

    communicator = communicator_of(None, float(timeout))
    begun = time.monotonic()
    try:
        line = {"result": work(communicator, *args)}
    except Exception as error:
        traceback.print_exc()
        line = {
            "error": type(error).__name__,
            "message": str(error),
            "named": getattr(error, "rank", None),
            "step": getattr(error, "step", None),
        }
    line = {"rank": communicator.rank, **line, "seconds": time.monotonic() - begun}
    os.write(1, (json.dumps(line) + "\n").encode())  # at once: lines of several processes come through one pipe
    if "error" in line:
        if engine == "mpi" and "Open MPI" in MPI.Get_library_version():
            time.sleep(2)  # it lets the others go on when one process has ended, but not when two have
        os._exit(1)  # MPI waits for all processes where one ends as usual
    if engine != "mpi":
        dist.destroy_process_group()
