"""Kernels that come compiled: which, where they are found, and that they are those of the sources."""

import io
import re
import tarfile
from functools import cache

import pytest

from ozaki.backends.cupy.program import compiling, kernel_files

ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_list_names_kernels_that_there_are(architecture):
    listed = compiling.common(architecture)
    assert len(listed) > 300 and len(set(listed)) == len(listed)
    assert any(file.endswith("_sm90.cu") for file, _ in listed) == (architecture == "sm_90a")
    for file in {file for file, _ in listed}:
        words = set(re.findall(r"\w+", (compiling.folder() / file).read_text(encoding="utf-8")))
        macros = {name for of, values in listed if of == file for name, _ in values}
        assert all(name in words or _in_headers(name) for name in macros), (file, macros - words)


@cache
def _in_headers(name):
    return any(
        re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) for path in compiling.folder().rglob("*.cuh")
    )


def test_keys_tell_kernels_apart():
    listed = compiling.common("sm_90a")[:40]
    keys = [compiling.key(*each, architecture) for each in listed for architecture in ("sm_80", "sm_90a")]
    assert len(set(keys)) == len(keys)
    assert compiling.key(*listed[0], "sm_80", "13.0") != compiling.key(*listed[0], "sm_80")


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Archives of two architectures, each with the first kernel of the list, and an empty cache."""
    (name, macros), *_ = compiling.common("sm_80")
    sources = compiling.folder()
    (tmp_path / "kernels").mkdir()
    for path in sources.iterdir():
        if path.name != compiling.PACKED:
            (tmp_path / "kernels" / path.name).symlink_to(path)
    archives = tmp_path / "kernels" / compiling.PACKED
    archives.mkdir()
    for architecture in ("sm_80", "sm_90a"):
        with tarfile.open(archives / f"{architecture}.tar.xz", "w:xz") as archive:
            member = tarfile.TarInfo(compiling.file_name(name, macros, architecture))
            member.size = len(architecture)
            archive.addfile(member, io.BytesIO(architecture.encode()))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "folder", lambda: tmp_path / "kernels")
    for function in (compiling._packed, compiling._unpack):
        function.cache_clear()
    yield name, macros
    for function in (compiling._packed, compiling._unpack):
        function.cache_clear()


@pytest.mark.parametrize(
    ("target", "found"),
    [("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_90a", "sm_90a"), ("sm_75", None), ("sm_100", None)],
)
def test_a_device_gets_its_own_kernel_or_an_older_one_of_its_generation(packed, target, found):
    place = compiling._packed(*packed, target)
    assert (place.read_bytes()[:-32].decode() if place else None) == found
    if place:
        assert place.parent.name == "cache" and compiling._packed.__wrapped__(*packed, target) == place


@pytest.mark.parametrize(
    "damage", [lambda x: x[: len(x) // 2], lambda x: x[:-30], lambda x: b"", lambda x: b"7" + x[1:]]
)
def test_a_damaged_archive_is_passed_over(packed, damage):
    """None of its kernels is used, since its checksum is read last; a warning names the archive."""
    archive = compiling.folder() / compiling.PACKED / "sm_80.tar.xz"
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.warns(RuntimeWarning, match=r"sm_80\.tar\.xz: damaged \(.+\), so its kernels are compiled when"):
        assert compiling._packed(*packed, "sm_80") is None
    assert not kernel_files.files()


def test_a_damaged_file_is_unpacked_again(packed):
    place = compiling._packed(*packed, "sm_80")
    whole = place.read_bytes()
    place.write_bytes(whole[:20])
    for function in (compiling._packed, compiling._unpack):  # as in another process
        function.cache_clear()
    assert compiling._packed(*packed, "sm_80").read_bytes() == whole


def test_a_kernel_that_is_not_packed_is_compiled(packed):
    name, macros = packed
    assert compiling._packed(name, (*macros, ("MORE", 1)), "sm_80") is None


@pytest.mark.gpu
def test_common_kernels_of_this_device_are_found_or_compiled(tmp_path, monkeypatch):
    pytest.importorskip("cupy", reason="a real device needs CuPy")
    from ozaki.backends.cupy import devices

    target = devices.current().architecture
    name, macros = compiling.common(target)[0]
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    of_file = compiling._file(name, macros, target)
    assert of_file.parent == tmp_path or of_file.stat().st_size > 1000
