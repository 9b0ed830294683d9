"""What is cached between calls: every cache has a name and a bound, and is freed by `ozaki.clear_caches`."""

import functools
import gc
import importlib
import pathlib
import pkgutil
import random
import re
import sys
import tracemalloc
import weakref
from threading import Thread

import pytest

import ozaki
from ozaki import caches
from ozaki.caches import Bytes, Cache, CacheInfo, Table, cache_info, cached, cached_within, clear_caches, register
from ozaki.schemes import PRESETS
from ozaki.schemes.formats import FORMATS
from ozaki.schemes.residues import MOST_BYTES


class Held:
    """A value that can be watched."""

    nbytes = 1


@pytest.fixture(autouse=True)
def own():
    """Caches that a test makes are forgotten at its end."""
    yield
    for name in [name for name in caches._caches if name == "x" or name.startswith(__name__)]:
        del caches._caches[name]


def test_those_that_were_used_longest_ago_go_first():
    cache = register("x", Cache(3))
    for key in "abc":
        assert cache.put(key, key.upper()) == key.upper()
    assert cache.get("a") == "A" and cache.get("z") is None
    cache.put("b", "other")
    cache.put("d", "D")
    assert [cache.get(key) for key in "abcd"] == ["A", "other", None, "D"] and len(cache) == 3
    assert cache_info()["x"] == CacheInfo("x", 3, 3, hits=4, misses=2)
    cache.drop("a")
    cache.drop("a")
    assert sorted(cache.values()) == ["D", "other"]
    clear_caches()
    assert cache_info()["x"] == CacheInfo("x", 0, 3, 0, 0) and cache.get("d") is None


def test_an_eighth_goes_at_once_and_never_more_than_the_size_are_held():
    cache = register("x", Cache(80))
    lengths = []
    for key in range(1000):
        cache.put(key, key)
        cache.get(0)  # which is used all the time, and stays
        lengths.append(len(cache))
    assert max(lengths) == 80 and min(lengths[80:]) == 70
    assert cache.get(0) == 0 and cache.get(999) == 999


def test_a_bound_in_bytes_leaves_the_last_one_whatever_its_size():
    cache = register("x", Cache(100, lambda size: Bytes(size, 2), most_bytes=10))
    for size, held in ((4, [4]), (6, [4, 6]), (5, [5]), (30, [30]), (3, [3]), (7, [3, 7]), (1, [1, 7])):
        cache.put(size, size)
        assert sorted(cache.values()) == held
        assert (cache_info()["x"].host_bytes, cache_info()["x"].pinned_bytes) == (sum(held), 2 * len(held))
    cache.put(7, 2)  # in place of one of seven
    cache.put(8, 7)
    assert sorted(cache.values()) == [1, 2, 7]
    cache.drop(8)
    cache.put(9, 7)
    assert sorted(cache.values()) == [1, 2, 7]


def test_tables_that_several_values_have_count_once():
    """They go with the last of these values."""
    cache = register("x", Cache(100, lambda value: Bytes(len(value), 0, value), most_bytes=101))
    shared, others = bytes(60), [bytes(size) for size in (10, 11, 12, 13)]
    for key in range(3):
        cache.put(key, (shared, others[key]))
        cache.put(key, (shared, others[key]))
    assert len(cache) == 3 and cache_info()["x"].host_bytes == 6 + 60 + 10 + 11 + 12
    cache.put(3, (others[3],))
    assert sorted(map(len, cache.values())) == [1, 2, 2] and cache_info()["x"].host_bytes == 101
    cache.put(4, (bytes(99),))
    assert [*map(len, cache.values())] == [1] and cache_info()["x"].host_bytes == 100


@pytest.mark.parametrize("how", ["replaced", "dropped", "cleared", "too many", "too large"])
def test_values_are_freed_at_once(how):
    cache = register("x", Cache(1, lambda value: Bytes(value.nbytes), most_bytes=1))
    gc.disable()
    try:
        value = cache.put("a", Held())
        seen = weakref.ref(value)
        del value
        assert cache.get("a") is seen()
        change = {
            "replaced": lambda: cache.put("a", Held()), "dropped": lambda: cache.drop("a"), "cleared": clear_caches,
            "too many": lambda: cache.put("b", Held()), "too large": lambda: cache.put("b", Held()),
        }[how]  # fmt: skip
        cache.size = 9 if how == "too large" else 1
        change()
        assert seen() is None
    finally:
        gc.enable()


def test_a_finalizer_may_use_the_cache_that_frees_its_value():
    cache = register("x", Cache(4))
    done = []

    class Last:
        def __del__(self):
            cache.put(len(done), "late")
            done.append(cache.get(1))

    for i in range(40):
        cache.put(("of", i), Last())
        if i % 7 == 0:
            cache.clear()
        if i % 5 == 0:
            cache.drop(("of", i))
    assert len(done) > 30 and len(cache) <= 4


def test_an_interrupt_while_a_value_is_cached_costs_no_others():
    cache = register("x", Cache(10, Bytes, most_bytes=1000))
    for at in range(1, 60):
        lines = 0

        def trace(frame, event, _, at=at):
            nonlocal lines
            if frame.f_code.co_filename != caches.__file__:
                return None
            lines += 1
            if lines == at:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            cache.put(at % 3, 300)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert cache._nbytes >= sum(cache.values())
    for key in range(3):
        cache.put(key, 300)
    assert sorted(cache.values()) == [300, 300, 300]


def test_threads_share_a_cache():
    cache = register("x", Cache(16, lambda size: Bytes(size), most_bytes=600))
    errors = []

    def use(seed):
        rng = random.Random(seed)
        try:
            for _ in range(1000):
                key = rng.randrange(40)
                found = cache.get(key)
                assert found in (None, key)
                what = rng.random()
                if found is None and what < 0.9:
                    cache.put(key, key)
                elif what > 0.999:
                    clear_caches()
                elif what > 0.98:
                    cache.drop(key)
                assert len(cache) <= 16 + 4  # one that each thread adds, before it takes another one out
                assert cache_info()["x"].entries <= 16 + 4
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=use, args=(seed,)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    assert cache._nbytes == sum(cache.values()) <= 600 and len(cache) <= 16


def test_results_of_functions():
    calls = []

    @cached(2)
    def twice(x):
        calls.append(x)
        return 2 * x

    @cached_within(5, 100_000, len)
    def zeros(n, first=0):
        calls.append(n)
        return bytes([first] * n)

    assert [twice(x) for x in (1, 2, 1, 3, 2)] == [2, 4, 2, 6, 4] and calls == [1, 2, 3, 2]
    name = f"{__name__}.test_results_of_functions.<locals>.twice"
    assert cache_info()[name] == CacheInfo(name, 2, 2, hits=1, misses=4)
    calls.clear()
    sizes = [thousands * 1000 for thousands in (60, 30, 60, 300, 300, 60, 16, 30, 16, 60)]
    assert [zeros(n) for n in sizes] == [bytes(n) for n in sizes]
    assert [n // 1000 for n in calls] == [60, 30, 300, 60, 16, 30]  # that of 300 took the place of those of 60 and 30
    assert cache_info()[f"{__name__}.test_results_of_functions.<locals>.zeros"].host_bytes == 90_000
    assert zeros(2, 1) != zeros(2, 2) and zeros.__name__ == "zeros"
    clear_caches()
    assert all(cache.entries == cache.hits == cache.host_bytes == 0 for cache in cache_info().values())


def modules():
    """All modules of the library that can be imported here."""
    for found in pkgutil.walk_packages(ozaki.__path__, "ozaki."):
        if not found.name.endswith("__main__"):
            try:
                yield importlib.import_module(found.name)
            except ImportError:  # CuPy, PyTorch or JAX is missing
                continue


def test_every_cache_has_a_name():
    found = set()
    for module in modules():
        for owner in (module, *(each for each in vars(module).values() if isinstance(each, type))):
            if getattr(owner, "__module__", module.__name__) == module.__name__:
                values = [each.fget if isinstance(each, property) else each for each in vars(owner).values()]
            found |= {each for each in values if isinstance(each, functools._lru_cache_wrapper)}
    names = {f"{each.__module__}.{each.__qualname__}".removeprefix("ozaki.") for each in found}
    assert len(names) > 30 and names <= set(cache_info())
    assert all(each.cache_info().maxsize is not None for each in found)


def test_no_other_caches_are_made():
    """`lru_cache` is for functions inside of functions alone, whose results end with the call."""
    allowed = {"caches.py", "_cli/text_files.py"}
    root = pathlib.Path(ozaki.__file__).parent
    for path in root.rglob("*.py"):
        used = re.search(r"\blru_cache\b|functools\.cache\b|import (\w+, )*cache\b", path.read_text("utf-8"))
        assert (used is not None) == (path.relative_to(root).as_posix() in allowed), path


def test_results_are_the_same_once_caches_are_cleared(rng):
    a, b = rng.standard_normal((2, 30, 30))
    calls = [
        {"accuracy": "fp64", "reproducible": True},
        {"accuracy": 1e-40, "dtype": "mp"},
        {"scheme": "digits", "slices": 5},
        {"scheme": "residues", "slices": 70},
    ]
    before = [ozaki.matmul(a, b, **options) for options in calls]
    assert sum(cache.entries for cache in cache_info().values()) > 30
    clear_caches()
    assert {name: cache.entries for name, cache in cache_info().items() if cache.entries} == {}
    for options, c in zip(calls, before, strict=True):
        assert (ozaki.matmul(a, b, **options) == c).all()


def test_large_tables_are_counted_and_freed(rng):
    a = rng.standard_normal((2, 2))
    ozaki.matmul(a, a, scheme="residues", slices=60)  # which imports modules
    clear_caches()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    ozaki.matmul(a, a, scheme="residues", slices=400)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    counted = sum(cache.host_bytes for cache in cache_info().values())
    clear_caches()
    gc.collect()
    left = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 500_000 < 0.8 * held < counted <= held, (held, counted)
    assert left < held / 20


def test_many_counts_keep_within_a_bound(rng, monkeypatch):
    """Products of many different numbers of residues leave tables within `MOST_BYTES`."""
    a, name = rng.standard_normal((2, 2)), "backends.numpy.engines.residues.tables_of"
    ozaki.matmul(a, a, scheme="residues", slices=3)  # which imports the module
    large = caches._caches[name].large
    assert large.most_bytes == MOST_BYTES == 2**26
    clear_caches()
    monkeypatch.setattr(large, "most_bytes", 700_000)
    held = []
    for slices in (150, 170, 190, 210, 230):
        ozaki.matmul(a, a, scheme="residues", slices=slices)
        held.append(cache_info()[name].host_bytes)
    assert held[0] < held[1] and 300_000 < max(held) <= 700_000, held
    clear_caches()


def test_a_table_that_changes_clears_the_caches():
    table = Table({"a": 1})
    calls = []

    @cached(8)
    def entry(name):
        calls.append(name)
        return table.get(name)

    assert [entry("a"), entry("a"), entry("b")] == [1, 1, None]
    table["a"] = 2
    table["b"] = 3
    assert [entry("a"), entry("b")] == [2, 3]
    del table["b"]
    assert entry("b") is None and calls == ["a", "b", "a", "b", "b"]
    for change in (
        lambda: table.update(a=4), lambda: table.pop("a"), table.popitem, table.clear, lambda: table.setdefault("c", 1),
        lambda: table.__ior__({"a": 4}),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="changed by"):
            change()
    assert table == {"a": 2}


@pytest.mark.parametrize("table", [FORMATS, PRESETS])
def test_tables_that_caches_rest_on_cannot_be_changed(table):
    name = next(iter(table))
    with pytest.raises(TypeError):
        table[name] = table[name]
    with pytest.raises(TypeError):
        del table[name]


def test_calls_that_run_meanwhile_are_not_disturbed(rng, monkeypatch):
    monkeypatch.setattr("ozaki.records.progress._INTERVAL", 0)
    a, b = rng.standard_normal((2, 20, 20))
    expected = ozaki.matmul(a, b, accuracy="dd", dtype="mp")
    cleared = []

    def progress(done, total, unit):
        clear_caches()
        cleared.append(done)

    for _ in range(2):
        assert (ozaki.matmul(a, b, accuracy="dd", dtype="mp", progress=progress) == expected).all()
    assert len(cleared) > 4
