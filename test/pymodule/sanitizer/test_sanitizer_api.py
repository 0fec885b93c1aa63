"""`torch.openreg.sanitizer` with a fake extension, whose findings the test chooses."""

import os

import fake_findings as fake
import pytest
import torch
from modes import openreg_only
from torch_openreg import sanitizer
from torch_openreg.sanitizer.finding import from_dict


class Extension:
    """A fake extension. The test calls it to make findings."""

    def __init__(self):
        self.found, self.leaks, self.starts = [], [], []

    def sanitizer_start(self, report, kinds, whole_stacks):
        self.found, self.report = [], report
        self.starts.append((kinds, whole_stacks))

    def sanitizer_stop(self):
        for leak in self.leaks:
            self.report(leak)

    def sanitizer_findings(self):
        return [dict(found) for found in self.found]

    def sanitizer_counts(self):
        return {"accesses": 7}

    def find(self, finding):
        for known in self.found:
            if known | {"count": 0} == finding | {"count": 0}:
                known["count"] += 1
                return
        self.found.append(dict(finding))
        self.report(finding)


@pytest.fixture
def extension(monkeypatch):
    extension = Extension()
    monkeypatch.setattr(sanitizer, "_extension", lambda: extension)
    yield extension
    sanitizer.disable()


def counts(findings):
    return [(finding.kind, finding.second.stack[0].line, finding.count) for finding in findings]


def test_findings_are_reported_once_and_counted(extension):
    reported = []
    sanitizer.enable(report=reported.append)
    for second in (3, 3, 4):
        extension.find(fake.race(second=second))
    assert reported == [from_dict(fake.race(second=3)), from_dict(fake.race(second=4))]
    assert counts(sanitizer.findings()) == [("race", 3, 2), ("race", 4, 1)]
    assert sanitizer.counts() == {"accesses": 7}


def test_findings_are_written_to_stderr(extension, capsys, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    sanitizer.enable()
    extension.find(fake.race())
    assert capsys.readouterr().err == "\n" + from_dict(fake.race()).text()


def test_an_error_in_the_report_does_not_fail_the_launch(extension, capsys):
    sanitizer.enable(report=lambda finding: 1 / 0)
    extension.find(fake.race())
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_findings_remain_after_disable(extension):
    sanitizer.enable(report=None)
    extension.find(fake.race())
    sanitizer.disable()
    assert not sanitizer.is_enabled()
    assert counts(sanitizer.findings()) == [("race", 3, 1)]
    sanitizer.enable(report=None)
    assert sanitizer.is_enabled() and sanitizer.findings() == []


def test_leaks_are_found_at_the_end(extension):
    reported = []
    sanitizer.enable(leaks=True, report=reported.append)
    extension.leaks = [fake.finding("leak", None, fake.access(1))]
    sanitizer.disable()
    assert counts(reported) == counts(sanitizer.findings()) == [("leak", 1, 1)]


def test_enable_twice_raises(extension):
    sanitizer.enable()
    with pytest.raises(RuntimeError, match="already enabled"):
        sanitizer.enable()
    sanitizer.disable()
    sanitizer.disable()
    assert len(extension.starts) == 1


def test_settings_reach_the_extension(extension):
    sanitizer.enable(only=["use after free", "race"], stacks=True, leaks=True)
    assert extension.starts == [(["race", "use after free", "leak"], True)]
    sanitizer.disable()
    sanitizer.enable()
    kinds, stacks = extension.starts[1]
    assert kinds == [kind for kind in sanitizer.KINDS if kind != "leak"] and not stacks
    with pytest.raises(ValueError, match="wrong: expected race"):
        sanitizer.enable(only=["wrong"])


def test_suppressed_findings_are_not_reported(extension, tmp_path):
    file = tmp_path / "file"
    file.write_text("[one]\noperator = aten::mul\nreason = known\n")
    reported = []
    sanitizer.enable(suppressions=file, report=reported.append)
    extension.find(fake.race())
    assert reported == sanitizer.findings() == []


def test_a_cleared_finding_can_be_found_again(extension):
    sanitizer.enable(report=None)
    extension.find(fake.race(second=3))
    extension.find(fake.race(second=4))
    sanitizer.clear()
    assert sanitizer.findings() == []
    extension.find(fake.race(second=4))
    extension.find(fake.race(second=5))
    assert counts(sanitizer.findings()) == [("race", 4, 1), ("race", 5, 1)]


def test_the_context_manager_enables_and_disables(extension):
    with sanitizer.watch() as watched:
        extension.find(fake.race(second=3))
        assert counts(watched.findings()) == [("race", 3, 1)]
        extension.find(fake.race(second=4))
    assert not sanitizer.is_enabled()
    assert counts(watched.findings()) == [("race", 3, 1), ("race", 4, 1)]


def test_the_context_manager_while_enabled(extension):
    sanitizer.enable(report=None)
    extension.find(fake.race(second=3))
    extension.find(fake.race(second=4))
    with sanitizer.watch() as watched:
        extension.find(fake.race(second=4))
    extension.find(fake.race(second=3))
    assert counts(watched.findings()) == [("race", 4, 1)]
    assert sanitizer.is_enabled() and len(extension.starts) == 1


def test_a_forked_child_starts_without_findings(extension):
    sanitizer.enable(report=None)
    extension.find(fake.race())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        extension.find(fake.race(second=9))
        os.write(write, repr((len(extension.starts), counts(sanitizer.findings()))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).decode() == repr((2, [("race", 9, 1)]))
    os.close(read)
    os.close(write)
    assert counts(sanitizer.findings()) == [("race", 3, 1)]


@openreg_only("there is no torch.openreg")
@pytest.mark.own_processes
def test_the_module_name_follows_the_device_module(python):
    python("""
        import sys, torch
        assert "torch_openreg.sanitizer" not in sys.modules
        import torch.openreg.sanitizer as imported
        import torch_openreg.sanitizer
        assert torch.openreg.sanitizer is imported is torch_openreg.sanitizer
    """)
    assert torch.openreg.sanitizer is sanitizer
