"""A forked process, which has none of the other threads, multiplies whatever these were about to do."""

import gc
import os
import sys
import threading
import weakref
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import pytest
from children import in_child

import ozaki
from ozaki import caches
from ozaki.account import Account
from ozaki.backends.numpy import _threads
from ozaki.caches import Cache
from ozaki.functions import emulation
from ozaki.functions.replacing import Replacement
from ozaki.locks import Lock, _locks
from ozaki.planning.question import Question
from ozaki.records.shapes import Shapes

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forked processes")


@contextmanager
def meanwhile(context):
    """Another thread is within a context."""
    inside, go = threading.Event(), threading.Event()

    def hold():
        with context:
            inside.set()
            go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert inside.wait(30)
        yield
    finally:
        go.set()
        thread.join()


LOCKS = {
    "of tables": lambda: caches._caches["backends.numpy.engines.residues.tables_of"].large._changing.held,
    "of emulate": lambda: emulation._lock.held,
    "of BLAS": lambda: _threads._changing.held,
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_another_thread_holds_is_free(name):
    a = np.ones((2, 2))
    ozaki.matmul(a, a, scheme="residues", slices=60)  # which imports modules

    def work():
        ozaki.clear_caches()
        with ozaki.emulate("fp64") as run, _threads._lowered(1):
            np.dot(a, a)
        return run.account.products == 1 and (ozaki.matmul(a, a, scheme="residues", slices=160) == 2).all()

    with meanwhile(LOCKS[name]()):
        assert in_child(work)
    assert type(np.dot) is type(np.inner)


def test_locks_of_accounts_and_caches_are_free():
    account, cache = Account(), Cache(3)

    def work():
        account.pass_by()
        return cache.put("a", 1) and account.outside == 1

    with meanwhile(account._lock.held), meanwhile(cache._changing.held):
        assert in_child(work)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="these properties have no locks")
@pytest.mark.parametrize("of", [Shapes, Question])
def test_locks_of_properties_are_free(of):
    a = np.ones((3, 3))
    name, found = next((name, each) for name, each in vars(of).items() if isinstance(each, cached_property))
    with meanwhile(found.lock):
        assert in_child(lambda: vars(of)[name].lock.acquire(timeout=1) and (ozaki.matmul(a, a) == 3).all())


def test_a_lock_of_the_thread_that_forks_is_still_its_own():
    lock = Lock()

    def work():
        with lock.held:
            return True

    with lock.held:
        assert in_child(work)


def test_a_lock_is_freed_with_its_owner():
    account = Account()
    seen = weakref.ref(account._lock)
    assert seen() in _locks
    del account
    gc.collect()
    assert seen() is None


def test_a_thread_may_take_a_lock_once_more():
    """As a signal's handler does that prints the account of a block which the thread counts in."""
    account = Account()
    with account._lock.held:
        account.pass_by()
        assert "1 call" in str(account)


def test_blocks_of_other_threads_end():
    """Functions are NumPy's own again, but within a block of the thread that forks."""
    run, own = ozaki.emulate("fp64"), ozaki.emulate("fp64")
    a = np.eye(2)

    def natively():
        np.dot(a, a)
        return not isinstance(np.dot, Replacement) and run.account.outside == 0

    def in_own_block():
        np.dot(a, a)
        own.__exit__(None, None, None)
        return own.account.products == 1 and natively()

    with meanwhile(run):
        assert in_child(natively)
        with own:
            assert in_child(in_own_block)
        assert isinstance(np.dot, Replacement)


class Library:
    """A library for linear algebra that has a number of threads, and the only one."""

    num_threads = 4
    lib_controllers = property(lambda self: [self])

    def limit(self, limits):
        self.num_threads = limits
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.num_threads = 4


def test_threads_of_blas_are_restored(monkeypatch):
    library = Library()
    monkeypatch.setattr(_threads, "libraries", lambda: library)
    with meanwhile(_threads._lowered(1)):
        assert in_child(lambda: library.num_threads == 4)
        assert library.num_threads == 1
    assert library.num_threads == 4 and not _threads._limited
    with _threads._lowered(1):
        assert in_child(lambda: library.num_threads == 1)
