"""The engines that run processes: threads, a group of PyTorch on gloo, MPI. All pass the same checks."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from launching import ROOT, with_gloo, with_mpi, with_threads

from ozaki.distributed.communicators import communicator_of
from ozaki.distributed.communicators.communicator import Message, ProcessError
from ozaki.distributed.communicators.threads import ThreadGroup, run


def test_protocol_of_threads():
    assert len(set(map(tuple, with_threads("protocol", 3)))) == 1


@pytest.mark.parametrize("launch", [with_gloo, with_mpi])
def test_protocol(launch):
    for each in launch("protocol", 3):
        assert each is not None and "result" in each, each
        assert "exchanges_much" in each["result"]


@pytest.mark.parametrize(
    ("launch", "how", "where"),
    [
        (with_gloo, "ends", "receiving"),
        (with_gloo, "stays", "gathering"),
        (with_mpi, "ends", "receiving"),
        (with_mpi, "stays", "gathering"),
        (with_mpi, "sends less", "receiving"),  # gloo takes it for the whole array
    ],
)
def test_a_missing_process_is_named(launch, how, where):
    *others, missing = launch("failing", 3, how, where, timeout=2.0)
    assert missing is None
    for each in others:
        assert each is not None
        assert (each["error"], each["named"], each["step"]) == ("ProcessError", 2, where), each
        assert each["seconds"] < 10


@pytest.mark.parametrize("where", ["gathering", "receiving"])
def test_a_thread_that_fails_ends_the_others_at_once(where):
    errors = {}

    def work(communicator):
        communicator.all_gather(None, "beginning")
        if communicator.rank == 2:
            raise KeyError("row")
        try:
            if where == "gathering":
                communicator.all_gather(None, where)
            communicator.start([], [Message(communicator.rank + 1, np.zeros(3))], where).wait()
        except ProcessError as error:
            errors[communicator.rank] = error
            raise

    begun = time.monotonic()
    with pytest.raises(KeyError, match="row"):
        run(3, work, 30.0)
    assert time.monotonic() - begun < 10
    assert sorted(errors) == [0, 1]
    for error in errors.values():
        assert (error.rank, error.step) == (2, "beginning") and "KeyError: 'row'" in str(error)


def test_a_thread_that_ends_or_stays_is_named():
    def ends(communicator):
        if communicator.rank:
            communicator.all_gather(None, "gathering")

    with pytest.raises(ProcessError, match="process 0, while gathering: has ended"):
        run(3, ends, 30.0)

    go = threading.Event()

    def stays(communicator):
        if communicator.rank == 2:
            go.wait(10)
        else:  # 0 waits for 1, which waits for 2, and finds out first
            time.sleep(0.2 * (communicator.rank == 0))
            try:
                communicator.start([], [Message(communicator.rank + 1, np.zeros(3))], "receiving").wait()
            except ProcessError as error:
                return error
            finally:
                if communicator.rank == 0:
                    go.set()
        return None

    found = run(3, stays, 1.0)
    assert [error.rank for error in found[:2]] == [2, 2]
    assert "does not answer within 1 s" in str(found[1])


def test_threads_refuse_what_does_not_fit():
    def sends_another(communicator):
        other = 1 - communicator.rank
        sends = [Message(other, np.zeros(3 + communicator.rank))]
        communicator.start(sends, [Message(other, np.zeros(3))], "exchanging").wait()

    with pytest.raises(ValueError, match=r"array of shape \(4,\), float64, is sent where one of shape \(3,\)"):
        run(2, sends_another, 10.0)
    with pytest.raises(ValueError, match="message from 0 to 0"):
        run(2, lambda own: own.start([Message(own.rank, np.zeros(1))], [], "sending"), 10.0)
    with pytest.raises(ValueError, match="size: 0"):
        ThreadGroup(0)
    with pytest.raises(ValueError, match="timeout: 0"):
        run(1, lambda own: None, 0.0)
    assert run(1, lambda own: own.all_gather(own.size, "gathering"), 1.0) == [[1]]


def test_a_communicator_stands_for_itself():
    own = ThreadGroup(2).communicator(1)
    assert communicator_of(own) is own
    with pytest.raises(TypeError, match="communicator: int; expected a process group"):
        communicator_of(3)


def test_nothing_is_imported_by_itself():
    text = """
import sys
from ozaki.distributed.communicators import communicator_of
try:
    communicator_of()
except RuntimeError as error:
    assert "torchrun" in str(error) and "mpiexec" in str(error)
else:
    raise AssertionError
assert "torch" not in sys.modules and "mpi4py" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=200, cwd=ROOT)
