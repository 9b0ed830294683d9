"""The code for processors: compiled where there is a compiler, into wheels too, found, checked, and chosen by name."""

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from cases import same_bits

import ozaki
from building import compile_cpu
from building.compile_cpu import FOLDER, X86, compile_libraries, get_build_hook
from ozaki.backends.numpy.compiled import Compiled, compiled
from ozaki.backends.numpy.compiled import library as module
from ozaki.backends.numpy.compiled.self_test import INTERFACE, wrong_interface

ROOT = Path(__file__).parents[1]
NAMES = ["portable", *(X86 if platform.machine().lower() in ("x86_64", "amd64") else ())]
FASTEST = "vnni|avxvnni|this processor has no .*" if X86.keys() & set(NAMES) else "there is no compiled code .*"
COMPILERS = [name for name in ("c++", "g++", "clang++") if shutil.which(name)]

needs_compiler = pytest.mark.skipif(not COMPILERS or sys.platform == "win32", reason="there is no C++ compiler")
needs_vnni = pytest.mark.skipif("vnni" not in NAMES, reason="there is no AVX512-VNNI but on x86-64")

SMALL = """
extern "C" __attribute__((visibility("default"))) int ozaki_cpu_interface(void) {{ return {interface}; }}
extern "C" __attribute__((visibility("default"))) int ozaki_cpu_runs_here(void) {{ return 1; }}
"""
"""A library with just the functions that every one has, which any processor runs."""


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """A function that sets `OZAKI_CPU`; at first it is not set, nor any variable that decides what is compiled."""
    for name in ("OZAKI_CPU", "OZAKI_NO_COMPILE", "CXX"):
        monkeypatch.delenv(name, raising=False)

    def ask(choice):
        monkeypatch.setenv("OZAKI_CPU", choice)
        compiled.cache_clear()

    compiled.cache_clear()
    yield ask
    compiled.cache_clear()


@pytest.fixture
def tree(tmp_path):
    """A folder with the sources of a small library."""
    (tmp_path / "ozaki").mkdir()
    (tmp_path / "kernels" / "cpu").mkdir(parents=True)
    (tmp_path / "kernels" / "cpu" / "library.cpp").write_text(SMALL.format(interface=INTERFACE))
    return tmp_path


def made(tree):
    """The libraries that are compiled of the sources in a folder, and the lines that are said meanwhile."""
    lines = []
    places = compile_libraries(tree, lines.append)
    assert len(lines) <= 1 and all("\n" not in line for line in lines)
    assert not [*tree.rglob("*.begun")]
    return [place.stem.removeprefix("cpu_") for place in places], "".join(lines)


@pytest.fixture
def libraries(tree, monkeypatch):
    """The folder of a small library's two kinds, where this process looks for them."""
    assert made(tree) == (NAMES, "")
    monkeypatch.setattr(module, "FOLDER", tree / FOLDER)
    monkeypatch.setattr(module, "self_test", wrong_interface)  # it has no other functions
    return tree / FOLDER


# Compiling ------------------------------------------------------------------------------------------------------------


@needs_compiler
def test_libraries_are_compiled_and_replaced(tree):
    assert made(tree) == (NAMES, "")
    first = {path.name: path.stat().st_ino for path in (tree / FOLDER).iterdir()}
    assert sorted(first) == sorted(f"cpu_{name}.so" for name in NAMES)
    assert made(tree) == (NAMES, "")
    assert all(path.stat().st_ino != first[path.name] for path in (tree / FOLDER).iterdir())  # another process keeps it


@needs_compiler
@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"CXX": "/bin/false"}, r"/bin/false failed on cpu_portable.*: exit status 1"),
        ({"CXX": "/no/such/compiler"}, "/no/such/compiler"),
        ({"OZAKI_NO_COMPILE": "1"}, "OZAKI_NO_COMPILE is in the environment"),
        ({"PATH": "/no/such/folder"}, "there is no C\\+\\+ compiler"),
    ],
)
def test_without_a_compiler_there_is_a_line(tree, monkeypatch, variables, reason):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    names, line = made(tree)
    assert names == [] and re.search(f"no code for this processor is compiled: .*{reason}.*`ozaki info`", line)


@needs_compiler
def test_sources_that_do_not_compile_leave_the_libraries_before_them(tree):
    made(tree)
    source = tree / "kernels" / "cpu" / "library.cpp"
    source.write_text(source.read_text() + "\nint wrong = nowhere;\n")
    names, line = made(tree)
    assert names == [] and "error: 'nowhere' was not declared" in line.replace("‘", "'").replace("’", "'")
    assert len([*(tree / FOLDER).iterdir()]) == len(NAMES)


@needs_compiler
@needs_vnni
def test_the_library_that_compiles_is_kept(tree):
    source = tree / "kernels" / "cpu" / "library.cpp"
    source.write_text("#ifdef __AVX512VNNI__\n#error too new\n#endif\n" + source.read_text())
    names, line = made(tree)
    assert (
        names == [name for name in NAMES if name != "vnni"]
        and "not all of the code" in line
        and "failed on cpu_vnni: " in line
    )


@needs_compiler
def test_a_compiler_may_have_options(tree, monkeypatch):
    source = tree / "kernels" / "cpu" / "library.cpp"
    source.write_text("#ifndef ONE\n#error not given\n#endif\n" + source.read_text())
    monkeypatch.setenv("CXX", f"{COMPILERS[0]} -DONE=1")
    assert made(tree) == (NAMES, "")


@needs_compiler
@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_make_compiles_what_is_older_than_its_sources(tree):
    (tree / "building").mkdir()
    for name in ("Makefile", "building/compile_cpu.py"):
        shutil.copy(ROOT / name, tree / name)

    def make():
        before = {path: path.stat().st_ino for path in (tree / FOLDER).glob("*.so")}
        subprocess.run(["make", "cpu", f"PYTHON={sys.executable}"], cwd=tree, check=True, capture_output=True)
        return len([path for path in (tree / FOLDER).iterdir() if before.get(path) != path.stat().st_ino])

    assert make() == len(NAMES)
    assert make() == 0
    later = (tree / FOLDER / "cpu_portable.so").stat().st_mtime + 1
    os.utime(tree / "kernels" / "cpu" / "library.cpp", (later, later))
    assert make() == len(NAMES)


# In wheels ------------------------------------------------------------------------------------------------------------


def built(folder, **environment):
    """A wheel of a copy of this package, so that the checkout keeps its libraries; built in a folder."""
    copy = folder / "copy"
    shutil.copytree(ROOT / "ozaki", copy / "ozaki", ignore=shutil.ignore_patterns("__pycache__"))
    for each in ("kernels", "building"):
        shutil.copytree(ROOT / each, copy / each, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    for name in (".gitignore", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    words = [sys.executable, "-c", "import sys, hatchling.build as hatch; hatch.build_wheel(sys.argv[1])", folder]
    environment = {**os.environ, **environment}
    done = subprocess.run(words, cwd=copy, env=environment, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel, zipfile.ZipFile(wheel).namelist(), done.stdout + done.stderr


def test_a_wheel_without_a_compiler_is_one_for_all_platforms(tmp_path):
    wheel, names, said = built(tmp_path, CXX="/bin/false")
    assert wheel.name.endswith("-py3-none-any.whl") and not [name for name in names if name.endswith(".so")]
    assert len([line for line in said.splitlines() if "no code for this processor is compiled" in line]) == 1


@needs_compiler
@pytest.mark.full
def test_a_wheel_holds_the_libraries_and_is_one_for_this_platform(tmp_path):
    wheel, names, said = built(tmp_path)
    assert re.search(r"-py3-none-(linux|macosx)_\w+\.whl$", wheel.name) and "compiled" not in said
    assert sorted(name for name in names if name.endswith(".so")) == sorted(
        f"ozaki/compiled/cpu_{name}.so" for name in NAMES
    )
    (tags,) = (zipfile.ZipFile(wheel).read(name).decode() for name in names if name.endswith("/WHEEL"))
    assert "Root-Is-Purelib: false" in tags
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    code = "from ozaki.backends.numpy.compiled import compiled; print(compiled().library._name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "OZAKI_CPU": "portable"}
    words = [sys.executable, "-c", code]
    found = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()) == tmp_path / "installed" / "ozaki" / "compiled" / "cpu_portable.so"


@needs_compiler
@pytest.mark.parametrize("version", ["standard", "editable"])
def test_an_editable_install_finds_them_in_the_checkout(tree, version):
    lines = []
    hook = get_build_hook()(str(tree), {}, None, None, "", "wheel", SimpleNamespace(display_warning=lines.append))
    data = {"force_include": {}, "pure_python": True}
    hook.initialize(version, data)
    assert sorted(path.stem for path in (tree / FOLDER).iterdir()) == sorted(f"cpu_{name}" for name in NAMES)
    assert not lines
    included = data["force_include"].values()
    assert len(included) == (0 if version == "editable" else len(NAMES)) and data["pure_python"] == (not included)


def test_sources_are_in_the_source_archive():
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("targets.sdist]")[1].split("]")[0]
    assert '"building"' in listed and '"kernels"' in listed


# Which one is taken ---------------------------------------------------------------------------------------------------


def test_no_line_of_the_sources_is_long():
    files = [path for path in (ROOT / "kernels" / "cpu").iterdir() if path.suffix in (".h", ".cpp")]
    lines = [(path.name, i) for path in files for i, x in enumerate(path.read_text().splitlines(), 1) if len(x) > 120]
    assert files and not lines


def test_the_number_of_the_interface_is_that_of_the_sources():
    source = (ROOT / "kernels" / "cpu" / "library.cpp").read_text(encoding="utf-8")
    assert re.findall(r"ozaki_cpu_interface\(void\) \{ return (\d+); \}", source) == [str(INTERFACE)]


CHOSEN = """
import pathlib, sys
from ozaki.backends.numpy.compiled import library as compiled
compiled.FOLDER = pathlib.Path(sys.argv[1])
compiled.self_test = lambda library: None
found = compiled.compiled()
print(getattr(found, "name", found))
"""


@needs_compiler
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, FASTEST),
        ("vnni", "vnni" if "vnni" in NAMES else "cpu_vnni.so is not there: .*"),
        ("portable", "portable"),
        ("float64", "OZAKI_CPU=float64 in the environment asks for it"),
        ("", FASTEST),
        (
            "VNNI",
            "ValueError: OZAKI_CPU: 'VNNI' in the environment; expected one of vnni, avxvnni, .*, portable, float64",
        ),
    ],
)
def test_the_environment_chooses(libraries, choice, expected):
    environment = {name: value for name, value in os.environ.items() if name != "OZAKI_CPU"}
    if choice is not None:
        environment["OZAKI_CPU"] = choice
    words = [sys.executable, "-c", CHOSEN, libraries]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert re.fullmatch(expected, (done.stdout or done.stderr).splitlines()[-1])


@needs_compiler
def test_a_library_that_is_not_whole_is_refused(libraries, asked):
    path = libraries / "cpu_portable.so"
    whole = path.read_bytes()
    for size in (0, 10, 100, 4096, len(whole) - 1):
        path.write_bytes(whole[:size])
        asked("portable")
        assert isinstance(compiled(), str)


@needs_compiler
def test_a_wrong_choice_is_an_error_each_time(libraries, asked):
    asked("fast")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^OZAKI_CPU: 'fast' in the environment; expected one of vnni, avxvnni, "):
            compiled()


@needs_compiler
@needs_vnni
def test_a_processor_takes_the_best_code_for_its_instructions(libraries, asked, monkeypatch):
    has = {"cpu_avxvnni.so", "cpu_portable.so"}
    monkeypatch.setattr(module, "runs_here", lambda library: Path(library._name).name in has)
    monkeypatch.setattr(module, "self_test", lambda library: None)
    assert compiled().name == "avxvnni"
    has.remove("cpu_avxvnni.so")
    monkeypatch.setattr(module, "self_test", lambda library: pytest.fail("it ran"))
    ozaki.clear_caches()
    lacking = [f"this processor has no {title}" for title in ("AVX512-VNNI", "AVX-VNNI")]
    assert compiled() == "\n".join(lacking)
    asked("vnni")
    assert compiled() == lacking[0]
    monkeypatch.setattr(module, "self_test", lambda library: None)
    asked("portable")
    assert isinstance(compiled(), Compiled) and compiled().name == "portable"


@needs_compiler
def test_a_library_of_other_sources_is_refused(tree, asked, monkeypatch):
    (tree / "kernels" / "cpu" / "library.cpp").write_text(SMALL.format(interface=INTERFACE + 1))
    made(tree)
    monkeypatch.setattr(module, "FOLDER", tree / FOLDER)
    asked("portable")
    reason = rf"cpu_portable\.so is of other sources \(interface {INTERFACE + 1}, expected {INTERFACE}\): in a checkout"
    assert re.match(reason, compiled()) and "`make cpu`" in compiled()


@needs_compiler
def test_a_library_that_fails_its_test_is_not_taken(libraries, asked, monkeypatch):
    tested = []
    monkeypatch.setattr(module, "self_test", lambda library: tested.append(library) or "gives a wrong product")
    asked("portable")
    assert compiled() is compiled() and compiled().startswith("cpu_portable.so gives a wrong product: ")
    assert len(tested) == 1


@pytest.mark.parametrize("content", [None, b"", b"no library"])
def test_what_is_no_library_is_not_taken(tmp_path, asked, monkeypatch, content):
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    if content is not None:
        (tmp_path / "cpu_portable.so").write_bytes(content)
    asked("portable")
    what = "is not there" if content is None else "cannot be used \\(.+\\)"
    assert re.fullmatch(f"cpu_portable.so {what}: in a checkout, `make cpu` .+", compiled())


@needs_compiler
def test_a_library_without_its_functions_is_not_taken(tree, asked, monkeypatch):
    (tree / "kernels" / "cpu" / "library.cpp").write_text("int other(void) { return 1; }")
    made(tree)
    monkeypatch.setattr(module, "FOLDER", tree / FOLDER)
    asked("portable")
    assert re.match(r"cpu_portable\.so cannot be used \(.*ozaki_cpu_runs_here.*\): ", compiled())


@needs_compiler
def test_the_choice_is_kept_until_caches_are_cleared(libraries, asked, monkeypatch):
    asked("portable")
    first = compiled()
    assert str(first) == "portable C++, compiled"
    monkeypatch.setenv("OZAKI_CPU", "float64")
    assert compiled() is first
    ozaki.clear_caches()
    assert compiled() == "OZAKI_CPU=float64 in the environment asks for it"


@needs_compiler
@needs_vnni
def test_dot_products_of_avx_vnni_in_the_encoding_of_avx512(tree, asked, monkeypatch, rng):
    """Their code, on a processor that has the same instructions in another encoding."""
    asked("vnni")
    if not isinstance(compiled(), Compiled):
        pytest.skip(compiled())
    for name in ("cpu", "arithmetic"):
        shutil.copytree(ROOT / "kernels" / name, tree / "kernels" / name, dirs_exist_ok=True)
    header = tree / "kernels" / "cpu" / "operations_registers.h"
    header.write_text(header.read_text().replace("%{vex%} vpdpbusd", "vpdpbusd"))
    source = tree / "kernels" / "cpu" / "library.cpp"
    source.write_text(source.read_text().replace('__builtin_cpu_supports("avxvnni")', "1"))
    monkeypatch.setattr(compile_cpu, "X86", {"avxvnni": X86["avxvnni"]})
    made(tree)
    monkeypatch.setattr(module, "FOLDER", tree / FOLDER)
    asked("avxvnni")
    assert isinstance(compiled(), Compiled) and compiled().name == "avxvnni"
    for m, k, n in ((1, 1, 1), (9, 70, 50), (130, 1100, 100)):
        for dtype, count in (("float64", 14), ("float32", 7), ("complex128", 15)):
            a, b = (rng.standard_normal((*shape, 2)).view("complex128")[..., 0] for shape in ((m, k), (k, n)))
            a, b = (x.astype(dtype) if dtype[0] == "c" else x.real.astype(dtype) for x in (a, b))
            way = {"scheme": "residues", "slices": count}
            c, report = ozaki.matmul(a, b, return_report=True, **way)
            assert report.engine == "NumPy, int8 by AVX-VNNI, compiled"
            assert same_bits(c, ozaki.matmul(a, b, engine="float64", **way))
            way = {"scheme": "digits", "slices": (count + 1) // 2}
            assert same_bits(ozaki.matmul(a, b, **way), ozaki.matmul(a, b, engine="float64", **way))
        a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        found = [ozaki.matmul(a, b, accuracy="fp64", reproducible=True, engine=name) for name in ("auto", "float64")]
        assert same_bits(*found)
