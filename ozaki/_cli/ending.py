"""The end of a command line: its exit code, and one line that says what was wrong."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import typer
import typer.core

from ozaki._cli.echo import one_line
from ozaki._cli.printing import err

BAD_INPUT = 2
_INTERRUPTED = 128 + signal.SIGINT

# The base class of the errors that Typer raises for a command line that it does not understand; Typer exports no name
# for it.
_UsageError: Any = typer.BadParameter.__base__


class Commands(typer.core.TyperGroup):
    """Commands that report errors in the input in one line, without a traceback, and end with exit code 2."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line, and end the process with its exit code."""
        code: Any = None
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
            if sys.stdout is not None:  # as it is where it was closed
                sys.stdout.flush()
        except _UsageError as error:
            message = error.format_message().rstrip(".")
            if message:  # there is none for an empty command line, for which help has been printed
                complain(f"error: {message}; see `{error.ctx.command_path} --help`")
            code = BAD_INPUT
        except OSError as error:
            if code != BAD_INPUT:  # else the command has said so
                complain(f"error: standard output: {error.strerror}")
            # What is left in its buffer is written when Python ends, and would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = BAD_INPUT
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the command line names."""
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError, OverflowError, OSError, MemoryError, ImportError, NotImplementedError) as error:
            complain(f"error: {str(error) or type(error).__name__}")
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(_INTERRUPTED) from None


def complain(message: str) -> None:
    """Print a message on standard error, as one line."""
    err.print(one_line(message), style="red", markup=False, soft_wrap=True)
