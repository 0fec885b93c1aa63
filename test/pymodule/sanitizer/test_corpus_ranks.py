"""The sanitizer finds the bug that each program for two ranks names, once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import corpus
import pytest

from device import DEVICE

pytestmark = pytest.mark.own_processes

HERE = Path(__file__).parent
# `openreg run`, wherever it is installed.
OPENREG_RUN = "import sys; del sys.path[0]; import _openreg_command as c; sys.exit(c.main())"
PATHS = [*corpus.programs("ranks_bugs"), *corpus.programs("ranks_right")]


@pytest.fixture(scope="module")
def found(own_group):
    """Run all programs in one job of two ranks, and return the findings of each program."""
    environment = own_group() | {"OPENREG_DEVICE_TYPE": DEVICE}
    folders = [str(HERE), environment["PYTHONPATH"]]
    environment |= {"PYTHONPATH": os.pathsep.join(folders), "PYTHONWARNINGS": "ignore"}
    words = ["run", "--ranks", "2", str(HERE / "run_ranks.py"), *map(str, PATHS)]
    result = subprocess.run(
        [sys.executable, "-c", OPENREG_RUN, *words],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = {path: [] for path in PATHS}
    for line in result.stdout.splitlines():
        number, _rank, findings = line.split(" ", 2)
        found[PATHS[int(number)]] += json.loads(findings)
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_ranks_find_the_bug(found, path):
    assert not corpus.mistakes(corpus.read(path), found[path])
