"""How tests start commands: with `openreg run` in front of them, and without."""

import signal
import subprocess
import textwrap

import pytest
from openreg_program import OPENREG


@pytest.fixture
def environment(own_group):
    return own_group()


@pytest.fixture
def start(environment, tmp_path):
    """Run a command to its end, with `openreg run` and its options in front of it."""

    def start(*words, expect=0, **changes):
        variables = environment | changes
        result = subprocess.run(
            [*OPENREG, "run", *map(str, words)],
            env={name: value for name, value in variables.items() if value is not None},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return start


@pytest.fixture(autouse=True)
def interrupts_are_not_ignored():
    """As they are in programs started in the background, which those started here would inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def direct(environment, tmp_path):
    """Run a command to its end, without it."""

    def direct(*words, **settings):
        words = list(map(str, words))
        return subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, **settings
        )

    return direct


@pytest.fixture
def script(tmp_path):
    """Write a program into the working folder of the commands."""

    def write(name, text, mode=0o755):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        path.chmod(mode)
        return path

    return write
