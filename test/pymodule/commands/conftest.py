"""Fixtures that start commands, with and without `openreg run`."""

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
    """Run `openreg run` with options and a command to its end."""

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


# A background job of a shell ignores SIGINT and SIGQUIT; a program under nohup ignores SIGHUP.
MAYBE_IGNORED = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
}


@pytest.fixture(autouse=True)
def no_signal_is_ignored():
    """Handle signals in the default way, because started programs inherit an ignored signal."""
    before = {number: signal.signal(number, handler) for number, handler in MAYBE_IGNORED.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def direct(environment, tmp_path):
    """Run a command to its end without `openreg run`."""

    def direct(*words, **settings):
        words = list(map(str, words))
        return subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, **settings
        )

    return direct


@pytest.fixture
def script(tmp_path):
    """Write a program into the working folder of the commands; return its path."""

    def write(name, text, mode=0o755):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        path.chmod(mode)
        return path

    return write
