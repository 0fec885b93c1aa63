"""`openreg run`: the command runs as if it were started directly, and sees the devices as `cuda`.

The expected results come from the same command without `openreg run`.
"""

import contextlib
import json
import runpy
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap

import pytest
import torch
from openreg_program import OPENREG
from torch_openreg.commands import run as run_command

VARIABLES = {
    "OPENREG_DEVICE_TYPE",
    "OPENREG_DEVICE_COUNT",
    "OPENREG_PROFILE",
    "OPENREG_DEVICE_MEMORY",
    "OPENREG_CUDA_VERSION",
}

# If a process does not end within this time, the test fails.
PATIENCE_SECONDS = 60

pytestmark = pytest.mark.own_processes


TELL_VARIABLES = "import json, os; print(json.dumps(dict(os.environ)))"


# ---- the devices ---------------------------------------------------------------------------------


def test_devices_are_cuda_as_the_options_say(start):
    code = """
        import torch
        x = torch.ones(2, device="cuda:2") + 1
        print(torch.cuda.device_count(), x.sum().item(), torch.cuda.get_device_name(1),
              torch.cuda.get_device_properties(1).total_memory >> 20, torch.version.cuda)
    """
    options = ["--devices", "3", "--profile", "h100,t4,h100", "--memory", "64M,32M,64M"]
    options += ["--cuda-version", "12.8"]
    result = start(*options, "python", "-c", textwrap.dedent(code))
    assert result.stdout == "3 4.0 Tesla T4 32 12.8\n"


def test_torch_version_cuda_is_by_default_that_of_the_build_or_the_runtime(start):
    code = "import torch; print(torch.version.cuda, torch.cuda.is_available())"
    built = runpy.run_path(torch.version.__file__)["cuda"]
    assert start("python", "-c", code).stdout == f"{built or '13.0'} True\n"
    assert start("--cuda-version=none", "python", "-c", code).stdout == f"{built} True\n"


def test_the_versions_of_cuda_agree(start):
    code = "import torch; print(torch._C._cuda_getCompiledVersion())"
    assert start("--cuda-version=12.8", "python", "-c", code).stdout == "12080\n"


def test_options_are_variables(start):
    options = ["--devices", "2", "--profile=t4", "--memory", "64M", "--cuda-version", "12.8"]
    reported = json.loads(start(*options, "python", "-c", TELL_VARIABLES).stdout)
    assert {name: reported[name] for name in VARIABLES} == {
        "OPENREG_DEVICE_TYPE": "cuda",
        "OPENREG_DEVICE_COUNT": "2",
        "OPENREG_PROFILE": "t4",
        "OPENREG_DEVICE_MEMORY": "64M",
        "OPENREG_CUDA_VERSION": "12.8",
    }


def test_options_take_precedence_over_variables(start):
    variables = {"OPENREG_DEVICE_COUNT": "7", "OPENREG_PROFILE": "a100"}
    reported = json.loads(start("--devices", 3, "python", "-c", TELL_VARIABLES, **variables).stdout)
    assert (reported["OPENREG_DEVICE_COUNT"], reported["OPENREG_PROFILE"]) == ("3", "a100")
    assert "OPENREG_DEVICE_MEMORY" not in reported


def test_children_inherit(start, script):
    script("child.sh", '#!/bin/sh\necho "$OPENREG_DEVICE_TYPE $OPENREG_DEVICE_COUNT"\n')
    parent = script(
        "parent.py",
        """
        import subprocess, sys, multiprocessing, torch

        def devices(queue):
            queue.put(torch.cuda.device_count())

        if __name__ == "__main__":
            subprocess.run(["./child.sh"], check=True)
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=devices, args=(queue,))
            process.start()
            print(queue.get())
            process.join()
        """,
    )
    assert start("--devices", 5, parent).stdout == "cuda 5\n5\n"


def test_torchrun_gives_each_rank_the_devices(start, script):
    script(
        "ranks.py",
        """
        import os, torch
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        x = torch.full((2,), rank, device="cuda")
        open(f"rank{rank}", "w").write(f"{x.device} {x.sum().item()}")
        """,
    )
    start("--devices", 2, "torchrun", "--nproc-per-node", 2, "--standalone", "ranks.py")
    folder = script("unused", "").parent
    assert [(folder / f"rank{rank}").read_text() for rank in (0, 1)] == ["cuda:0 0", "cuda:1 2"]


# ---- as if started directly ----------------------------------------------------------------------


@pytest.mark.parametrize("code", ["import sys; sys.exit(0)", "import sys; sys.exit(77)", "1 / 0"])
def test_exit_status_and_output_are_the_commands(start, direct, code):
    command = [sys.executable, "-c", code]
    expected = direct(*command)
    result = start(*command, expect=expected.returncode)
    assert (result.stdout, result.stderr) == (expected.stdout, expected.stderr)


@contextlib.contextmanager
def started(command, environment):
    """Run a command that does not end by itself, and kill it after the block."""
    words = [*OPENREG, "run", *command]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGKILL])
def test_a_signal_ends_the_command(environment, direct, number):
    """The signal goes to the started process, which is the command, and ends it."""
    command = ["sh", "-c", "echo $$; exec sleep 600"]
    with started(command, environment) as process:
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(number)
        status = process.wait(PATIENCE_SECONDS)
    assert status == direct("sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_handlers_of_the_command_run(environment, script):
    handler = script(
        "handler.py",
        """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(31))
        print("ready", flush=True)
        signal.pause()
        """,
    )
    with started([handler], environment) as process:
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 31


def state_of_process(words, environment):
    """Return the signals, files, umask and folder of a process, printed by a shell."""
    code = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd; umask; pwd"
    result = subprocess.run([*words, "sh", "-c", code], env=environment, capture_output=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_signals_and_files_are_unchanged(environment):
    mine = state_of_process([*OPENREG, "run"], environment)
    assert mine == state_of_process(["env"], environment)


def test_stdin_is_the_commands(environment):
    text = "a line\n" * 1000
    result = subprocess.run(
        [*OPENREG, "run", "cat"], env=environment, input=text, capture_output=True, text=True
    )
    assert result.stdout == text


def test_other_variables_stay(start, environment):
    reported = json.loads(start("python", "-c", TELL_VARIABLES, SOMETHING="a b\nc").stdout)
    assert reported["SOMETHING"] == "a b\nc"
    changed = {name for name in environment if reported.get(name) != environment[name]}
    assert changed <= {"PATH", "LD_LIBRARY_PATH"}
    assert set(reported) - set(environment) <= {"SOMETHING", "LD_LIBRARY_PATH"} | VARIABLES


# ---- what a command is ---------------------------------------------------------------------------


TELL_ARGUMENTS = "import sys; print(sys.argv, sys.executable)\n"


@pytest.mark.parametrize("mode", [0o755, 0o644])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_python_files_run_with_this_python(start, direct, script, mode, prefix):
    script("tell.py", TELL_ARGUMENTS, mode)
    words = [f"{prefix}tell.py", "--lr", "0.1", "--devices", "9", "-h", "--", "x"]
    assert start(*words).stdout == direct(sys.executable, *words).stdout


def test_python_files_may_be_elsewhere(start, direct, script):
    path = script("tell.py", TELL_ARGUMENTS)
    assert start(path).stdout == direct(sys.executable, path).stdout


def test_modules_and_scripts_run(start, script):
    script("package.py", "print('a module')")
    script("script.sh", "#!/bin/sh\necho a script $1\n")
    assert start("python", "-m", "package").stdout == "a module\n"
    assert start("./script.sh", "x").stdout == "a script x\n"


def test_scripts_without_a_first_line_are_the_shells(start, script):
    script("plain.sh", "echo plain $1\n")
    assert start("./plain.sh", "x").stdout == "plain x\n"


def test_python_and_its_programs_are_this_pythons(start, tmp_path):
    """Also if the environment is not activated and PATH has others with the same names first."""
    for name in ("python", "python3", "pytest"):
        (tmp_path / name).write_text("#!/bin/sh\necho another\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    reported = start("python", "-c", "import sys; print(sys.prefix)", PATH=path).stdout
    assert reported == f"{sys.prefix}\n"
    assert start("sh", "-c", "command -v pytest", PATH=path).stdout == f"{SCRIPTS}/pytest\n"


SCRIPTS = sysconfig.get_path("scripts")


def test_path_is_otherwise_as_it_was(start):
    reported = start("sh", "-c", "echo $PATH", PATH="/a:/bin:/usr/bin:").stdout
    assert reported.endswith(":/a:/bin:/usr/bin:\n")
    assert SCRIPTS in reported.split(":")


def test_running_it_twice_changes_nothing_more(start):
    once = start("python", "-c", TELL_VARIABLES).stdout
    twice = start(*OPENREG, "run", "python", "-c", TELL_VARIABLES).stdout
    assert json.loads(twice) == json.loads(once)


def test_folders_of_the_package_are_found_if_they_are_there(tmp_path):
    environment = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib"}
    run_command.add_folders(environment, tmp_path)
    assert environment == {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib"}
    for folder in ("bin", "nvml/bin"):
        (tmp_path / folder).mkdir(parents=True)
    run_command.add_folders(environment, tmp_path)
    assert environment == {
        "PATH": f"{tmp_path}/bin:{tmp_path}/nvml/bin:/bin",
        "LD_LIBRARY_PATH": f"{tmp_path}/nvml:/lib",
    }
    without = {"PATH": "/bin"}
    run_command.add_folders(without, tmp_path)
    assert without["LD_LIBRARY_PATH"] == f"{tmp_path}/nvml"


# ---- where options end ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["--devices", "3", "sh", "-c", "echo $OPENREG_DEVICE_COUNT"],
        ["--devices=3", "--", "sh", "-c", "echo $OPENREG_DEVICE_COUNT"],
        ["--devices", "3", "sh", "-c", 'echo $OPENREG_DEVICE_COUNT; exit "$#"', "--devices"],
    ],
)
def test_options_end_at_the_command(start, words):
    assert start(*words).stdout == "3\n"


def test_words_behind_the_command_are_its_own(start):
    command = ["sh", "-c", 'printf "<%s>" "$@"', "name"]
    for words in (["--devices", "4"], ["--"], ["--help"], ["a", "--", "b"], [""]):
        reported = "".join(f"<{word}>" for word in words)
        assert start(*command, *words).stdout == reported
        assert start("--", *command, *words).stdout == reported


# ---- the program ---------------------------------------------------------------------------------


def test_the_program_is_installed(environment):
    program = shutil.which("openreg", path=SCRIPTS)
    result = subprocess.run([program, "run", "echo", "ran"], env=environment, capture_output=True)
    assert (result.returncode, result.stdout) == (0, b"ran\n"), result.stderr


def test_the_package_is_the_same_program(environment):
    command = [sys.executable, "-m", "torch_openreg", "run", "--devices", "3"]
    command += ["sh", "-c", "echo $OPENREG_DEVICE_COUNT"]
    result = subprocess.run(command, env=environment, capture_output=True)
    assert (result.returncode, result.stdout) == (0, b"3\n"), result.stderr


def test_pytorch_is_not_imported_for_it(start):
    code = "import sys, _openreg_command as c; c.main()"
    reported = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, "run", "true"],
        capture_output=True,
        text=True,
    ).stderr
    imported = {line.rsplit("|", 1)[-1].strip() for line in reported.splitlines()}
    assert "torch_openreg.commands.preflight" in imported
    assert "torch" not in imported
