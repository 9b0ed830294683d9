"""The pages about torchrun and mpiexec: their shell blocks run, and print what the block after them says."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import mpiexec, needs

PAGES = Path(__file__).parents[1] / "docs" / "how_to"

BLOCKS = re.compile(r"^```sh\n(.*?)^```\n\nIt prints\n\n```text\n(.*?)^```$", flags=re.M | re.S)


@pytest.mark.parametrize(("page", "engine"), [("torchrun", "torch.distributed.tensor"), ("mpiexec", "mpi4py")])
def test_the_commands_print_what_they_say(page, engine, tmp_path):
    needs(engine)
    before = [Path(sys.executable).parent]
    if page == "mpiexec":
        before.append(Path(mpiexec()).parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, before), os.environ["PATH"]]),
        "PYTHONPATH": str(PAGES.parents[1]),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    found = BLOCKS.findall(text)
    assert len(found) == text.count("```sh") > 0
    for commands, expected in found:
        done = subprocess.run(
            ["bash", "-e", "-c", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS), done.stdout
