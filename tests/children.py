"""Functions run in a forked process."""

import os
import signal
import time
import warnings


def in_child(function):
    """Whether a function returns something true, within some seconds, in a forked process."""
    with warnings.catch_warnings():  # of Python and of JAX, that the child may wait for a thread that it has not
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + 20
    while (found := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    if not found[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return found == (child, 0)
