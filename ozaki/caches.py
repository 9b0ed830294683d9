"""Everything that is cached between calls: each cache has a name and a bound, and can be asked and cleared.

`cached` is for functions of plain data; `cached_within` for such functions whose results may be large; `Cache` for
what a function alone does not determine, as programs, argument blocks and measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import _lru_cache_wrapper, lru_cache, wraps
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ozaki.locks import Lock

__all__ = ["CacheInfo", "cache_info", "clear_caches"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CacheInfo:
    """What one cache holds.

    Attributes
    ----------
    name
        What it caches; of a function's results, the module and the function.
    entries, size
        How many there are, and how many there may be at most; None if only as many as there are threads and devices.
    hits, misses
        How many entries were asked for that were there, and that were not, since the process began or `clear_caches`
        was called. Of caches that several threads use at a time a few may be missing.
    host_bytes, pinned_bytes
        Bytes of tables that take more than 16 KiB, and of page-locked memory. Other entries are not counted: they take
        some hundred bytes, and programs of a GPU 50 to 160 KiB.
    """

    name: str
    entries: int
    size: int | None
    hits: int
    misses: int
    host_bytes: int = 0
    pinned_bytes: int = 0


class _Named(Protocol):
    """What is asked of a cache by its name."""

    def info(self, name: str) -> CacheInfo:
        """What it holds."""
        ...

    def clear(self) -> None:
        """Drop all entries; what a call uses at the time is freed when that call has ended."""
        ...


C = TypeVar("C", bound=_Named)

_caches: dict[str, _Named] = {}
"""All caches of the modules that were imported."""


def register(name: str, cache: C) -> C:
    """Let `cache_info` and `clear_caches` know a cache by that name, and return it."""
    _caches[name] = cache
    return cache


def cache_info() -> dict[str, CacheInfo]:
    """What each cache of the library holds.

    What is cached between calls saves the time to plan, to build programs and to load kernels. No cache holds elements
    of operands or results; "memory of int8 slices" is what slices lay in that were multiplied on a CPU, and holds their
    bytes until it is used again. Caches of a GPU appear once CuPy arrays were multiplied.

    Returns
    -------
    dict of str to CacheInfo
        By name, those without entries, too.

    Examples
    --------
    >>> import numpy as np, ozaki
    >>> c = ozaki.matmul(np.eye(3), np.eye(3), scheme="residues", slices=14)
    >>> ozaki.cache_info()["schemes.residues.remainders"].entries > 0
    True
    """
    return {name: cache.info(name) for name, cache in sorted(_caches.items())}


def clear_caches() -> None:
    """Drop everything that is cached between calls; later calls make it anew, with the same results.

    On a GPU these are also argument blocks, CUDA events, and page-locked memory, which goes back to CuPy's pool; each
    thread drops its two streams at its next product, until then they are the only entries. Calls that run meanwhile in
    other threads are not disturbed: what they use is freed when they end. Prepared operands, plans and results are the
    caller's, and stay.

    Examples
    --------
    >>> import ozaki
    >>> ozaki.clear_caches()
    >>> sum(cache.entries for cache in ozaki.cache_info().values())
    0
    """
    for cache in [*_caches.values()]:
        cache.clear()


# Functions of plain data ----------------------------------------------------------------------------------------------


class _OfFunction(NamedTuple):
    """The cache of a function that functools wraps."""

    function: _lru_cache_wrapper[Any]

    def info(self, name: str) -> CacheInfo:
        """What it holds."""
        hits, misses, size, entries = self.function.cache_info()
        return CacheInfo(name, entries, size, hits, misses)

    def clear(self) -> None:
        """Drop all results."""
        self.function.cache_clear()


def cached(size: int, *, typed: bool = False) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """Decorate a function of hashable plain data: its last `size` results are cached.

    It is `functools.lru_cache`, with a name. What a result depends on has to be in the arguments. A name of a table is,
    where the table never changes (`MappingProxyType`), or clears the caches when it does (`Table`); an object that
    compares by identity is, where it never changes.
    """

    def decorate(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        made = lru_cache(size, typed)(function)
        register(_name_of(function), _OfFunction(made))
        return made

    return decorate


class _OfLargeResults(NamedTuple):
    """The cache of a function whose results may be large: which results are small, and what they are; and large ones.

    Of large results `small` has None.
    """

    small: _lru_cache_wrapper[Any]
    large: Cache[Hashable, Any]

    def info(self, name: str) -> CacheInfo:
        """What it holds."""
        hits, misses, size, entries = self.small.cache_info()
        return CacheInfo(name, entries, size, hits, misses, self.large.info(name).host_bytes)

    def clear(self) -> None:
        """Drop all results."""
        self.small.cache_clear()
        self.large.clear()


def cached_within(size: int, most_bytes: int, nbytes: Callable[[Any], int]) -> Callable[[F], F]:
    """Decorate a function as `cached` does, of arguments by position, whose results may be large, and are not None.

    Of those that take more than `_SMALL` bytes the ones that were used last are cached, no more than `most_bytes`
    together; but always the last one. Calls for the others take hardly longer than with `cached`.
    """

    def decorate(function: F) -> F:
        large: Cache[Hashable, Any] = Cache(size, lambda result: Bytes(nbytes(result)), most_bytes)

        @lru_cache(size)
        def small(*arguments: Any) -> Any:
            made = function(*arguments)
            if nbytes(made) <= _SMALL:
                return made
            large.put(arguments, made)
            return None

        @wraps(function)
        def call(*arguments: Any) -> Any:
            found = small(*arguments)
            if found is None:
                found = large.get(arguments)
            return large.put(arguments, function(*arguments)) if found is None else found

        register(_name_of(function), _OfLargeResults(small, large))
        return call  # type: ignore[return-value]

    return decorate


_SMALL = 2**14
"""Bytes of a result that are not worth counting."""


def _name_of(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}".removeprefix("ozaki.")


# All else -------------------------------------------------------------------------------------------------------------


class Bytes(NamedTuple):
    """Bytes that an entry of a cache takes, as far as they count; `tables` are objects that others may have, too."""

    host: int = 0
    pinned: int = 0
    tables: tuple[bytes, ...] = ()


class _Entry(Generic[V]):
    """A value, when it was used last, and the bytes of the host that it takes, alone and with the tables."""

    __slots__ = ("host", "nbytes", "tables", "used", "value")

    def __init__(self, value: V, used: int, takes: Bytes) -> None:
        self.value, self.used, self.host, self.tables = value, used, takes.host, takes.tables
        self.nbytes = takes.host + sum(map(len, takes.tables))


def _bytes_of_each(tables: Iterable[bytes]) -> int:
    """Bytes of tables, each counted once."""
    return sum(map(len, {id(table): table for table in tables}.values()))


class Cache(Generic[K, V]):
    """The values that were used last, by key, for all threads; no value is None.

    It holds at most `size` values, and of those whose bytes of the host are together more than `most_bytes` only the
    last one. `weigh` says how many bytes a value takes; tables that several have count once.
    """

    def __init__(self, size: int, weigh: Callable[[V], Bytes] = lambda _: Bytes(), most_bytes: float = inf) -> None:
        self.size, self.most_bytes, self._weigh = size, most_bytes, weigh
        self._entries: dict[K, _Entry[V]] = {}
        self._nbytes = self._clock = self._puts = self._misses = 0
        self._changing = Lock()  # a signal's handler, or a finalizer, may change the cache meanwhile

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[V]:
        """All values, in no order."""
        return [entry.value for entry in [*self._entries.values()]]

    def get(self, key: K) -> V | None:
        """The value of a key, now used last; None if there is none."""
        entry = self._entries.get(key)  # needs no lock: nothing but whole entries is ever in the dict
        if entry is None:
            self._misses += 1
            return None
        self._clock = entry.used = self._clock + 1
        return entry.value

    def peek(self, key: K) -> V | None:
        """The same, but it counts neither as used nor as asked for."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def put(self, key: K, value: V) -> V:
        """Cache a value in place of any other of that key, and return it; drops what is beyond the bounds."""
        with self._changing.held:
            self._puts += 1
            self._clock += 1
            entry = _Entry(value, self._clock, self._weigh(value))
            dropped = [self._take(key)]
            self._nbytes += entry.nbytes  # first: an interrupt leaves it too large at most
            self._entries[key] = entry
            if len(self._entries) > self.size or self._nbytes > self.most_bytes:
                dropped += map(self._take, self._beyond())
        del dropped  # not before the lock is free: to free values may take its time
        return value

    def _beyond(self) -> list[K]:
        """The keys that were used longest ago, as many as leave the others within the bounds, and the last one.

        Where there are too many, an eighth goes at once, since to sort them takes longer than to cache one more.
        """
        *others, _ = sorted(self._entries.items(), key=lambda item: item[1].used)
        self._nbytes = sum(entry.nbytes for entry in self._entries.values())  # too large after an interrupt
        tables = [table for entry in self._entries.values() for table in entry.tables]
        having = Counter(map(id, tables))
        nbytes = sum(entry.host for entry in self._entries.values()) + _bytes_of_each(tables)
        count, beyond = len(self._entries), list[K]()
        most = self.size - self.size // 8 if count > self.size else count
        for key, entry in others:
            if count <= most and nbytes <= self.most_bytes:
                break
            beyond.append(key)
            count, nbytes = count - 1, nbytes - entry.host
            having.subtract(map(id, entry.tables))
            nbytes -= _bytes_of_each([table for table in entry.tables if not having[id(table)]])
        return beyond

    def _take(self, key: K) -> _Entry[V] | None:
        """Take the entry of a key out, if there is one."""
        entry = self._entries.pop(key, None)
        self._nbytes -= 0 if entry is None else entry.nbytes
        return entry

    def drop(self, key: K) -> None:
        """Drop the value of a key, if there is one."""
        with self._changing.held:
            dropped = self._take(key)
        del dropped

    def info(self, name: str) -> CacheInfo:
        """What it holds."""
        values = self.values()
        found = [*map(self._weigh, values)]
        host = sum(each.host for each in found) + _bytes_of_each(table for each in found for table in each.tables)
        pinned = sum(each.pinned for each in found)
        hits = self._clock - self._puts
        return CacheInfo(name, len(values), self.size, hits, self._misses, host, pinned)

    def clear(self) -> None:
        """Drop all values."""
        with self._changing.held:
            dropped, self._entries = self._entries, {}
            self._nbytes = self._clock = self._puts = self._misses = 0
        dropped.clear()


# Tables that may change -----------------------------------------------------------------------------------------------


class Table(dict[K, V]):
    """A table by name that may be given other entries: each such change clears all caches, whose keys are names.

    It is to be changed before other threads multiply: one that has read an entry caches afterwards what follows of it.
    """

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        clear_caches()

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        clear_caches()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a table is changed by table[name] = entry and del table[name] alone")

    update = pop = popitem = setdefault = clear = __ior__ = _refuse
