"""The tiers of tests: `make test` runs the first one, `make test-all` then those with the marker `full`.

A test, or a set of its parameters, that takes long has this marker. Tests of emulated devices get it here, but for one
case each: its first one, on the emulated Ampere or the emulated Hopper by turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from devices import EMULATED

import items as emulated_items


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
    for item in items:
        if item.get_closest_marker("gpu") is None:
            devices = first.setdefault(item.path, set())
            if item.get_closest_marker("full") is None:
                devices.add(emulated_items.device_of(item))
