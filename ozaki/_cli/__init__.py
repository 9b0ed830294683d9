"""The command line `ozaki`.

Exit codes: 0 fine, 1 a check failed, 2 bad usage or input.
"""

from ozaki._cli.commands import main

__all__ = ["main"]
