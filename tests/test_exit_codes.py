"""How the program ends where standard streams fail, or somebody interrupts it."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from tiers import some_first
from typer.testing import CliRunner

import ozaki
from ozaki._cli.commands import app

OZAKI = [sys.executable, "-m", "ozaki"]
PRINTING = [["info"], ["info", "--json"], ["--help"], ["plan", "--help"], ["plan", "3x3", "3x3"]]
BAD = [["plan", "3x3", "4x4"], ["plan"], ["nothing"], ["verify", "no.npy", "no.npy"]]


def shell(script, *words):
    """Run a bash script in which "$@" is `ozaki`; return its exit code, standard output and standard error."""
    done = subprocess.run(["bash", "-c", script, "bash", *OZAKI, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", some_first(1, PRINTING))
def test_full_standard_output(words):
    code, _, message = shell('"$@" >/dev/full', *words)
    assert (code, message.count("\n")) == (2, 1)
    assert message.startswith("error: ") and message.endswith("No space left on device\n")


@pytest.mark.parametrize("words", some_first(1, PRINTING))
def test_a_pipe_that_nobody_reads(words):
    assert shell('"$@" | head -c 0; exit ${PIPESTATUS[0]}', *words) == (128 + signal.SIGPIPE, "", "")


@pytest.mark.parametrize("words", some_first(1, BAD))
def test_messages_are_one_line(words):
    code, printed, message = shell('"$@"', *words)
    assert (code, printed) == (2, "")
    assert message.startswith("error: ") and message.count("\n") == 1


def test_a_product_needs_no_standard_stream(tmp_path):
    np.save(tmp_path / "x.npy", 2 * np.eye(3))
    words = ["multiply", str(tmp_path / "x.npy"), str(tmp_path / "x.npy"), "-o", str(tmp_path / "c.npy")]
    assert shell('"$@" <&- >&- 2>&-', *words) == (0, "", "")
    assert np.array_equal(np.load(tmp_path / "c.npy"), 4 * np.eye(3))


def test_a_name_that_standard_output_cannot_encode(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    for name in ("c\u00e9.npy", "c\udcff\n.npy"):
        words = ["multiply", str(tmp_path / "x.npy"), str(tmp_path / "x.npy"), "-o", str(tmp_path / name), "--report"]
        code, printed, message = shell('PYTHONIOENCODING=ascii "$@"', *words)
        assert (code, message) == (0, "")
        assert r".npy: 3x3, float64" in printed.splitlines()[0]
        assert (tmp_path / name).exists()


def test_an_interrupted_product(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    np.save(tmp_path / "x.npy", np.eye(3))
    monkeypatch.setattr(ozaki, "matmul", interrupt)
    done = CliRunner().invoke(app, ["verify", *[str(tmp_path / "x.npy")] * 2])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_fault_of_the_program_is_no_failed_check():
    """A bug exits with 3: 1 means that a check failed, but is also Python's exit code after a traceback."""
    fault = "import ozaki; from ozaki._cli import main; ozaki.plan = lambda *_, **__: {}[0]; main()"
    done = subprocess.run(
        [sys.executable, "-c", fault, "plan", "3x3", "3x3", "--scheme", "native"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "Traceback" in done.stderr and "KeyError" in done.stderr


def test_without_what_the_command_line_needs():
    """Without typer the command line says what to install."""
    program = "import sys; sys.modules['typer'] = None; import ozaki; from ozaki._cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: the command line needs typer: pip install typer rich\n"


def test_the_library_needs_numpy_and_mpmath_alone():
    program = """
import sys
for name in ("typer", "rich", "scipy", "matplotlib", "cupy"):
    sys.modules[name] = None
import numpy as np, ozaki
assert ozaki.matmul(np.eye(2), np.eye(2), accuracy="fp64", reproducible=True).tolist() == np.eye(2).tolist()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
