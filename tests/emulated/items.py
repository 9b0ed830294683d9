"""Tests of an emulated device run in a child process, one for each device: only there CuPy's place can be taken.

pytest collects such a test as any other. To run it, the parent sends the test's name to the child, which has collected
the same files. The child runs it as pytest runs any test, and sends back pytest's reports: a failure shows the
assertion with its values, as if it had happened in the parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import seeds  # type: ignore[import-not-found]

CAPABILITIES = {"emulated Ampere": "80", "emulated Hopper": "90"}
"""Compute capabilities, by the name of the device."""


def device_of(item: pytest.Item) -> str | None:
    """The name of the device that a test runs on, if it takes the fixture `device`."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("device") if callspec else None


# In the parent -------------------------------------------------------------------------------------------------------


class EmulatedItem(pytest.Function):
    """A test that the child process of its device runs. The parent sets up none of its fixtures."""

    def setup(self) -> None:
        pass

    def runtest(self) -> None:
        reports = child_of(self).run(self.nodeid)
        for heading, text in reports[-1].sections:  # such as "Captured stdout call"
            _, stream, when = heading.split()
            self.add_report_section(when, stream, text)
        for report in reports:
            if report.skipped:
                pytest.skip(report.longrepr[2].removeprefix("Skipped: "))
            if report.failed:
                raise FailedInChildError(report.longrepr)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        if isinstance(excinfo.value, FailedInChildError):
            return excinfo.value.shown
        return super().repr_failure(excinfo)


class FailedInChildError(Exception):
    """Holds what the child's report shows of the failure."""

    def __init__(self, shown: Any) -> None:
        self.shown = shown


class Child:
    """A process that runs tests of one emulated device, until its parent ends."""

    def __init__(self, config: pytest.Config, device: str, files: list[str]) -> None:
        self.config, self.device = config, device
        self.output = Path(tempfile.mkstemp(prefix="ozaki-tests-")[1])
        arguments = [*files, f"--rootdir={config.rootpath}", f"--config-file={config.inipath}", "-p", "no:xdist"]
        arguments += ["-p", "no:cacheprovider", "-o", "timeout=0"]  # the parent has a timeout
        arguments += ["-v"] * config.get_verbosity()
        processes = get_context("spawn")
        self.connection, other = processes.Pipe()
        serving = (other, device, arguments, str(self.output))
        self.process = processes.Process(target=serve, args=serving, daemon=True)
        with mock.patch.dict(os.environ, OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTEST_ADDOPTS=""):
            self.process.start()
        other.close()
        config.add_cleanup(self.end)

    def run(self, nodeid: str) -> list[Any]:
        """pytest's reports of this test: of its setup, its body and its teardown."""
        seed = str(seeds.seed_of(nodeid))
        found = None
        try:
            self.connection.send((nodeid, seed))
            with contextlib.suppress(EOFError, ConnectionResetError):
                found = self.connection.recv()
        except BaseException:  # such as a timeout: the child may never come to an end
            os.kill(self.process.pid or 0, signal.SIGABRT)
            self.process.join(5)
            self.process.kill()
            print(f"OZAKI_SEED={seed}\n{self._written()}")
            raise
        if found is None:
            self.process.join()
            exitcode = self.process.exitcode
            pytest.fail(
                f"the process of the {self.device} has ended ({exitcode}), OZAKI_SEED={seed}\n{self._written()}"
            )
        return [self.config.hook.pytest_report_from_serializable(config=self.config, data=data) for data in found]

    def _written(self) -> str:
        """The end of the child's output, such as a traceback of where it died."""
        return self.output.read_text(errors="replace")[-5000:]

    def end(self) -> None:
        self.connection.close()
        self.process.join(5)
        self.process.kill()
        self.output.unlink()


def child_of(item: pytest.Item) -> Child:
    """The process of the test's device: a new one if there is none, or it has died."""
    device = device_of(item)
    assert device is not None
    children = item.config.stash.setdefault(_CHILDREN, {})
    if device not in children or not children[device].process.is_alive():
        files = sorted({str(other.path) for other in item.session.items if device_of(other) == device})
        children[device] = Child(item.config, device, files)
    return children[device]


_CHILDREN: pytest.StashKey[dict[str, Child]] = pytest.StashKey()

# In the child --------------------------------------------------------------------------------------------------------

_emulated_here: list[str] = []


def is_emulated_here(device: str) -> bool:
    """Whether this is the child process of that device."""
    return device in _emulated_here


def serve(connection: Connection, device: str, arguments: list[str], output: str) -> None:
    """Run the tests that the parent names, in a process whose CuPy is the emulation."""
    to = os.open(output, os.O_WRONLY)
    os.dup2(to, 1)
    os.dup2(to, 2)
    import_module("run").install_device(CAPABILITIES[device])
    _emulated_here.append(device)
    sys.exit(pytest.main(arguments, plugins=[Serving(connection)]))


class Serving:
    """A pytest plugin in place of the loop over all tests: runs the tests that the parent names."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.reports: list[Any] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        while True:
            try:
                nodeid, os.environ["OZAKI_SEED"] = self.connection.recv()
            except EOFError:  # the parent has ended
                return True
            self.reports.clear()
            item = items[nodeid]
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            self.connection.send(self.reports)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config
