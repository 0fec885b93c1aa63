"""`openreg run`: what it refuses, and where CUDA mode cannot start."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from modes import needs_nvidia_packages, openreg_only
from openreg_program import PROGRAM
from torch_openreg.commands import run as run_command

pytestmark = pytest.mark.own_processes


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
