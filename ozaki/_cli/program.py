"""The program `ozaki`: runs the command line on standard streams, and reports its own faults."""

from __future__ import annotations

import sys
import traceback

from ozaki._cli.commands import app
from ozaki._cli.streams import open_standard_streams

_FAULT = 3
"""Exit code for a fault of the program itself."""


def main() -> None:
    """Run the command line of this process, and end the process with its exit code."""
    open_standard_streams()
    try:
        app()
    except Exception:
        traceback.print_exc()
        sys.exit(_FAULT)
