"""The common features of all commands of `openreg`: errors, exit statuses, help, completion."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from openreg_program import OPENREG
from torch_openreg.__main__ import COMMANDS
from torch_openreg.commands.completion import PROFILES, SHELLS, script

from device import DEVICE

EACH = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def openreg(own_group):
    def run(*words, expect=0, **changes):
        result = subprocess.run(
            [*OPENREG, *words], env=own_group() | changes, capture_output=True, text=True
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return run


def test_help_lists_every_command(openreg):
    reported = openreg("--help").stdout
    for name, what in COMMANDS.items():
        assert re.search(rf"^    {name}\b", reported, re.M)
        assert what in " ".join(reported.split())


@EACH
def test_help_states_examples_and_exit_statuses(openreg, command):
    result = openreg(command, "--help")
    assert result.stderr == ""
    assert re.search(rf"^examples:\n  .*openreg {command}", result.stdout, re.M)
    _, _, statuses = result.stdout.partition("\nexit status:\n")
    assert re.search(r"^  2 +\w", statuses, re.M)


@EACH
def test_wrong_words_are_status_2_and_a_sentence_on_stderr(openreg, command):
    result = openreg(command, "--bogus", expect=2)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"usage: openreg {command}")
    assert lines[-1].startswith(f"openreg {command}: error: ")


@pytest.mark.parametrize("words", [[], ["bogus"], ["--bogus"], ["--", "smi"]])
def test_words_without_a_command_are_status_2(openreg, words):
    result = openreg(*words, expect=2)
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("openreg: error: ")


def test_help_and_version_do_not_import_pytorch(openreg, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('PyTorch was imported')\n")
    settings = {"PYTHONPATH": str(tmp_path), "OPENREG_DEVICE_TYPE": "openreg"}
    assert re.fullmatch(r"openreg \d+\.\d+.*\n", openreg("--version", **settings).stdout)
    for words in (["--help"], ["run", "--help"], ["doctor", "--help"], ["completion", "bash"]):
        assert openreg(*words, **settings).stdout


def test_module_is_the_program(own_group):
    words = [sys.executable, "-m", "torch_openreg", "completion", "bash"]
    result = subprocess.run(words, env=own_group(), capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, script("bash"))


# ---- completion ----------------------------------------------------------------------------------

# bash splits at "=" and spaces. The last word is the one at the cursor, which may be empty.
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
_openreg
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def complete(tmp_path):
    """Return the completions that bash offers for the last of some words."""
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "openreg.bash").write_text(script("bash"))

    def complete(*words):
        folder = tmp_path / "work"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").touch()
        result = subprocess.run(
            [bash, "--norc", "-c", COMPLETE, "bash", str(tmp_path / "openreg.bash"), *words],
            cwd=folder,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
        )
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout.split()

    return complete


def test_bash_completes_commands(complete):
    assert set(complete("openreg", "")) == {*COMMANDS, "--help", "--version"}
    assert complete("openreg", "sa") == ["sanitize"]


def test_bash_completes_the_options_that_the_commands_have(complete, openreg):
    for command in COMMANDS:
        reported = openreg(command, "--help").stdout
        options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", reported, re.M))
        assert set(complete("openreg", command, "--")) == options


@pytest.mark.parametrize(
    "words, offered",
    [
        (["openreg", "smi", "--gr"], ["--group"]),
        (["openreg", "run", "--devices", "2", "--pro"], ["--profile"]),
        (["openreg", "run", "--devices", "=", "2", "--pro"], ["--profile"]),
        (["openreg", "run", "--prefix", "--ra"], ["--ranks"]),
        (["openreg", "run", "--profile", "a10"], ["a100", "a100-80gb", "a10g"]),
        (["openreg", "run", "--profile", "=", "h2"], ["h200", "h20"]),
        (["openreg", "run", "--devices", ""], []),
        (["openreg", "sanitize", "--only", "use"], ["use-after-free"]),
        (["openreg", "sanitize", "--json", "tra"], ["train.py"]),
        (["openreg", "completion", "z"], ["zsh"]),
        (["openreg", "run", "train.p"], ["train.py"]),
        (["openreg", "run", "--devices", "2", "train.py", "tr"], ["train.py"]),
        (["openreg", "sanitize", "openreg", "run", "--ra"], ["--ranks"]),
        (["openreg", "sanitize", "--stacks", "openreg", "sm"], ["smi"]),
    ],
)
def test_bash_completes(complete, words, offered):
    assert complete(*words) == offered


def test_profiles_are_those_that_are_known(python):
    refused = python(
        f"import torch; torch.empty(1, device={DEVICE!r})",
        expect=1,
        fresh=True,
        OPENREG_PROFILE="none",
    ).stderr
    (known,) = re.findall(r"known names: (.*?); or numbers", refused.replace("\n", " "))[:1]
    assert known.split(", ") == list(PROFILES)


@pytest.mark.parametrize("shell", SHELLS)
def test_shell_reads_its_script(shell, tmp_path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    file = tmp_path / "script"
    file.write_text(script(shell))
    result = subprocess.run([program, "-n", file], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
