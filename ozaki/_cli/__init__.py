"""The command line `ozaki`.

Exit codes: 0 fine, 1 a check failed, 2 bad usage or input, 3 a fault of the program, with a traceback; as ever, 128 and
the number of a signal where one ends it.
"""

from ozaki._cli.program import main

__all__ = ["main"]
