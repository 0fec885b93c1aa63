"""Environment variables: an invalid value gives a sentence with the variable and allowed values.

A process reads its configuration once, so each value needs a process. A parent process imports
PyTorch without using a device and forks a child for each value.
"""

import json
import subprocess
import sys

import pytest
from modes import openreg_only

SERVER = """
import json, os, sys
import torch
from device import DEVICE

def attempt(variable, value):
    os.environ[variable] = value
    try:
        tensor = torch.ones(2, device=DEVICE)
        return [None, str(tensor.sum().item())]
    except Exception as error:
        return [type(error).__name__, str(error)]

for variable, value in json.load(sys.stdin):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(attempt(variable, value)).encode())
        os._exit(0)
    os.close(writer)
    print(open(reader).read(), flush=True)
    os.wait()
"""

BAD = [
    ("OPENREG_DEVICE_COUNT", "0"),
    ("OPENREG_DEVICE_COUNT", "65"),
    ("OPENREG_DEVICE_COUNT", "-1"),
    ("OPENREG_DEVICE_COUNT", "two"),
    ("OPENREG_DEVICE_COUNT", "2x"),
    ("OPENREG_DEVICE_COUNT", "99999999999999999999"),
    ("OPENREG_DEVICE_MEMORY", "0"),
    ("OPENREG_DEVICE_MEMORY", "-1G"),
    ("OPENREG_DEVICE_MEMORY", "lots"),
    ("OPENREG_DEVICE_MEMORY", "8Q"),
    ("OPENREG_DEVICE_MEMORY", "99999999999999999999G"),
    ("OPENREG_PROFILE", "h9000"),
    ("OPENREG_PROFILE", "48x"),
    ("OPENREG_PROFILE", "0x1536"),
    ("OPENREG_PROFILE", "h100,h100,h100"),
    ("OPENREG_LAUNCH_BLOCKING", "yes"),
    ("OPENREG_LAUNCH_BLOCKING", "2"),
    ("OPENREG_HOST_ACCESS", "maybe"),
    ("OPENREG_GPU_OVERHEAD", "on"),
]

GOOD = [
    ("OPENREG_DEVICE_COUNT", "1"),
    ("OPENREG_DEVICE_MEMORY", "64M"),
    ("OPENREG_DEVICE_MEMORY", "1G"),
    ("OPENREG_PROFILE", "t4"),
    ("OPENREG_PROFILE", "48x1536"),
    ("OPENREG_PROFILE", "h100,a100"),
    ("OPENREG_LAUNCH_BLOCKING", "1"),
    ("OPENREG_HOST_ACCESS", "1"),
    ("OPENREG_DEBUG_MEMORY", "1"),
    ("OPENREG_GROUP", "a.name_of-a-group"),
]


@pytest.fixture(scope="module")
def outcomes(own_group):
    result = subprocess.run(
        [sys.executable, "-c", SERVER],
        input=json.dumps(BAD + GOOD),
        env=own_group(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    return dict(zip(BAD + GOOD, answers, strict=True))


@pytest.mark.parametrize(("variable", "value"), BAD)
def test_bad_value_is_refused_in_one_clear_sentence(outcomes, variable, value):
    error, sentence = outcomes[variable, value]
    assert error == "RuntimeError"
    first = sentence.splitlines()[0]
    assert f"{variable}={value}: expected " in first


@pytest.mark.parametrize(("variable", "value"), GOOD)
def test_good_value_is_accepted(outcomes, variable, value):
    assert outcomes[variable, value] == [None, "2.0"]


def test_bad_configuration_does_not_break_the_import(python):
    python("import torch; torch.ones(2).sum()", fresh=True, OPENREG_DEVICE_COUNT="0")


def test_device_count_raises_for_a_bad_configuration(python):
    result = python(
        "from device import module; module.device_count()", expect=1, OPENREG_DEVICE_COUNT="0"
    )
    assert "OPENREG_DEVICE_COUNT=0: expected 1 to 64" in result.stderr


@openreg_only("torch.cuda.is_available asks for their number, which raises")
def test_is_available_warns_of_a_bad_configuration(python):
    result = python(
        "from device import module; print(module.is_available())", OPENREG_DEVICE_COUNT="0"
    )
    assert result.stdout == "False\n"
    assert "OPENREG_DEVICE_COUNT=0: expected 1 to 64" in result.stderr
