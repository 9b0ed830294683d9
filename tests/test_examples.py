"""The examples run, print what they promise, and notice products that are rounded to fewer bits."""

import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from launching import mpiexec, needs
from tiers import some_first

import ozaki

FOLDER = Path(__file__).parents[1] / "examples"

PRINTED = {
    "distributed_product": "4 processes: in each layout the bits of one process",
    "batch_bits": "the same bits in batches of (1, 7, 64)",
    "filip": "all certified digits of the coefficients",
    "fibonacci": "the recurrence in Python's integers gives the same number",
    "hilbert": "all 400 entries are those of scipy.linalg.invhilbert",
    "interpolation": "from the polynomial",
    "longley": "all certified digits are right",
    "mp2_energy": "ozaki, 200 bits",
    "newton_schulz": "bits, proven in fractions",
    "purification": "by the closed form of the eigenvalues",
    "quantum_circuit": "each state alone has the same bits",
    "refinement": "exact residuals, two float64",
    "tensor_network": "Temple's inequality allows",
    "training_bits": "the published one",
}
"""What each example prints in its last line."""

NEEDED = {"batch_bits": "torch", "mp2_energy": "pyscf", "training_bits": "torch"}
"""What some examples import that the tests do without."""


def run(name):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed, which the example imports")
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


def test_there_are_examples():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(PRINTED)


LONG = ["tensor_network", *NEEDED]
SHORT = [name for name in PRINTED if name not in LONG]


@pytest.mark.parametrize("name", some_first(len(SHORT), [*SHORT, *LONG]))
def test_an_example_runs(name, capsys):
    run(name)
    lines = capsys.readouterr().out.splitlines()
    assert PRINTED[name] in lines[-1]
    assert 3 <= len(lines) <= 12 and max(map(len, lines)) < 120


@pytest.mark.parametrize("engine", ["torch.distributed", "mpi4py"])
def test_processes_print_what_threads_do(engine, capsys):
    """The commands that the example names: each prints the same lines."""
    needs(engine)
    program = FOLDER / "distributed_product.py"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", program]
    command = torchrun if engine != "mpi4py" else [mpiexec(), "-n", "4", sys.executable, "-m", "mpi4py", program]
    more = {
        "PYTHONPATH": str(FOLDER.parent),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **more})
    assert done.returncode == 0, done.stderr
    run("distributed_product")
    assert done.stdout == capsys.readouterr().out


def rounded(x):
    """A product rounded to fewer bits than examples ask for."""
    if isinstance(x, ozaki.MPArray):
        return x.round_to(53)
    return x.astype("complex64" if x.dtype.kind == "c" else "float32").astype(x.dtype)


@pytest.mark.parametrize("name", some_first(3, [*SHORT, "tensor_network", "mp2_energy"]))
def test_an_example_notices_a_rounded_product(name, monkeypatch):
    exact = ozaki.matmul

    def less_exact(*operands, **options):
        found = exact(*operands, **options)
        return (rounded(found[0]), *found[1:]) if isinstance(found, tuple) else rounded(found)

    monkeypatch.setattr(ozaki, "matmul", less_exact)
    with pytest.raises((AssertionError, ValueError)):  # ValueError: a singular matrix, or the logarithm of 0
        run(name)


@pytest.mark.full
def test_training_notices_other_bits(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed, which the example imports")
    emulate = import_module("ozaki.torch").emulate
    monkeypatch.setattr("ozaki.torch.emulate", lambda **options: emulate(**{**options, "slices": 6}))
    with pytest.raises(AssertionError):
        run("training_bits")
