"""Threads of the library, as many as are asked for, and of BLAS: no more than those, and than there are CPUs for.

After a product BLAS has as many as before.
"""

import os
import random
import threading
import time

import numpy as np
import pytest

import ozaki
from ozaki.backends.numpy import _threads
from ozaki.backends.numpy.engines.by_blas import BlasEngine
from ozaki.process import cpus
from ozaki.process.threads import _number, threads


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A function that sets the variables of the environment that count; neither is set, nor a number, before."""

    def become(**variables):
        for name in ("OZAKI_NUM_THREADS", "OMP_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        _number.cache_clear()

    become()
    ozaki.set_num_threads(None)
    yield become
    ozaki.set_num_threads(None)
    _number.cache_clear()


def blas_threads():
    return [each.num_threads for each in _threads.libraries().lib_controllers]


@pytest.fixture
def four(monkeypatch):
    """BLAS has four threads, and the process may use one CPU."""
    libraries = _threads.libraries().lib_controllers
    if not libraries:
        pytest.skip("NumPy's BLAS has no number of threads that can be set")
    before = blas_threads()
    for each in libraries:
        each.set_num_threads(4)
    monkeypatch.setattr(cpus, "usable", lambda: 1)
    yield blas_threads()
    for each, count in zip(libraries, before, strict=True):
        each.set_num_threads(count)


def test_a_product_takes_no_more_threads_than_there_are_cpus(four, monkeypatch, rng):
    seen, multiply = [], BlasEngine.multiply

    def watched(*slices):
        seen.append(blas_threads())
        return multiply(*slices)

    monkeypatch.setattr(BlasEngine, "multiply", watched)
    ozaki.matmul(*rng.standard_normal((2, 70, 70)), accuracy="fp64", reproducible=True)
    assert seen and all(counts == [1] * len(four) for counts in seen)
    assert blas_threads() == four


@pytest.mark.parametrize("how", ["set", "OZAKI_NUM_THREADS", "OMP_NUM_THREADS"])
def test_blas_takes_no_more_threads_than_are_asked_for_of_this_library(four, monkeypatch, environment, how):
    monkeypatch.setattr(cpus, "usable", lambda: 64)
    if how == "set":
        ozaki.set_num_threads(2)
    else:
        environment(**{how: "2"})
    with _threads.within_cpus():
        assert blas_threads() == ([2] * len(four) if how != "OMP_NUM_THREADS" else four)
    assert blas_threads() == four


def test_few_threads_stay_as_they_are(four, monkeypatch):
    monkeypatch.setattr(cpus, "usable", lambda: 64)
    with _threads.within_cpus():
        assert blas_threads() == four


def test_the_number_is_restored_after_an_error(four):
    def fail():
        with _threads.within_cpus():
            assert blas_threads() == [1] * len(four)
            raise ValueError("later")

    with pytest.raises(ValueError, match=r"^later"):
        fail()
    assert blas_threads() == four


def test_threads_of_python_at_once(four, rng):
    a, b = rng.standard_normal((2, 40, 40))
    options = {"accuracy": "fp64", "reproducible": True}
    expected, found = ozaki.matmul(a, b, **options), []
    threads = [threading.Thread(target=lambda: found.append(ozaki.matmul(a, b, **options))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 4 and all((c == expected).all() for c in found)
    assert all(1 <= count <= 4 for count in blas_threads())


class Slow:
    """Libraries whose numbers of threads take a while to read and to set, so that threads of Python meet there."""

    def __init__(self, *numbers):
        self.lib_controllers = [SlowNumber(number) for number in numbers]

    def limit(self, limits):
        before = [each.num_threads for each in self.lib_controllers]
        time.sleep(1e-3)
        self.set([limits] * len(before))

        return Limited(self, before)

    def set(self, numbers):
        for each, number in zip(self.lib_controllers, numbers, strict=True):
            each.number = number
            time.sleep(1e-3)


class SlowNumber:
    """A library whose number of threads was read a while ago when it is known."""

    def __init__(self, number):
        self.number = number

    @property
    def num_threads(self):
        number = self.number
        time.sleep(2e-3 * random.random())
        return number


class Limited:
    """A context that restores numbers of threads."""

    def __init__(self, libraries, before):
        self._libraries, self._before = libraries, before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._libraries.set(self._before)


def test_threads_of_python_that_enter_at_once_leave_the_numbers_as_they_were(monkeypatch):
    slow, start = Slow(8, 4), threading.Barrier(6)
    monkeypatch.setattr(_threads, "libraries", lambda: slow)
    monkeypatch.setattr(cpus, "usable", lambda: 2)

    def multiply(i):
        start.wait(10)
        for turn in range(5):
            with _threads.within_cpus():
                time.sleep(1e-3 * ((turn + i) % 3))

    threads = [threading.Thread(target=multiply, args=(i,)) for i in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.num_threads for each in slow.lib_controllers] == [8, 4]


@pytest.mark.parametrize(
    ("memberships", "files", "expected"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "50000 100000"}, 0.5),
        ("3:cpu,cpuacct:/x\n0::/\n", {"cpu/x/cpu.cfs_quota_us": "300000", "cpu/x/cpu.cfs_period_us": "100000"}, 3),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("7:memory:/\n", {"memory/cpu.max": "100 100"}, None),
        ("no line", {"cpu.max": "100000 100000"}, None),
    ],
)
def test_quotas_of_control_groups(tmp_path, memberships, files, expected):
    (tmp_path / "self").write_text(memberships)
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    assert cpus.quota(tmp_path / "self", tmp_path / "groups") == expected


def test_a_process_may_use_a_cpu():
    assert 1 <= cpus.usable() <= 4096
    assert np.ceil(cpus._quota() or 1) >= 1


@pytest.mark.parametrize(
    ("variables", "chosen", "expected"),
    [
        ({}, None, 6),
        ({"OMP_NUM_THREADS": "4"}, None, 4),
        ({"OMP_NUM_THREADS": " 3, 2 "}, None, 3),
        ({"OZAKI_NUM_THREADS": "2", "OMP_NUM_THREADS": "4"}, None, 2),
        ({"OZAKI_NUM_THREADS": "5", "OMP_NUM_THREADS": "4"}, None, 5),
        ({"OZAKI_NUM_THREADS": "100"}, None, 6),
        ({"OZAKI_NUM_THREADS": "", "OMP_NUM_THREADS": " "}, None, 6),
        ({"OZAKI_NUM_THREADS": "2"}, 3, 3),
        ({"OZAKI_NUM_THREADS": "no number"}, 3, 3),
        ({"OZAKI_NUM_THREADS": "2", "OMP_NUM_THREADS": "no number"}, None, 2),
        ({}, 100, 6),
        ({}, np.int64(1), 1),
    ],
)
def test_as_many_threads_as_are_asked_for_and_at_most_those_there_are_cpus_for(
    environment, monkeypatch, variables, chosen, expected
):
    monkeypatch.setattr(cpus, "usable", lambda: 6)
    environment(**variables)
    ozaki.set_num_threads(chosen)
    assert ozaki.get_num_threads() == threads() == expected


@pytest.mark.parametrize("variable", ["OZAKI_NUM_THREADS", "OMP_NUM_THREADS"])
@pytest.mark.parametrize("text", ["0", "-1", "1.5", "all", "\u0663", ",2"])
def test_a_variable_that_is_no_number_of_threads_is_named(environment, variable, text):
    environment(**{variable: text})
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"^{variable}: '.+' in the environment; expected a whole number of"):
            ozaki.get_num_threads()


def test_only_ozakis_own_variable_is_a_list_of_one(environment):
    environment(OZAKI_NUM_THREADS="4,2")
    with pytest.raises(ValueError, match=r"^OZAKI_NUM_THREADS: '4,2'"):
        ozaki.get_num_threads()


@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-3, ValueError), (1.0, TypeError), ("2", TypeError)])
def test_a_number_that_is_none_changes_nothing(n, error):
    ozaki.set_num_threads(1)
    with pytest.raises(error, match=r"^n: .+; expected a whole number of threads, at least 1, or None$"):
        ozaki.set_num_threads(n)
    assert ozaki.get_num_threads() == 1


def test_variables_are_read_once(environment, monkeypatch):
    monkeypatch.setattr(cpus, "usable", lambda: 6)
    environment(OZAKI_NUM_THREADS="2")
    assert threads() == 2
    monkeypatch.setenv("OZAKI_NUM_THREADS", "4")
    assert threads() == 2
    ozaki.clear_caches()
    assert threads() == 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the affinity cannot be set here")
def test_an_affinity_that_changes_counts_at_once():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert threads() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert threads() == cpus.usable()
