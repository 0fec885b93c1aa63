"""`openreg run --ranks --prefix`: complete lines with their rank, in the order of each stream."""

import os
import re
import subprocess
import sys

import pytest
from openreg_program import OPENREG

pytestmark = pytest.mark.own_processes

# The last line has no newline.
COUNT = """
for i in $(seq 1000); do echo "$RANK out $i"; echo "$RANK error $i" >&2; done
printf "$RANK last"
"""


def test_lines_are_whole_and_in_order(start):
    result = start("--ranks", 3, "--prefix", "sh", "-c", COUNT)
    for rank in range(3):
        mine = [f"{rank} out {number}" for number in range(1, 1001)] + [f"{rank} last"]
        lines = re.findall(rf"^\[rank{rank}\]: (.*)$", result.stdout, re.MULTILINE)
        assert lines == mine
        lines = re.findall(rf"^\[rank{rank}\]: (.*)$", result.stderr, re.MULTILINE)
        assert lines == [f"{rank} error {number}" for number in range(1, 1001)]
    assert len(result.stdout.splitlines()) == 3 * 1001
    assert len(result.stderr.splitlines()) == 3 * 1000


def test_without_it_output_is_the_programs(start):
    assert start("--ranks", 1, "sh", "-c", "printf x; printf y >&2").stdout == "x"


def test_a_line_of_python_comes_when_it_is_whole(environment, tmp_path):
    program = tmp_path / "say.py"
    program.write_text("print('a line')\ninput()\n")
    environment.pop("PYTHONUNBUFFERED", None)
    command = [*OPENREG, "run", "--ranks", "1", "--prefix", program]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"[rank0]: a line\n"
        process.communicate(b"\n")
        assert process.returncode == 0


def test_a_traceback_that_pytorch_has_prefixed_is_not_prefixed_again(start):
    code = 'echo "[rank$RANK]: Traceback"; echo "[rank7]: other"'
    result = start("--ranks", 1, "--prefix", "sh", "-c", code)
    assert result.stdout == "[rank0]: Traceback\n[rank0]: [rank7]: other\n"


def test_a_slow_reader_gets_all_output(environment):
    """The launcher keeps output that a full pipe does not accept."""
    line = "x" * 1000
    code = f"i=0; while [ $i -lt 2000 ]; do echo {line}; i=$((i+1)); done"
    command = [*OPENREG, "run", "--ranks", "2", "--prefix", "sh", "-c", code]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        first = process.stdout.readline()
        rest = process.stdout.read()
    lines = (first + rest).decode().splitlines()
    assert sorted(set(lines)) == [f"[rank{rank}]: {line}" for rank in (0, 1)]
    assert len(lines) == 4000


def test_ranks_notice_that_the_reader_is_gone(environment):
    command = [*OPENREG, "run", "--ranks", "2", "--prefix", "yes"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() in (b"[rank0]: y\n", b"[rank1]: y\n")
        process.stdout.close()
        assert b"SIGPIPE" in process.stderr.read()
    assert process.returncode == 128 + 13


def test_children_that_outlive_the_ranks_are_not_waited_for(environment):
    read, write = os.pipe()
    # The child ends when this process closes the pipe.
    child = f"os.close({write}); os.read({read}, 1)"
    code = f"print('said', flush=True)\nimport os\nif os.fork() == 0: {child}"
    command = [*OPENREG, "run", "--ranks", "1", "--prefix", sys.executable, "-S", "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, pass_fds=[read, write])
    assert result.stdout == b"[rank0]: said\n"
    os.close(write)
    os.close(read)
