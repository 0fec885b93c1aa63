"""`openreg sanitize`: the program runs unchanged, except for findings and the exit status."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from openreg_program import OPENREG

from device import DEVICE

pytestmark = pytest.mark.own_processes

RACE = f"""
import sys, torch
gpu = torch.get_device_module("{DEVICE}")
side = gpu.Stream()
x = torch.ones(100, device="{DEVICE}")
with gpu.stream(side):
    y = x * 2  # the second access
print("to the end")
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
"""
ORDERED = RACE.replace("with gpu.stream", "side.wait_stream(gpu.current_stream())\nwith gpu.stream")
# Does not import PyTorch: these tests do not need findings.
TELL = "import json, os; print(json.dumps(dict(os.environ)))"

# If a process does not end within this time, the test fails.
PATIENCE_SECONDS = 60


@pytest.fixture
def environment(own_group):
    """An environment without the variables of pytest and of the sanitizer."""
    others = ("PYTEST_CURRENT_TEST", "OPENREG_SANITIZER")
    return {name: value for name, value in own_group().items() if not name.startswith(others)}


@pytest.fixture
def sanitize(environment, tmp_path):
    """Run `openreg sanitize` with options and a command to its end."""

    def sanitize(*words, expect=0, **changes):
        result = subprocess.run(
            [*OPENREG, "sanitize", *map(str, words)],
            env=environment | changes,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return sanitize


@pytest.fixture
def race(script):
    return script("race.py", RACE)


# ---- findings ------------------------------------------------------------------------------------


def test_a_finding_is_printed_and_changes_the_status(sanitize, race):
    result = sanitize("race.py", expect=86)
    assert result.stdout == "to the end\n"
    block, summary = result.stderr.split("\n\n")
    assert block.startswith("\nopenreg sanitizer: race\n")
    assert f"float32 [100] on {DEVICE}:0, allocated at race.py:5" in block
    assert "\n  second   race.py:7: aten::mul" in block
    assert "y = x * 2  # the second access" in block
    assert block.endswith("before line 7 of race.py.")
    assert summary == "openreg sanitizer: 1 finding (1 race)\n"


def test_a_program_without_a_finding_is_as_it_was(sanitize, script):
    script("ordered.py", ORDERED)
    result = sanitize("ordered.py", 3, expect=3)
    assert result.stdout == "to the end\n"
    assert result.stderr == "openreg sanitizer: nothing found\n"


@pytest.mark.parametrize(
    ("option", "own", "expect"), [(None, 3, 86), ("7", 0, 7), ("0", 3, 3), ("0", 0, 0)]
)
def test_the_status_can_be_chosen(sanitize, race, option, own, expect):
    options = [] if option is None else ["--error-exitcode", option]
    sanitize(*options, "race.py", own, expect=expect)


def test_modules_and_cuda_mode(sanitize, race):
    assert "on cuda:0" in sanitize(
        *("openreg", "run", "-m", "race"), expect=86, OPENREG_DEVICE_TYPE=DEVICE
    ).stderr.replace("on openreg:0", "on cuda:0")


def test_children_are_watched(sanitize, race, script):
    script(
        "parent.py",
        """
        import subprocess, sys
        print(subprocess.run([sys.executable, "race.py", "5"], stderr=subprocess.PIPE).returncode)
        """,
    )
    result = sanitize("parent.py", expect=86)
    assert result.stdout == "to the end\n5\n"
    assert result.stderr.count("openreg sanitizer: race\n") == 1


def test_ranks_are_watched(sanitize, script):
    script("ranks.py", RACE)
    result = sanitize(
        *("--json", "found.json", "openreg", "run", "--ranks", 2, "ranks.py"),
        expect=86,
        OPENREG_DEVICE_TYPE=DEVICE,
    )
    assert result.stdout.count("to the end") == 2
    assert result.stderr.count("openreg sanitizer: race\n") == 1
    assert "1 finding (1 race) in 2 processes, 2 occurrences\n" in result.stderr


def test_captured_tests_of_pytest_are_watched(sanitize, script):
    indented = textwrap.indent(RACE.replace("len(sys.argv) > 1", "False"), "    ")
    script("test_it.py", f"def test_it():\n{indented}")
    result = sanitize("pytest", "-q", "-p", "no:cacheprovider", expect=86)
    assert "1 passed" in result.stdout
    assert "\n  test     test_it.py::test_it\n" in result.stderr


def test_findings_are_printed_before_a_program_is_killed(sanitize, script):
    script("race.py", RACE + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert "openreg sanitizer: race\n" in sanitize("race.py", expect=86).stderr
    sanitize("--error-exitcode=0", "race.py", expect=128 + signal.SIGKILL)


def test_a_command_without_pytorch_is_reported(sanitize):
    assert "nothing was watched" in sanitize("true").stderr


# ---- options -------------------------------------------------------------------------------------


def test_only_selects_the_kinds(sanitize, race):
    assert "nothing found" in sanitize("--only", "use-after-free,host-access", "race.py").stderr
    sanitize("--only=race", "race.py", expect=86)


def test_leaks_are_found_if_they_are_asked_for(sanitize, script):
    made = f'torch.ones(1000, device="{DEVICE}")'
    script("leak.py", f"import torch\nkept = {made}\ngone = {made}\ndel gone\n")
    sanitize("leak.py")
    stderr = sanitize("--leaks", "leak.py", expect=86).stderr
    assert stderr.startswith("\nopenreg sanitizer: leak\n")
    assert ", allocated at leak.py:2" in stderr and "leak.py:3" not in stderr


def test_suppressed_findings_are_not_printed(sanitize, race, script):
    script(
        "suppressions.ini",
        "[one]\nfile = race.py\nreason = a test\n[two]\noperator = aten::never\nreason = none\n",
    )
    result = sanitize("--suppressions", "suppressions.ini", "race.py")
    assert result.stderr == (
        "openreg sanitizer: nothing found; 1 suppressed\n"
        "openreg sanitizer: suppressions that matched no finding: [two]\n"
    )


def test_json_has_it_all(sanitize, race, tmp_path):
    sanitize("--json", "found.json", "race.py", 4, expect=86)
    seen = json.loads((tmp_path / "found.json").read_text())
    assert (seen["version"], seen["command"], seen["status"]) == (1, ["race.py", "4"], 4)
    assert (seen["processes"], seen["suppressed"]) == (1, {})
    (found,) = seen["findings"]
    assert (found["kind"], found["count"]) == ("race", 1)
    assert found["second"]["stack"][0] == [str(tmp_path / "race.py"), 7, "<module>"]
    assert found["first"]["mode"] == "writes" and found["second"]["mode"] == "reads"
    assert found["first"]["stream"] == 0 != found["second"]["stream"]
    assert found["text"].startswith("openreg sanitizer: race\n")
    assert seen["counters"]


def test_stacks_are_whole_if_asked_for(sanitize, script):
    script("lib.py", "def double(x):\n    return x * 2\n")
    script("race.py", "import lib" + RACE.replace("x * 2", "lib.double(x)"))
    assert "called at" not in sanitize("race.py", expect=86).stderr
    stderr = sanitize("--stacks", "race.py", expect=86).stderr
    assert "second   lib.py:2 in double" in stderr and "called at race.py:7\n" in stderr


def test_options_are_variables(sanitize, script, tmp_path):
    script("s.ini", "[one]\nkind = race\nreason = x\n")
    options = ["--only", "race", "--stacks", "--leaks", "--error-exitcode", 3]
    options += ["--suppressions", "s.ini"]
    seen = json.loads(sanitize(*options, "python", "-c", TELL, OPENREG_DEVICE_TYPE="").stdout)
    assert os.path.basename(seen.pop("OPENREG_SANITIZER_SOCKET")) == "socket"
    assert {name: seen[name] for name in seen if name.startswith("OPENREG_SANITIZER")} == {
        "OPENREG_SANITIZER": "1",
        "OPENREG_SANITIZER_ONLY": "race",
        "OPENREG_SANITIZER_STACKS": "1",
        "OPENREG_SANITIZER_LEAKS": "1",
        "OPENREG_SANITIZER_EXITCODE": "3",
        "OPENREG_SANITIZER_SUPPRESSIONS": str(tmp_path / "s.ini"),
    }
    assert seen["OPENREG_DEVICE_TYPE"] == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "expected a COMMAND"),
        (["-m"], "expected a module after -m"),
        (["--only", "races", "true"], "argument --only: races: expected race, use-after-free"),
        (["--error-exitcode", "256", "true"], "argument --error-exitcode: 256: expected 0 to 255"),
        (["--suppressions", "none", "true"], "none: No such file or directory"),
        (["--json", "no/folder", "true"], "openreg: no/folder: No such file or directory"),
        (["--json", "", "true"], "argument --json: expected a value"),
        (["--leak", "true"], "--leak"),
    ],
)
def test_wrong_words_are_refused(sanitize, words, sentence):
    assert sentence in sanitize(*words, expect=2).stderr


def test_wrong_variables_are_refused(sanitize):
    stderr = sanitize("true", expect=2, OPENREG_SANITIZER_EXITCODE="x").stderr
    assert stderr == "openreg: OPENREG_SANITIZER_EXITCODE=x: expected 0 to 255\n"


@pytest.mark.parametrize(("command", "status"), [("no-such-program", 127), ("./file", 126)])
def test_commands_that_cannot_be_run(sanitize, script, command, status):
    script("file", "text", mode=0o644)
    sanitize(command, expect=status)


# ---- the process ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_sent_on(environment, number):
    code = f"import signal; print(1, flush=True); print(signal.sigwait([{int(number)}]) > 0)"
    blocked = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}]); {code}"
    words = [*OPENREG, "sanitize", sys.executable, "-c", blocked]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.send_signal(number)
        assert process.stdout.read() == "True\n"
        assert process.wait(PATIENCE_SECONDS) == 0


def test_it_ends_as_the_command_does(environment):
    words = [*OPENREG, "sanitize", sys.executable, "-c", "print(1, flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM


def test_if_it_is_killed_so_is_the_command(environment):
    code = "import os; print(os.getpid(), flush=True); input()"
    words = [*OPENREG, "sanitize", sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        process.stdout.readline()
        process.kill()
        assert process.stdout.read() == ""  # ends when no process has it open


def test_its_socket_goes_with_it(sanitize, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    sanitize("true", TMPDIR=str(folder))
    sanitize("no-such-program", expect=127, TMPDIR=str(folder))
    assert list(folder.iterdir()) == []


def test_a_long_path_of_temporary_files_is_avoided(sanitize, race, tmp_path):
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    sanitize("race.py", expect=86, TMPDIR=str(folder))
    assert list(folder.iterdir()) == []


# ---- without it ----------------------------------------------------------------------------------


def test_the_variable_alone_prints_and_fails(direct, race, environment):
    environment["OPENREG_SANITIZER"] = "1"
    result = direct(sys.executable, race)
    assert (result.returncode, result.stdout) == (86, "to the end\n")
    assert "openreg sanitizer: race\n" in result.stderr
    assert result.stderr.endswith("\nopenreg sanitizer: 1 finding (1 race)\n")
    assert direct(sys.executable, race, 3).returncode == 3
    environment["OPENREG_SANITIZER_EXITCODE"] = "0"
    assert direct(sys.executable, race).returncode == 0


def test_a_program_in_order_is_as_it_was(direct, script, environment):
    environment["OPENREG_SANITIZER"] = "1"
    result = direct(sys.executable, script("ordered.py", ORDERED))
    assert (result.returncode, result.stdout, result.stderr) == (0, "to the end\n", "")


def test_an_invalid_value_is_reported(direct, environment):
    environment["OPENREG_SANITIZER"] = "yes"
    result = direct(sys.executable, "-c", "import torch")
    assert "OPENREG_SANITIZER=yes: expected 0 or 1" in result.stderr
    assert (result.returncode, len(result.stderr.splitlines())) == (0, 1)
    assert direct(sys.executable, "-c", "import torch_openreg").returncode == 1


# ---- documentation -------------------------------------------------------------------------------


def test_the_documentation_shows_the_output(sanitize, script):
    root = Path(__file__).parents[3]
    text = (root / "docs" / "sanitizer.md").read_text()
    program = re.search(r"```python notest\n( 1  import torch\n.*?)```", text, re.DOTALL)[1]
    printed = re.search(r"```text\n(openreg sanitizer: .*?)```", text, re.DOTALL)[1]
    script("train.py", "".join(f"{line[4:]}\n" for line in program.splitlines()))
    words = ("openreg", "run", "train.py")
    result = sanitize(*words, expect=86, OPENREG_DEVICE_TYPE="cuda")
    assert result.stderr == f"\n{printed}"
    shown = "$ openreg sanitize openreg run train.py\n" + printed.partition("\n\n")[0] + "\n```"
    assert shown in (root / "README.md").read_text()
