"""Tests in tests/shared run on every device, and use public names only."""

import re
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parent / "shared").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_public_names(path):
    """Moving a file inside the package must break no shared test."""
    text = path.read_text()
    assert not re.search(
        r"ozaki\.(backends|\w+\._|_[a-z])|from ozaki\S* import .*\b_[a-z]|cupy\._|mock|monkeypatch", text
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_test_takes_the_device(path):
    tests = re.findall(r"^def test_\w+\(([^)]*)\)", path.read_text(), re.MULTILINE)
    assert tests
    assert all(arguments.split(",")[0] == "device" for arguments in tests)
