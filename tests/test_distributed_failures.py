"""A process that dies or fails in the middle of a product ends the others at once, and nothing is half written."""

import time

import numpy as np
import pytest
from launching import with_gloo, with_mpi

from ozaki import distributed
from ozaki.distributed import ProcessError, Slab
from ozaki.distributed.communicators.threads import run


@pytest.mark.parametrize(
    ("launch", "how", "timeout"),
    [
        (with_gloo, "dies", 60.0),
        (with_gloo, "fails", 60.0),
        (with_mpi, "dies", 4.0),  # mpiexec, which would kill the others, is told not to: they wait for their limit
        (with_mpi, "fails", 60.0),
    ],
)
def test_the_others_know_at_once(launch, how, timeout):
    """The program asserts that operands are what they were; a result is returned whole, or not at all."""
    first, broken, last = launch("breaking", 3, how, timeout=timeout)
    if how == "dies":
        assert broken is None
    else:
        assert broken["error"] == "KeyError" and "panel 2" in broken["message"]
    for each in (first, last):
        assert each is not None
        assert (each["error"], each["named"], each["step"]) == ("ProcessError", 1, "multiplying"), each
        assert each["seconds"] < 30


@pytest.mark.parametrize(("launch", "timeout"), [(with_gloo, 1.5), (with_mpi, 1.5), (with_mpi, 30.0)])
def test_who_computes_longer_than_the_time_limit_is_missing(launch, timeout):
    first, slow, last = launch("breaking", 3, "takes long", timeout=timeout)
    if timeout > 10:
        assert {each["result"] for each in (first, slow, last)} == {"all ended well"}
    else:
        for each in (first, last):
            assert (each["error"], each["named"]) == ("ProcessError", 1), each


def test_threads_that_catch_their_error_tell_the_others_first(monkeypatch):
    monkeypatch.setattr("ozaki.records.progress._INTERVAL", 0.0)
    told = []

    def work(communicator):
        a = distributed.array(np.ones((3, 40_000)), Slab.X, communicator)

        def progress(done, total, unit):
            if communicator.rank == 1:
                raise KeyError("stop")

        try:
            distributed.matmul(a, a.T, Slab.Y, scheme="residues", slices=10, layers=1, progress=progress)
        except KeyError:
            time.sleep(1)  # it has not ended
        except ProcessError as error:
            told.append((error.rank, error.what))

    begun = time.monotonic()
    run(3, work, 60.0)
    assert time.monotonic() - begun < 30
    assert told == [(1, "KeyError: 'stop'")] * 2


def test_errors_that_are_alike_leave_all_able_to_go_on():
    x = np.random.default_rng(0).standard_normal((6, 6))
    plan = distributed.plan((6, 6), (6, 6), 3, dtype="float64", scheme="residues", slices=14).plan

    def work(communicator):
        a = distributed.share_of(x, Slab.X, communicator)
        b = distributed.share_of(x[:5, :5], Slab.X, communicator)
        with pytest.raises(ValueError, match="plan: "):
            distributed.matmul(b, b, plan=plan)
        return distributed.matmul(a, a, plan=plan).gather()

    first, *others = run(3, work, 20.0)
    assert all(np.array_equal(first, each) for each in others)
