"""The table of environment variables agrees with the sources, the errors and the documentation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from modes import needs_nvidia_packages
from torch_openreg import variables
from torch_openreg.variables import VARIABLES

ROOT = Path(__file__).parents[3]
LAYERS = ("base", "device", "allocator", "generator", "amp", "collectives", "sanitizer")
NAMES = [variable.name for variable in VARIABLES]

in_checkout = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="a wheel's tests have no sources beside them"
)


@in_checkout
def test_the_table_has_exactly_the_variables_that_are_read():
    table = ROOT / "pymodule" / "torch_openreg" / "variables.py"
    sources = (
        source.read_text()
        for folder in (*LAYERS, "pymodule")
        for source in (ROOT / folder).rglob("*")
        if source.suffix in (".c", ".cpp", ".h", ".py") and source != table
    )
    read = {name for text in sources for name in re.findall(r'"(OPENREG_[A-Z_]+)"', text)}
    assert sorted(read) == sorted(NAMES)


@in_checkout
def test_the_documentation_has_the_table():
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "write-configuration", "--check"],
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")


@in_checkout
def test_the_documentation_names_the_variables_of_others():
    docs = "\n".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert [name for name in variables.OTHERS if name not in docs] == []


# ---- defaults and allowed values -----------------------------------------------------------------

TELL_DEFAULTS = """
import os
for name in ("OPENREG_DEVICE_COUNT", "OPENREG_PROFILE"):
    os.environ.pop(name, None)
import torch_openreg._C as C
preview = C.ledger_preview()
print(len(preview["devices"]), *{device["profile"] for device in preview["devices"]})
"""


def test_defaults_are_those_of_the_device_layer(python):
    expected = [variables.get(name).default for name in ("OPENREG_DEVICE_COUNT", "OPENREG_PROFILE")]
    assert python(TELL_DEFAULTS, fresh=True).stdout.split() == expected


# A process reads its configuration once, so each value is tried in a fork.
REFUSE = """
import os, sys
import torch
from device import DEVICE

for name in sys.argv[1:]:
    sys.stdout.flush()
    if os.fork() == 0:
        os.environ[name] = "?"
        try:
            torch.ones(1, device=DEVICE)
        except RuntimeError as error:
            print(str(error).splitlines()[0], flush=True)
        os._exit(0)
    os.wait()
"""
READ_AT_FIRST_USE = (
    "OPENREG_DEVICE_COUNT",
    "OPENREG_DEVICE_MEMORY",
    "OPENREG_PROFILE",
    "OPENREG_GROUP",
    "OPENREG_LAUNCH_BLOCKING",
    "OPENREG_HOST_ACCESS",
    "OPENREG_DEBUG_MEMORY",
    "OPENREG_GPU_OVERHEAD",
    "OPENREG_BLOCK_OPERATORS",
    "OPENREG_UNSUPPORTED_DTYPES",
)


def test_errors_of_the_device_layer_state_what_the_table_allows(own_group):
    result = subprocess.run(
        [sys.executable, "-c", REFUSE, *READ_AT_FIRST_USE],
        env=own_group(),
        capture_output=True,
        text=True,
        check=True,
    )
    sentences = result.stdout.splitlines()
    for name, sentence in zip(READ_AT_FIRST_USE, sentences, strict=True):
        assert sentence.startswith(variables.rejection(name, "?"))


@needs_nvidia_packages
@pytest.mark.parametrize(
    ("name", "device_type"),
    [
        ("OPENREG_DEVICE_TYPE", "?"),
        ("OPENREG_CUDA_VERSION", "cuda"),
        ("OPENREG_AUTOGRAD_THREADS", "openreg"),
        ("OPENREG_SANITIZER", "openreg"),
    ],
)
def test_errors_of_the_import_state_what_the_table_allows(python, name, device_type):
    settings = {"OPENREG_DEVICE_TYPE": device_type, name: "?"}
    result = python("import torch_openreg", expect=1, fresh=True, **settings)
    assert variables.rejection(name, "?") in result.stderr


# ---- options -------------------------------------------------------------------------------------


def test_options_come_from_the_table():
    options = {(option.flag, option.placeholder) for option in variables.options("sanitize")}
    assert ("--error-exitcode", "N") in options and ("--leaks", "") in options
    assert all(option.variable.help for option in variables.options("run"))


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("OPENREG_DEVICES_COUNT", "OPENREG_DEVICE_COUNT"),
        ("OPENREG_PROFIL", "OPENREG_PROFILE"),
        ("OPENREG_XYZ", None),
    ],
)
def test_unknown_names_come_with_the_most_similar_one(name, similar):
    assert variables.find_unknown([name, *NAMES, "PATH", "CUDA_PATH"]) == {name: similar}
