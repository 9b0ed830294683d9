"""The program `ozaki`: runs the command line on standard streams, and reports its own faults."""

from __future__ import annotations

import io
import signal
import sys
import traceback

from ozaki._cli.commands import app

_FAULT = 3
"""Exit code for a fault of the program itself."""


def main() -> None:
    """Run the command line of this process, and end the process with its exit code."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly, as other programs do, where nobody reads a pipe
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may have any characters
    try:
        app()
    except Exception:
        traceback.print_exc()
        sys.exit(_FAULT)
