"""Threads of BLAS: no more than the process may use CPUs, and than it asks for, while the library multiplies.

BLAS starts as many threads as the machine has CPUs, whatever the quota of a container. They wait for one another
actively, which uses the quota up: a product then takes many times as long as by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import get_ident
from typing import Any

from threadpoolctl import ThreadpoolController

from ozaki.caches import cached
from ozaki.locks import Lock, after_fork
from ozaki.process.threads import threads_of_blas


@cached(1)
def libraries() -> Any:
    """The BLAS libraries of this process, with their numbers of threads."""
    return ThreadpoolController().select(user_api="blas")


_changing = Lock()
"""Held while the numbers are read and set."""


def within_cpus() -> AbstractContextManager[Any]:
    """A context in which BLAS has no more threads than this process may use CPUs, and after it as many as before.

    It has fewer where fewer were asked for (`ozaki.set_num_threads`, `OZAKI_NUM_THREADS`). The number is one of the
    process: where several threads of Python multiply, the first to enter lowers it, and restores it when it leaves.
    """
    most = threads_of_blas()
    return _lowered(most) if _has_more_threads(most) else nullcontext()


def _has_more_threads(most: int) -> bool:
    return any(each.num_threads > most for each in libraries().lib_controllers)


@contextmanager
def _lowered(most: int) -> Iterator[None]:
    limited = None
    try:
        with _changing.held:  # else a thread could take for the number before what another one has lowered
            if _has_more_threads(most):
                limited = libraries().limit(limits=most).__enter__()
                _limited.append((get_ident(), limited))
        yield
    finally:
        if limited is not None:
            with _changing.held:
                limited.__exit__(None, None, None)
                _limited[:] = [each for each in _limited if each[1] is not limited]


_limited: list[tuple[int, Any]] = []
"""The threads that have lowered the numbers, and what restores them."""


def _forked() -> None:
    """Restore what a thread has lowered that is not there in a forked process."""
    for thread, limited in _limited:
        if thread != get_ident():
            limited.__exit__(None, None, None)


after_fork(_forked)
