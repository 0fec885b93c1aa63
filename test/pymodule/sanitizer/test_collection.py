"""`openreg sanitize` combines the findings of all processes: complete, once each, and counted."""

import json
import threading
from collections import Counter

import fake_findings as fake
import pytest
from torch_openreg.sanitizer import messages
from torch_openreg.sanitizer.collection import Collection
from torch_openreg.sanitizer.finding import from_dict
from torch_openreg.sanitizer.reporter import Reporter
from torch_openreg.sanitizer.settings import Settings
from torch_openreg.sanitizer.suppressions import Suppression


@pytest.fixture
def listener(tmp_path):
    with messages.listen(str(tmp_path / "socket")) as listener:
        yield listener


@pytest.fixture
def collected(listener):
    """Receive what was sent. Return the collection and what it printed."""

    def collected():
        printed = []
        collection = Collection(printed.append)
        while (message := messages.receive(listener)) is not None:
            collection.add(message)
        return collection, "".join(printed)

    return collected


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Make a reporter that stands for a process, by its number."""

    def process(number, *suppressions):
        monkeypatch.setattr("torch_openreg.sanitizer.reporter.os.getpid", lambda: number)
        monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
        settings = Settings(suppressions=suppressions, socket=str(tmp_path / "socket"))
        reporter = Reporter(settings)
        reporter.start()
        return reporter

    return process


def end(reporter, *findings, used=(), counters=()):
    reporter.end(list(map(from_dict, findings)), Counter(used), dict(counters))


def test_the_same_finding_of_two_processes_is_one(process, collected, monkeypatch):
    for number, count in ((7, 3), (8, 4)):
        monkeypatch.setenv("RANK", str(number - 7))
        reporter = process(number)
        reporter.finding(from_dict(fake.race()))
        end(reporter, fake.race() | {"count": count}, counters={"accesses": 10})
    collection, printed = collected()
    assert printed.count("openreg sanitizer: race\n") == 1
    assert printed.endswith("\n  rank     0\n")
    assert collection.summary() == (
        "\nopenreg sanitizer: 1 finding (1 race) in 2 processes, 7 occurrences\n"
    )
    (found,) = collection.as_dict()["findings"]
    assert found["count"] == 7
    assert found["processes"] == [
        {"pid": 7, "count": 3, "rank": "0"},
        {"pid": 8, "count": 4, "rank": "1"},
    ]
    assert collection.as_dict()["counters"] == {"accesses": 20}


def test_findings_of_a_killed_process_are_kept(process, collected):
    process(7).finding(from_dict(fake.race()))
    collection, _ = collected()
    assert collection.summary() == "\nopenreg sanitizer: 1 finding (1 race)\n"


def test_json_contains_the_whole_finding(process, collected):
    process(7).finding(from_dict(fake.race()))
    collection, printed = collected()
    (found,) = json.loads(json.dumps(collection.as_dict()))["findings"]
    assert from_dict(found) == from_dict(fake.race())
    assert "\n" + found["text"] == printed
    assert f"  remedy   {found['remedy']}\n" in printed


def test_a_suppression_is_used_if_one_process_used_it(process, collected):
    both = Suppression("a", (), {}, "x"), Suppression("b", (), {}, "y")
    end(process(7, *both), used={"a": 2})
    end(process(8, *both))
    collection, _ = collected()
    assert collection.is_empty
    assert collection.summary() == (
        "openreg sanitizer: nothing found; 2 suppressed\n"
        "openreg sanitizer: suppressions that matched no finding: [b]\n"
    )


def test_no_process_reported(collected):
    collection, _ = collected()
    assert "nothing was watched" in collection.summary()


def test_messages_of_many_threads_are_not_mixed(listener, tmp_path):
    def send(number):
        for _ in range(20):
            assert messages.send(str(tmp_path / "socket"), {"number": number, "x": "x" * 50_000})

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    numbers = []
    listener.setblocking(True)
    while len(numbers) < 80:
        message = messages.receive(listener)
        assert message["x"] == "x" * 50_000
        numbers.append(message["number"])
    for thread in threads:
        thread.join()
    assert sorted(numbers) == sorted([0, 1, 2, 3] * 20)


def test_long_messages_are_cut(process, collected):
    deep = fake.access(3, stack=fake.stack(3) * 10_000)
    process(7).finding(from_dict(fake.finding("race", fake.write(2), deep)))
    collection, printed = collected()
    assert printed.startswith("\nopenreg sanitizer: race\n")
    (found,) = collection.as_dict()["findings"]
    assert found["second"]["stack"] == [list(fake.stack(3)[0])] * 20
    assert found["second"]["shape"] == [1000]


def test_invalid_messages_are_ignored(listener, collected, tmp_path):
    assert messages.send(str(tmp_path / "socket"), {"type": "finding"})
    assert messages.send(str(tmp_path / "socket"), {"type": "other", "pid": 3})
    assert collected()[0].is_empty


def test_a_process_prints_by_itself_without_a_listener(process, listener, tmp_path, capfd):
    reporter = process(7, Suppression("a", (), {}, "x"))
    listener.close()
    reporter.finding(from_dict(fake.race()))
    end(reporter, fake.race() | {"count": 2})
    assert capfd.readouterr().err == (
        f"\n{from_dict(fake.race()).text()}"
        + "\nopenreg sanitizer: 1 finding (1 race), 2 occurrences\n"
        + "openreg sanitizer: suppressions that matched no finding: [a]\n"
    )


def test_the_running_test_is_named(capfd, monkeypatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_a.py::test_b[x] (call)")
    Reporter(Settings()).finding(from_dict(fake.race()))
    assert capfd.readouterr().err.endswith("\n  test     tests/test_a.py::test_b[x]\n")
