"""The first tier of tests has some of every subject and of every emulated device (tiers.py)."""

from pathlib import Path

import pytest
from devices import EMULATED, emulation_obstacle
from tiers import FIRST

HERE = Path(__file__).parent


@pytest.fixture
def first(request):
    """The devices of tests of the first tier, by the file. If not all files were collected, fewer are looked at."""
    return request.config.stash[FIRST]


def test_every_file_has_tests_in_the_first_tier(first):
    assert HERE / "test_tiers.py" in first
    assert not [path.name for path, devices in first.items() if not devices]


@pytest.mark.skipif(emulation_obstacle() is not None, reason=str(emulation_obstacle()))
def test_every_shared_subject_is_emulated_in_the_first_tier(first):
    shared = {path: devices for path, devices in first.items() if path.parent.name == "shared"}
    assert not [path.name for path, devices in shared.items() if devices.isdisjoint(EMULATED)]
    for device in EMULATED if len(shared) > 1 else ():
        assert any(device in devices for devices in shared.values()), device
