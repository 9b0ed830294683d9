"""The command line `ozaki`.

Exit codes: 0 fine, 1 a check failed, 2 bad usage or input, 3 a fault of the program, with a traceback; 128 plus the
number of a signal, as usual, if that ended the program.
"""

import sys


def main() -> None:
    """Run the command line of this process, and end the process with its exit code."""
    try:
        from ozaki._cli import program
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("typer", "rich"):
            raise
        sys.stderr.write(f"error: the command line needs {error.name}: pip install typer rich\n")
        sys.exit(2)
    program.main()


__all__ = ["main"]
