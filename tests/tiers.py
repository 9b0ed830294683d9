"""The tiers of tests: `make test` runs the first one, `make test-all` then those with the marker `full`.

A test, or a set of its parameters, that takes long has this marker, or is listed in second_tier.txt, unless a file has
no other tests. Tests of emulated devices get the marker here, but for one case each: its first one, on the emulated
Ampere or the emulated Hopper by turns.

`python tests/tiers.py FILE` lists all tests anew that take long by what pytest printed, with
`--durations=0 -m "not full"` and second_tier.txt empty, into FILE.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from devices import EMULATED

import items as emulated_items

LISTED = Path(__file__).parent / "second_tier.txt"
"""Tests that take long, a line each, as pytest calls them within this folder."""

_LONG = 0.8
"""Seconds, on one of two cores."""


def some_first(count: int, cases: Iterable[Any]) -> list[Any]:
    """The values of a parameter, of which the first `count` are in the first tier."""
    return [pytest.param(case, marks=() if i < count else pytest.mark.full) for i, case in enumerate(cases)]


FIRST = pytest.StashKey[dict[Path, set[str | None]]]()
"""By file that was collected: the devices of the tests of it that are in the first tier, None for a test without."""


def divide(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Mark the tests of emulated devices that are left to the second tier, and note what the first one has."""
    first = config.stash.setdefault(FIRST, {})
    emulated: dict[Path, dict[str, list[pytest.Item]]] = {}
    for item in items:
        if emulated_items.device_of(item) in EMULATED:
            emulated.setdefault(item.path, {}).setdefault(item.nodeid.split("[")[0], []).append(item)
    for tests in emulated.values():
        for device, cases in zip(cycle(EMULATED), tests.values(), strict=False):
            one = next((case for case in cases if emulated_items.device_of(case) == device), cases[0])
            for case in cases:
                if case is not one:
                    case.add_marker("full")
    _leave_listed(items)
    for item in items:
        if item.get_closest_marker("gpu") is None:
            devices = first.setdefault(item.path, set())
            if item.get_closest_marker("full") is None:
                devices.add(emulated_items.device_of(item))


def _leave_listed(items: Iterable[pytest.Item]) -> None:
    """Mark those that are listed, but for one of each file, and of each device in it, that has no others."""
    listed = set(LISTED.read_text(encoding="utf-8").splitlines())
    groups: dict[tuple[Path, bool], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("gpu") is None and item.get_closest_marker("full") is None:
            groups.setdefault((item.path, emulated_items.device_of(item) in EMULATED), []).append(item)
    for tests in groups.values():
        long = [item for item in tests if item.nodeid.partition("tests/")[2] in listed]
        for item in long if len(long) < len(tests) else long[1:]:
            item.add_marker("full")


def _list(durations: Path) -> None:
    """Write the list, from what pytest printed."""
    seconds: Counter[str] = Counter()
    for line in durations.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([\d.]+)s (?:call|setup|teardown) +tests/(\S.*)", line):
            seconds[found[2].rstrip()] += float(found[1])
    LISTED.write_text("".join(f"{name}\n" for name in sorted(seconds) if seconds[name] >= _LONG), encoding="utf-8")


if __name__ == "__main__":
    _list(Path(sys.argv[1]))
