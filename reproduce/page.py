"""docs/seeds.md out of the result files: `python -m reproduce.page [--check]`."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from benchmarks.results import ROOT, slug
from reproduce.figures import FOLDER, Figure, SeedRun, Where, read
from reproduce.plots import plot

PAGE = ROOT / "docs" / "seeds.md"

COMMAND = "python -m reproduce.page"

TITLES = {
    "recovering": "Ootomo and Yokota: Recovering single precision accuracy from Tensor Cores (IJHPCA 2022, arXiv "
    "2203.03341), and the Japanese report before it",
    "multiword": "Fasi, Higham, Lopez, Mary and Mikaitis: Matrix multiplication in multiword arithmetic (SIAM J. Sci. "
    "Comput., 2022)",
    "two-stage": "A blog post: Improving FP16/16 matmul accuracy with two-stage accumulation",
    "slides": "Ootomo: DGEMM on Integer Tensor Cores (slides, 2023)",
}

NOT_ON_CPU = {
    "recovering": "Figures 14 to 16 and table 6 (throughput, roofline, energy) need a GPU.",
    "multiword": "Figure 4.1 and the left halves of 4.4 and 4.5 (throughput) need a GPU.",
    "two-stage": "The table of times needs a GPU.",
    "slides": "Throughput needs a GPU.",
}
"""What the page says of each seed without results from a GPU."""

INTRODUCTION = """# The papers, reproduced

What the papers that the library starts from published, and what comes out here. Accuracy is shown on a CPU: the tensor
cores are those of `ozaki.tensor_core`, a model. Results from a GPU, with its own tensor cores, follow and name the
device. The page is written by `python -m reproduce.page` from `reproduce/results/`; `python -m reproduce` makes those
anew, with `--device gpu` those of a GPU, with `--scale full` up to the papers' n and k (what is smaller says so).
Figures 4, 5, 8, 9 and 14 of the first paper are 2, 3, 6, 7 and 9 of the Japanese report before it; where it has other
data, figure 4 says so, and its figure 8 stands by itself. A published plot has no numbers to compare with, so its
statements are checked: each line says what was published, and what came out here.

Feng et al. (`scheme="feng"`) use the sign of the low word as one more bit of the significand. As the first paper quotes
them (section 1), the 21st bit of the significand decides which way the high word is rounded; it doubts that this can be
what they intend, and it is not reproduced here. The preset decides by the first bit that is cut off, which is rounding
to nearest, as CUDA's conversion does it but for ties. The accuracy that Feng et al. print could not be reproduced,
neither by the first paper nor here: the errors are those of Markidis et al. (figure 1).
"""


def main(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if the page is stale.")] = False,
    page: Annotated[Path, typer.Option(help="File to write.")] = PAGE,
    results: Annotated[Path, typer.Option(help="Folder with the result files.")] = FOLDER,
) -> None:
    """Write the page and its pictures."""
    runs = [read(path) for path in results.glob("*.json")]
    text = written(runs)
    if check:
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            typer.echo(f"stale: {page}; run `{COMMAND}`", err=True)
            raise typer.Exit(1)
        return
    page.write_text(text, encoding="utf-8")
    for run in runs:
        for figure in run.figures:
            if figure.series:
                plot(figure, page.parent / "figures" / "seeds" / picture(run, figure))


def written(runs: list[SeedRun]) -> str:
    """The whole page."""
    papers = [sorted((run for run in runs if run.seed == seed), key=lambda run: run.where) for seed in TITLES]
    return "\n".join([INTRODUCTION, *(section(paper) for paper in papers if paper)])


def section(runs: list[SeedRun]) -> str:
    """One paper: what ran on a CPU, then what ran on a GPU."""
    seed = runs[0].seed
    parts = [f"## {TITLES[seed]}"]
    if Where.gpu not in {run.where for run in runs}:
        parts.append(NOT_ON_CPU[seed])
    for run in runs:
        parts += reproduced(run)
    return "\n\n".join(parts) + "\n"


def reproduced(run: SeedRun) -> list[str]:
    """The figures of one run, and what ran."""
    parts = []
    place = f" on the {run.device}" if run.where is Where.gpu else ""
    for figure in run.figures:
        parts += [f"### {figure.name}{place}: {figure.title}", table(figure)]
        if figure.differs:
            parts.append(fill(figure.differs, 120, break_long_words=False, break_on_hyphens=False))
        if figure.series:
            parts.append(f"![{figure.name}{place}](figures/seeds/{picture(run, figure)})")
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return [*parts, f"{run.date[:10]}, {run.device}, scale {run.scale}; {versions}."]


def table(figure: Figure) -> str:
    """What was published beside what came out."""
    lines = ["| published | here | agrees |", "|---|---|---|"]
    lines += [f"| {c.published} | {c.ours} | {'yes' if c.holds else '**no**'} |" for c in figure.claims]
    return "\n".join(lines)


def picture(run: SeedRun, figure: Figure) -> str:
    return f"{run.stem}-{slug(figure.name)}.png"


if __name__ == "__main__":
    typer.run(main)
