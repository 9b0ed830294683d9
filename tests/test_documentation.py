"""The pages of docs/: their Python blocks print what they say, their links resolve, and each is on the site."""

import doctest
import functools
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

LIBRARIES = {"cupy": r"\b(cupy|cp)\b", "torch": r"\btorch\b", "dask": r"\b(dask|da)\b", "jax": r"\b(jax|jnp)\b"}
"""Libraries that may be missing, and how a block that needs one is told from others."""

BLOCK = re.compile(r"^(?:```|~~~)python\n(.*?)^(?:```|~~~)$", flags=re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
ANY_BLOCK = re.compile(r"^(`{3,}|~{3,}).*?^\1$|^ {4}.*?$|`[^`\n]+`", flags=re.M | re.S)


def pages():
    """Paths of all pages, relative to the root; without what a build of the site writes there."""
    found = [path for path in DOCS.rglob("*.md") if "generated" not in path.parts]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks(name):
    """The Python blocks of a page with examples, each with its line and the libraries that it needs."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        if block[1].startswith(">>>"):
            needs = {library for library, pattern in LIBRARIES.items() if re.search(pattern, block[1])}
            yield block[1], text[: block.start(1)].count("\n"), needs


@functools.cache
def is_there(library):
    """Whether a library is installed; of CuPy, also whether it finds a device."""
    try:
        module = importlib.import_module(library)
    except ImportError:
        return False
    if library != "cupy":
        return True
    try:
        return module.cuda.runtime.getDeviceCount() > 0
    except module.cuda.runtime.CUDARuntimeError:
        return False


WITH_EXAMPLES = [name for name in pages() if any(blocks(name))]


def test_there_are_pages_with_examples():
    assert len(WITH_EXAMPLES) > 10


@pytest.fixture
def own_settings(name):
    """What a page sets of JAX for the whole process, set back."""
    if not any("jax" in needs for _, _, needs in blocks(name)) or not is_there("jax"):
        yield
        return
    import jax

    wide = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", wide)


@pytest.mark.usefixtures("own_settings")
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_print_what_they_say(name):
    """The blocks of a page share their variables; those for a library that is missing are left out."""
    variables, printed, ran, missing = {}, [], 0, set()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for text, line, needs in blocks(name):
        if lacking := {library for library in needs if not is_there(library)}:
            missing |= lacking
            continue
        examples = doctest.DocTestParser().get_doctest(text, variables, name, name, line)
        runner.run(examples, out=printed.append, clear_globs=False)
        variables, ran = examples.globs, ran + 1
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)
    if not ran:
        pytest.skip(f"not installed, or without a device: {', '.join(sorted(missing))}")


@pytest.mark.parametrize(
    "name", [name for name in pages() if name.split("/")[1] in ("explanation", "how_to", "start.md")]
)
def test_all_python_blocks_of_a_users_page_are_examples(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text.count("```python") == sum(1 for _ in blocks(name))


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *pages()])
def test_links_and_images_resolve(name):
    text = ANY_BLOCK.sub("", (ROOT / name).read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if not re.match(r"https?:|mailto:|#", target):
            place, _, anchor = target.partition("#")
            path = (ROOT / name).parent / place
            assert path.exists(), f"{name}: {target}"
            if anchor and path.suffix == ".md":
                assert anchor in anchors(path), f"{name}: {target} has no such heading"


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_everything_on_the_site_lies_in_its_folder():
    """Sphinx finds no page that is a link to a file elsewhere."""
    assert all(path.resolve().is_relative_to(DOCS) for path in DOCS.rglob("*"))


def test_every_page_is_on_the_site():
    """Each page is in a table of contents, as Sphinx wants it; this finds it out without Sphinx."""
    listed = {"docs/index.md"}
    for name in pages():
        for toctree in re.findall(r"^```\{toctree\}\n(.*?)^```$", (ROOT / name).read_text("utf-8"), flags=re.M | re.S):
            for entry in re.findall(r"^[\w./]+$", toctree, flags=re.M):
                path = ((ROOT / name).parent / f"{entry}.md").resolve()
                if path.exists():
                    listed.add(str(path.relative_to(ROOT)))
    assert sorted(listed) == pages()


def test_all_of_linear_algebra_is_listed():
    """Each public name has a page of the reference, and each function a row of the table of linear algebra."""
    linalg = importlib.import_module("ozaki.linalg")
    reference = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^   linalg\.([\w.]+)$", reference, flags=re.M)
    assert sorted(listed) == sorted(linalg.__all__)
    functions = " ".join(row[0] for row in rows_of((DOCS / "linalg.md").read_text(encoding="utf-8")))
    assert [name for name in linalg.__all__ if name.islower() and not re.search(rf"`{name}\b", functions)] == []


def rows_of(text):
    """The cells of each row of the tables in a text."""
    return [
        [cell.strip(" *") for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, flags=re.M)
    ]


def test_the_numbers_of_the_comparison_are_those_of_the_measurements():
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    on_gpus = rows_of(text.partition("## Time and error on GPUs")[2].partition("## ")[0])[2:]
    measured = {
        (row[-1], row[2], row[3])
        for row in rows_of((DOCS / "measurements.md").read_text(encoding="utf-8"))
        if len(row) == 9
    }
    assert len(on_gpus) > 5
    assert {tuple(row[2:]) for row in on_gpus} <= measured
    on_cpus = rows_of(text.partition("## Time on a CPU")[2].partition("## ")[0])[2:]
    multiprecision = rows_of((DOCS / "multiprecision.md").read_text(encoding="utf-8"))
    seconds = {
        (row[0], row[3].removesuffix(" s"), row[4].removesuffix(" s")) for row in multiprecision if len(row) == 6
    }
    assert len(on_cpus) > 3
    assert {tuple(row) for row in on_cpus} <= seconds
