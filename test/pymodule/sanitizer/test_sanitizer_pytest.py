"""The pytest fixture `openreg_sanitizer`, and tests that run under `openreg sanitize`."""

import subprocess
import sys

import pytest

from device import DEVICE

pytestmark = pytest.mark.own_processes

TESTS = """
import pytest, torch
gpu = torch.get_device_module("{device}")
side = gpu.Stream()
kept = []  # otherwise memory would be reused too early

def race():
    x = torch.ones(100, device="{device}")
    with gpu.stream(side):
        kept.append((x, x * 2))  # here

def order():
    x = torch.ones(100, device="{device}")
    side.wait_stream(gpu.current_stream())
    with gpu.stream(side):
        kept.append((x, x * 2))
"""

TWO_RACE = """
def test_watched(openreg_sanitizer):
    race()

def test_watched_too(openreg_sanitizer):
    race()

def test_in_order(openreg_sanitizer):
    order()

def test_unwatched():
    race()
"""


@pytest.fixture
def run_pytest(own_group, tmp_path):
    """Run tests in another process. They may use `race` and `order`."""

    def run(tests, *words, expect, **variables):
        text = TESTS.format(device=DEVICE) + tests
        (tmp_path / "test_it.py").write_text(text)
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
            env=own_group() | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert result.returncode == expect, result.stdout + result.stderr
        return result

    return run


def test_a_finding_fails_the_test_that_has_the_fixture(run_pytest):
    printed = run_pytest(TWO_RACE, expect=1).stdout
    assert "2 failed, 2 passed" in printed
    assert printed.count("\nopenreg sanitizer: race\n") == 2
    assert "kept.append((x, x * 2))  # here\n" in printed


def test_a_failing_test_keeps_its_own_failure(run_pytest):
    tests = "def test_it(openreg_sanitizer):\n    race()\n    assert 1 == 2\n"
    printed = run_pytest(tests, expect=1).stdout
    assert "assert 1 == 2" in printed and "openreg sanitizer: " not in printed


def test_findings_of_captured_tests_are_seen(run_pytest):
    tests = "def test_one():\n    race()\n"
    result = run_pytest(tests, expect=86, OPENREG_SANITIZER="1")
    assert "1 passed" in result.stdout
    assert "openreg sanitizer: race\n" in result.stderr
    assert "\n  test     test_it.py::test_one\n" in result.stderr
    assert "openreg sanitizer: 1 finding (1 race)\n" in result.stderr


def test_tests_with_the_fixture_fail_under_the_command(run_pytest):
    result = run_pytest(TWO_RACE, expect=1, OPENREG_SANITIZER="1")
    assert "2 failed, 2 passed" in result.stdout
    assert "openreg sanitizer: 1 finding (1 race), 3 occurrences\n" in result.stderr
