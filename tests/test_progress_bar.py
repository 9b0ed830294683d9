"""The bar that the command line shows on a terminal while it works."""

import io
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from ozaki._cli import printing
from ozaki._cli.commands import app
from ozaki._cli.printing import Steps


def on_a_terminal(*words, before="pass"):
    """What the command line writes to standard error on a terminal, after some code of `before`."""
    pty = pytest.importorskip("pty", reason="this system has no terminals of this kind")
    main, other = pty.openpty()
    code = f"{before}\nimport sys\nfrom ozaki._cli.program import main\nsys.argv = {['ozaki', *words]!r}\nmain()"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.Popen([sys.executable, "-c", code], stderr=other, stdout=subprocess.DEVNULL, env=environment)
    os.close(other)
    written = b""
    try:
        while piece := os.read(main, 4096):
            written += piece
    except OSError:  # the other side is closed
        pass
    os.close(main)
    assert done.wait() == 0
    return written.decode()


AT_ONCE = """
from ozaki.records import progress
from ozaki._cli import printing
printing._DELAY = progress._INTERVAL = 0.0
"""


def test_a_bar_appears_after_a_while_and_vanishes(rng, tmp_path):
    large, small, c = (str(tmp_path / f"{name}.npy") for name in ("large", "small", "c"))
    np.save(large, rng.standard_normal((1100, 1100)))  # many times as long as the bar takes to be drawn anew
    np.save(small, np.eye(3))
    text = on_a_terminal("multiply", large, large, "-o", c, "--accuracy", "fp64", "--reproducible", before=AT_ONCE)
    assert "steps of the product" in text and "multiplying" in text
    assert text.endswith("\x1b[2K")  # the line is cleared
    later = "from ozaki._cli import printing; printing._DELAY = 300.0"
    assert on_a_terminal("multiply", small, small, "-o", c, before=later) == ""  # what is done sooner has no bar


@pytest.mark.parametrize("words", [["multiply", "a.npy", "a.npy", "-o", "c.npy"], ["verify", "a.npy", "a.npy"]])
def test_commands_tell_how_far_the_product_is(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.eye(3))
    told = []
    monkeypatch.setattr(Steps, "of_product", lambda steps, *call: told.append(call))
    assert CliRunner().invoke(app, words).exit_code == 0
    assert told == [(1, 1, "products")]


class Terminal(Console):
    is_terminal = True


def test_the_bar_stops_when_the_command_fails(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(printing, "err", Terminal(file=written, force_terminal=True, width=100))
    monkeypatch.setattr(printing, "_DELAY", 0.0)

    def fail():
        with printing.progress(False, 3) as step:
            step("multiplying")
            deadline = time.monotonic() + 10
            while "steps of the product" not in written.getvalue() and time.monotonic() < deadline:
                step.of_product(1, 3, "steps")
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert "steps of the product" in written.getvalue()
    size = len(written.getvalue())
    time.sleep(0.2)
    assert len(written.getvalue()) == size


def test_steps_without_a_bar():
    steps = Steps(None, 3)
    steps("multiplying")
    steps.of_product(1, 2, "steps")
