"""The README is right: its examples run, its commands exist, it is short; so are the counts that the docs give."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ozaki
from benchmarks import linalg, multiprecision
from benchmarks.results import newest_of_devices
from ozaki._cli.commands import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "least"), [("README.md", 7), ("docs/multiprecision.md", 4)])
def test_the_examples_print_what_they_say(name, least):
    text = re.sub("^```.*$", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.M)
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert len(examples.examples) > least
    printed = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=printed.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)


@pytest.mark.parametrize("target", re.findall(r"^    make (\w+)", README, flags=re.M))
def test_the_first_commands_are_in_the_makefile(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)


def test_ci_runs_the_test_command():
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def save_matrices():
    """Write the files that shell commands read: two matrices, and the native product."""
    a, b = np.random.default_rng(0).standard_normal((2, 20, 20))
    for name, x in (("a.npy", a), ("b.npy", b), ("c.npy", a @ b)):
        np.save(name, x)


@pytest.mark.parametrize(("name", "count"), [("README.md", 3), ("docs/multiprecision.md", 5), ("docs/checking.md", 5)])
def test_the_shell_commands_run(tmp_path, monkeypatch, name, count):
    monkeypatch.chdir(tmp_path)
    save_matrices()
    commands = re.findall(r"^    ozaki (.*)$", (ROOT / name).read_text(encoding="utf-8"), flags=re.M)
    assert len(commands) == count
    for command in commands:
        assert CliRunner().invoke(app, command.split()).exit_code == 0


def test_the_shell_commands_print_what_they_say(tmp_path, monkeypatch):
    """Apart from numbers of other matrices, and from GPUs that this machine may have."""
    monkeypatch.chdir(tmp_path)
    save_matrices()
    text = (ROOT / "docs" / "checking.md").read_text(encoding="utf-8")
    examples = re.findall(r"^    ozaki ([^\n]*)\n\n```text\n(.*?)```$", text, flags=re.M | re.S)
    assert len(examples) == 3
    for command, expected in examples:
        words = [*command.split(), *(["--device", "cpu"] if command == "selftest" else [])]
        found = CliRunner().invoke(app, words).stdout
        number = r"-?\d[\d.]*(e[+-]?\d+)?" if command.startswith("verify") else "$^"
        assert re.sub(number, "#", found) == re.sub(number, "#", expected)


def test_the_counts_of_the_table_are_right():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 4096)), rng.standard_normal((4096, 64))
    text = (ROOT / "docs" / "explanation" / "what_runs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]*\| `(?:accuracy=)?([^`]*)` \|[^|]*\| (\d+) \|$", text, flags=re.M)
    assert len(rows) == 6
    for accuracy, products in rows:
        asked = eval(accuracy, {"ozaki": ozaki})  # the page's own words
        # One more or less: other normal data may just meet, or just miss, the tolerance.
        assert abs(ozaki.plan(a, b, accuracy=asked, reproducible=True).products - int(products)) <= 1, accuracy


def test_the_files_that_it_names_exist():
    names = set(re.findall(r"`((?:docs|examples|notebooks)/[\w.]*|\w+\.md)`", README))
    assert names
    for name in names:
        assert (ROOT / name).exists(), name


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_the_benchmarks_have_their_place():
    assert README.count("<!-- benchmarks:begin -->") == README.count("<!-- benchmarks:end -->") == 1


def test_the_table_of_multiprecision_products_is_that_of_the_newest_results():
    text = multiprecision.DOCUMENT.read_text(encoding="utf-8")
    assert multiprecision.with_table(text, newest_of_devices(multiprecision.FOLDER)) == text


def test_the_table_of_linear_algebra_is_that_of_the_newest_results():
    text = linalg.DOCUMENT.read_text(encoding="utf-8")
    assert linalg.with_tables(text, newest_of_devices(linalg.FOLDER)) == text
