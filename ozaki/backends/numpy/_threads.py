"""Threads of BLAS: no more than the process may use CPUs, while the library multiplies.

BLAS starts as many threads as the machine has CPUs, whatever the quota of a container. They wait for one another
actively, which uses the quota up: a product then takes many times as long as by one thread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from ozaki import _cpus


@cache
def libraries() -> Any:
    """The BLAS libraries of this process, with their numbers of threads."""
    return ThreadpoolController().select(user_api="blas")


def within_cpus() -> AbstractContextManager[Any]:
    """A context in which BLAS has no more threads than this process may use CPUs, and after it as many as before.

    The number is one of the process: where several threads of Python multiply, the first to enter lowers it, and
    restores it when it leaves.
    """
    cpus, found = _cpus.usable(), libraries()
    if all(each.num_threads <= cpus for each in found.lib_controllers):
        return nullcontext()
    limited: AbstractContextManager[Any] = found.limit(limits=cpus)
    return limited
