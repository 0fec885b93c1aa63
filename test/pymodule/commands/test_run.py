"""`openreg run`: the command runs as if it were started directly, and sees the devices as `cuda`.

The expected results come from the same command without `openreg run`.
"""

import contextlib
import importlib.util
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
import torch
from modes import needs_nvidia_packages, openreg_only
from openreg_program import OPENREG, PROGRAM
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


# ---- refusals ------------------------------------------------------------------------------------


BAD_VALUES = [
    ("--devices", "OPENREG_DEVICE_COUNT", "0"),
    ("--devices", "OPENREG_DEVICE_COUNT", "-1"),
    ("--devices", "OPENREG_DEVICE_COUNT", "two"),
    ("--profile", "OPENREG_PROFILE", "h9000"),
    ("--profile", "OPENREG_PROFILE", "h100,h100,h100"),
    ("--memory", "OPENREG_DEVICE_MEMORY", "lots"),
]


@pytest.mark.parametrize(("option", "variable", "value"), BAD_VALUES)
def test_bad_values_are_refused_with_the_sentence_of_the_variable(
    start, python, option, variable, value
):
    code = """
        import torch
        from device import DEVICE
        try:
            torch.ones(1, device=DEVICE)
        except RuntimeError as error:
            print(str(error).splitlines()[0])
    """
    sentence = python(code, **{variable: value}).stdout
    assert sentence.startswith(f"openreg: {variable}={value}: expected ")
    result = start(f"{option}={value}", "echo", "ran", expect=2)
    assert (result.stdout, result.stderr) == ("", sentence)
    assert start("echo", "ran", expect=2, **{variable: value}).stderr == sentence


COUNT = "import os, torch; count = torch.cuda.device_count; print(count()"


def test_the_command_has_the_devices_that_cuda_visible_devices_chooses(start):
    code = f"{COUNT}); torch.cuda.init(); print(count(), torch.cuda.get_device_name(0))"
    words = ("--devices", "3", "--profile", "h100,t4,l4", "python", "-c", code)
    assert start(*words, CUDA_VISIBLE_DEVICES="1").stdout == "1\n1 Tesla T4\n"
    assert start(*words, CUDA_VISIBLE_DEVICES="2,1").stdout == "2\n2 NVIDIA L4\n"
    assert start(*words).stdout == "3\n3 NVIDIA H100 80GB HBM3\n"


def test_counting_devices_does_not_choose_them_yet(start):
    """As with CUDA, where NVML counts devices until their first use."""
    code = f"""{COUNT})
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
print(count(), torch.cuda.is_available())
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
torch.cuda.init()
print(count())
"""
    assert start("python", "-c", code).stdout == "2\n1 True\n1\n"


@pytest.mark.parametrize("chosen", ["", "-1", "7"])
def test_a_command_that_would_see_no_device_is_refused(start, chosen):
    result = start("echo", "ran", expect=2, CUDA_VISIBLE_DEVICES=chosen)
    assert result.stderr == (
        f"openreg: CUDA_VISIBLE_DEVICES={chosen} hides all devices: unset it, or list devices, "
        "such as 0,1\n"
    )


@pytest.mark.parametrize("value", ["abc", "12", "12.8.1", "0.1", "12.x"])
def test_bad_versions_are_refused(start, value):
    result = start("--cuda-version", value, "echo", "ran", expect=2)
    assert result.stderr == (
        f"openreg: OPENREG_CUDA_VERSION={value}: expected a CUDA version such as 12.8, or `none`\n"
    )
    assert result.stdout == ""


@needs_nvidia_packages
def test_bad_versions_are_reported_by_importing(python):
    variables = {"OPENREG_DEVICE_TYPE": "cuda", "OPENREG_CUDA_VERSION": "abc"}
    result = python("import torch; print(torch.ones(2).sum().item())", fresh=True, **variables)
    assert "OPENREG_CUDA_VERSION=abc: expected a CUDA version" in result.stderr
    assert result.stdout == "2.0\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "expected a COMMAND"),
        (["--"], "expected a COMMAND"),
        (["--devices", "2"], "expected a COMMAND"),
        (["--devices"], "argument --devices: expected one argument"),
        (["--devices="], "argument --devices: expected a value"),
        (["--bogus", "true"], "unrecognized arguments: --bogus"),
        (["--dev", "2", "true"], "unrecognized arguments: --dev"),
    ],
)
def test_bad_words_are_refused(start, words, sentence):
    result = start(*words, expect=2)
    assert result.stderr.splitlines()[-1] == f"openreg run: error: {sentence}"


def test_help_names_the_options(start):
    reported = start("--help").stdout
    for option in ("--devices", "--profile", "--memory", "--cuda-version"):
        assert option in reported


@pytest.mark.parametrize(
    "word", ["no-such-program", "./no-such-program", "no_such.py", "./no_such.py", "/no/such.py"]
)
def test_a_command_that_does_not_exist_is_127(start, direct, word):
    assert direct("sh", "-c", word).returncode == 127
    result = start(word, expect=127)
    assert result.stderr.startswith(f"openreg: {word}: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_executed_is_126(start, direct, script):
    script("plain", "#!/bin/sh\n", 0o644)
    folder = script("unused", "").parent
    (folder / "folder").mkdir()
    for word in ("./plain", "./folder"):
        assert direct("sh", "-c", word).returncode == 126
        assert start(word, expect=126).stderr.startswith(f"openreg: {word} ")
    assert start("plain", expect=126, PATH=f"{folder}:/bin").stderr == (
        f"openreg: {folder}/plain is not executable\n"
    )
    script("broken", "#!/no/such/interpreter\n")
    assert start("./broken", expect=126).stderr.startswith("openreg: ./broken: ")


# ---- where CUDA mode cannot start ----------------------------------------------------------------

ASK = "import torch; print(torch.cuda.is_available())"


def test_isolated_python_has_the_devices(start):
    assert start(sys.executable, "-I", "-c", ASK).stdout == "True\n"


TOO_LATE = "openreg: loading failed: OPENREG_DEVICE_TYPE=cuda must be set when Python starts"


@needs_nvidia_packages
def test_python_that_skips_the_startup_file_reports_that_it_has_no_devices(start):
    """Its PyTorch finds openreg, but too late for CUDA mode."""
    packages = str(Path(run_command.__file__).parents[2])
    result = start(sys.executable, "-S", "-c", ASK, PYTHONPATH=packages)
    assert result.stdout == "False\n"
    assert result.stderr.startswith(TOO_LATE)


@openreg_only("it was set when Python started")
def test_a_variable_that_is_set_too_late_is_reported(python):
    code = f"import os; os.environ['OPENREG_DEVICE_TYPE'] = 'cuda'; {ASK}"
    result = python(code, fresh=True)
    assert result.stdout == "False\n"
    assert result.stderr.startswith(TOO_LATE)


def test_openreg_that_only_pythonpath_names_is_refused(start, tmp_path):
    """Python does not look for startup files there."""
    packages = Path(run_command.__file__).parents[2]
    site = tmp_path / "site"
    site.mkdir()
    for name in ("torch_openreg", *(file.name for file in packages.glob("_openreg_*.py"))):
        (site / name).symlink_to(packages / name)
    base = [os.path.realpath(sys.executable), "-S", "-c", PROGRAM]
    result = subprocess.run(
        [*base, "run", "true"],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.startswith("openreg: this Python does not read torch_openreg.pth")


def test_gpus_that_the_program_will_not_see_are_named(monkeypatch, capsys):
    gpus = ["NVIDIA A100"]
    monkeypatch.setattr(run_command.installation, "gpus", lambda: gpus)
    assert run_command.main(["no-such-command"]) != 0
    sentence = "openreg: the program sees simulated devices, and not NVIDIA A100\n"
    assert capsys.readouterr().err.startswith(sentence)
    gpus.clear()
    assert run_command.main(["no-such-command"]) != 0
    assert "simulated" not in capsys.readouterr().err


def test_a_pytorch_for_rocm_is_refused(start, tmp_path):
    version = Path(importlib.util.find_spec("torch").origin).with_name("version.py")
    torch = tmp_path / "rocm" / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "lib" / "libtorch_hip.so").touch()
    (torch / "__init__.py").write_text("import torch._C\n")
    shutil.copy(version, torch)
    sentence = "openreg: loading failed: CUDA mode does not work with a PyTorch that was built for"
    result = start("echo", "ran", expect=2, PYTHONPATH=str(torch.parent))
    assert result.stderr.startswith(sentence)
    assert result.stdout == ""
    code = "import os, sys; sys.path.insert(0, os.environ['OTHER']); import torch"
    result = start("python", "-c", code, expect=1, OTHER=str(torch.parent))
    assert sentence in result.stderr


def test_autoloading_that_is_off_is_refused(start):
    result = start("echo", "ran", expect=2, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stderr.startswith("openreg: TORCH_DEVICE_BACKEND_AUTOLOAD=0 ")


def test_files_of_the_working_folder_are_not_asked(start, script):
    for name in ("torch.py", "re.py", "ctypes.py"):
        script(name, "raise SystemExit('asked')")
    assert start("echo", "ran").stdout == "ran\n"


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
