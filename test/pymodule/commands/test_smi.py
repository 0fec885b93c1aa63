"""`openreg smi`: what it shows of processes that hold memory, in a group of their own."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata
import uuid

import peers
import pytest
import torch
import torch_openreg._C
from torch_openreg.__main__ import main
from torch_openreg.commands.smi import _names
from torch_openreg.commands.smi_table import Style, draw

from device import DEVICE, module

GIB = 1 << 30
SMI = [sys.executable, "-m", "torch_openreg", "smi"]
DEVICES = {
    "OPENREG_DEVICE_COUNT": "2",
    "OPENREG_DEVICE_MEMORY": "1G",
    "OPENREG_PROFILE": "a100,t4",
    "HWLOC_SYNTHETIC": "pack:2 numa:1 core:4 pu:1",
}


def take_devices(variables, mebibytes):
    """In a peer: join the group and hold memory of each device, in MiB."""
    os.environ.update(variables)
    module.init()
    tensors = [
        torch.empty(size << 20, dtype=torch.uint8, device=f"{DEVICE}:{index}")
        for index, size in enumerate(mebibytes)
    ]
    peers.keep("tensors", tensors)
    return os.getpid()


@pytest.fixture
def environment(own_group):
    """Return the environment of the processes and of `openreg smi`."""
    return own_group() | DEVICES | {"COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}


@pytest.fixture
def group(environment):
    return environment["OPENREG_GROUP"]


@pytest.fixture
def hold(group):
    """Start a process that holds memory of each device, in MiB, until the test ends."""
    with contextlib.ExitStack() as stack:

        def start(*mebibytes):
            holder = stack.enter_context(peers.Peer())
            holder.pid = holder.call(take_devices, DEVICES | {"OPENREG_GROUP": group}, mebibytes)
            return holder

        yield start


@pytest.fixture
def smi(group, capsys, monkeypatch):
    """Run `openreg smi` in this process, for the group of the test."""

    def run(*arguments, expect=0, columns=100):
        monkeypatch.setenv("COLUMNS", str(columns))
        status = main(["smi", "--group", group, *arguments])
        written = capsys.readouterr()
        assert status == expect, written
        return written

    return run


@pytest.fixture
def smi_process(python, group):
    """Run `openreg smi` in another process, with the configuration of the test."""

    def run(*arguments, expect=0, **variables):
        code = f"""
            import sys
            from torch_openreg.__main__ import main
            sys.exit(main({["smi", *arguments]!r}))
        """
        variables = DEVICES | {"OPENREG_GROUP": group, "COLUMNS": "100"} | variables
        return python(code, expect=expect, **variables)

    return run


def only_group(written):
    """Return the only group of a JSON snapshot."""
    (group,) = json.loads(written)["groups"]
    return group


def test_json_tells_of_devices_and_processes(smi, hold, group):
    holders = [hold(100, 0), hold(20, 300)]
    before = time.time_ns()
    snapshot = json.loads(smi("--json").out)
    assert set(snapshot) == {"version", "time_ns", "groups", "problem"}
    assert snapshot["version"] == 1
    assert before <= snapshot["time_ns"] <= time.time_ns()
    assert snapshot["problem"] is None
    (shown,) = snapshot["groups"]
    assert set(shown) == {"group", "in_use", "devices", "processes"}
    assert shown["group"] == f"group-{group}"
    assert shown["in_use"] is True
    assert shown["devices"] == [
        {
            "device": 0,
            "profile": "a100",
            "name": shown["devices"][0]["name"],
            "numa_node": 0,
            "cpuset": "0-3",
            "uuid": shown["devices"][0]["uuid"],
            "total_bytes": GIB,
            "used_bytes": 120 << 20,
            "busy_percent": 0,
        },
        {
            "device": 1,
            "profile": "t4",
            "name": "Tesla T4",
            "numa_node": 1,
            "cpuset": "4-7",
            "uuid": shown["devices"][1]["uuid"],
            "total_bytes": GIB,
            "used_bytes": 300 << 20,
            "busy_percent": 0,
        },
    ]
    for process, holder, sizes in zip(
        shown["processes"], holders, ([100 << 20, 0], [20 << 20, 300 << 20]), strict=True
    ):
        assert set(process) == {"pid", "name", "has_exited", "started_ns", "bytes"}
        assert process["pid"] == holder.pid
        assert process["bytes"] == sizes
        assert process["name"].startswith(sys.executable[:20])
        assert process["has_exited"] is False
        assert 0 < process["started_ns"] < before


def work_without_end(index):
    """In a peer: keep a device busy until the peer ends."""
    peers.keep("gate", torch_openreg._C._Gate(index, 0))


def test_device_that_works_is_busy(smi, hold):
    holder = hold(1, 1)
    holder.call(work_without_end, 1)
    devices = only_group(smi("--json").out)["devices"]
    # Samples cover the last second.
    while [device["busy_percent"] for device in devices] != [0, 100]:
        devices = only_group(smi("--json").out)["devices"]
    assert re.search(r" 1 +Tesla T4 .* 100%$", smi().out, re.M)
    holder.kill()


def test_devices_of_a_group_have_the_same_uuids_always(smi, smi_process, hold, group):
    """With and without a process in the group."""
    before = only_group(smi_process("--json", "--group", group).stdout)["devices"]
    hold(1, 0)
    after = only_group(smi("--json").out)["devices"]
    uuids = [device["uuid"] for device in after]
    assert [str(uuid.UUID(text)) for text in uuids] == uuids
    assert [device["uuid"] for device in before] == uuids and len(set(uuids)) == 2


def test_process_that_was_killed_is_gone_with_its_memory(smi, hold):
    killed, other = hold(100, 0), hold(20, 0)
    killed.kill()
    shown = only_group(smi("--json").out)
    assert [process["pid"] for process in shown["processes"]] == [other.pid]
    assert shown["devices"][0]["used_bytes"] == 20 << 20


def test_it_joins_no_group_and_initializes_nothing(smi_process, python, hold, group):
    holder = hold(1, 0)
    code = "from torch_openreg import _C; _C.ledger_list(); _C.ledger_preview(); "
    code += "print(_C.is_initialized())"
    for _ in range(2):
        shown = only_group(smi_process("--json", "--group", group).stdout)
        assert [process["pid"] for process in shown["processes"]] == [holder.pid]
    assert python(code).stdout == "False\n"


def test_table_has_a_row_for_each_device_and_each_use(smi, hold):
    holder = hold(512, 256)
    text = smi().out
    assert re.search(r"^ +0 +NVIDIA A100\S* .* 0 +0-3 .*0\.5 / 1\.0 GiB +50% +0%$", text, re.M)
    assert re.search(r"^ +1 +Tesla T4 +1 +4-7 .*0\.2 / 1\.0 GiB +25% +0%$", text, re.M)
    assert re.search(rf"^ +0 +{holder.pid} +512\.0 MiB ", text, re.M)
    assert re.search(rf"^ +1 +{holder.pid} +256\.0 MiB ", text, re.M)
    assert "2 devices, 1 process\n" in text
    assert "\x1b" not in text


def test_all_groups_are_shown_by_default(smi_process, hold, group):
    hold(64, 0)
    # Control files of other groups may be damaged, so the exit status is not checked.
    result = subprocess.run([*SMI, "--json"], capture_output=True, text=True)
    shown = {shown["group"]: shown for shown in json.loads(result.stdout)["groups"]}
    assert shown[f"group-{group}"]["devices"][0]["used_bytes"] == 64 << 20


def test_group_of_another_name_is_left_out(capsys, hold):
    hold(1, 0)
    assert main(["smi", "--group", "nobody-is-here"]) == 1
    written = capsys.readouterr()
    assert "GiB" not in written.out
    assert written.err == "openreg: there is no group 'nobody-is-here' with processes\n"


def test_without_processes_the_configured_devices_are_shown(smi_process, group):
    shown = only_group(smi_process("--json", "--group", group).stdout)
    assert shown["in_use"] is False
    assert shown["processes"] == []
    assert [device["used_bytes"] for device in shown["devices"]] == [0, 0]
    assert [device["cpuset"] for device in shown["devices"]] == ["0-3", "4-7"]
    text = smi_process("--group", group).stdout
    assert "2 devices, no processes\n" in text
    assert len(re.findall(r"0\.0 / 1\.0 GiB +0% +0%$", text, re.M)) == 2


def test_configuration_that_is_wrong_is_named(smi_process, group):
    result = smi_process("--group", group, expect=1, OPENREG_DEVICE_COUNT="0")
    assert result.stderr == "openreg: OPENREG_DEVICE_COUNT=0: expected 1 to 64\n"


def test_other_groups_are_shown_with_any_configuration(smi_process, hold, group):
    hold(64, 0)
    result = smi_process("--json", "--group", group, OPENREG_DEVICE_COUNT="0", OPENREG_GROUP="x")
    assert only_group(result.stdout)["devices"][0]["used_bytes"] == 64 << 20


@pytest.fixture
def broken_file(group):
    folder = f"/dev/shm/openreg-{os.geteuid()}"
    os.makedirs(folder, 0o700, exist_ok=True)
    path = f"{folder}/group-{group}-broken"
    with open(path, "wb") as file:
        os.chmod(path, 0o600)
        file.write(b"no control file")
    yield path
    os.remove(path)


def test_broken_control_file_is_named_and_the_rest_is_shown(broken_file, capsys, hold, group):
    holder = hold(64, 0)
    assert main(["smi"]) == 1
    written = capsys.readouterr()
    assert broken_file in written.err
    assert str(holder.pid) in written.out
    assert main(["smi", "--group", f"{group}-broken", "--json"]) == 1
    written = capsys.readouterr()
    assert json.loads(written.out)["problem"] + "\n" == written.err
    assert written.err.startswith(f"openreg: {broken_file} cannot be used")


@pytest.mark.parametrize(
    ("problem", "group", "expected"),
    [
        ("openreg: /dev/shm/openreg-0/group-a cannot be used", None, True),
        ("openreg: /dev/shm/openreg-0/group-a cannot be used", "a", True),
        ("openreg: /dev/shm/openreg-0/group-a cannot be used", "group-a", True),
        ("openreg: /dev/shm/openreg-0/group-a: a process has had it locked", "a", True),
        ("openreg: /dev/shm/openreg-0/group-a-b cannot be used", "b", False),
        ("openreg: /dev/shm/openreg-0/alike-1 cannot be used", "alike-1", True),
        ("openreg: /dev/shm/openreg-0/alike-1 cannot be used", "a", False),
        ("openreg: /dev/shm/openreg-0 cannot be used", "a", True),
        ("openreg:", "a", True),  # shortened
    ],
)
def test_problem_is_that_of_the_group_that_it_names(problem, group, expected):
    assert _names(problem, group) == expected


def test_broken_control_file_of_another_group_is_nothing_to_this_one(broken_file, smi, hold):
    hold(64, 0)
    assert smi().err == ""


@pytest.mark.parametrize("columns", [40, 60, 120, 300])
def test_no_line_is_wider_than_the_terminal(smi, hold, columns):
    hold(100, 700)
    text = smi(columns=columns).out
    assert max(map(len, text.splitlines())) <= columns
    assert "0.7 / 1.0 GiB" in text


def test_bar_is_ascii_where_the_encoding_is(smi_process, hold, group):
    hold(512, 0)
    assert "█" in smi_process("--group", group).stdout
    text = smi_process("--group", group, PYTHONIOENCODING="ascii").stdout
    assert "#####" in text and text.isascii()


@pytest.mark.parametrize("arguments", [["--watch", "0"], ["--watch", "soon"], ["--device", "1"]])
def test_arguments_that_are_wrong_are_named(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(["smi", *arguments])
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["cuda"]])
def test_command_that_does_not_exist_is_refused(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "smi" in capsys.readouterr().err or not arguments


# ---- terminals -----------------------------------------------------------------------------------


def hear_ctrl_c():
    """Undo what a shell does to background jobs; for the start of a process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def take_terminal():
    """Make the standard input the terminal that Ctrl-C comes from; for the start of a process."""
    hear_ctrl_c()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A process on its own terminal."""

    def __init__(self, arguments, environment, rows=24, columns=100):
        self.screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = environment | {"TERM": "xterm"}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [*SMI, *arguments],
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, wanted):
        """Read until the output contains a text."""
        while wanted not in self.text and self._read():
            pass
        assert wanted in self.text, self.text
        before, _, self.text = self.text.partition(wanted)
        return before

    def _read(self, patience=600):
        assert select.select([self.screen], [], [], patience)[0], self.text
        try:
            piece = os.read(self.screen, 65536)
        except OSError:  # Linux reports EIO if the other end is closed
            return False
        self.text += piece.decode(errors="replace")
        return bool(piece)

    def read_all(self):
        while self._read():
            pass
        return self.text.replace("\r\n", "\n")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.screen)


@pytest.fixture
def terminal(environment):
    with contextlib.ExitStack() as stack:

        def start(*arguments, rows=24, **variables):
            started = Terminal(arguments, environment | variables, rows)
            stack.callback(started.close)
            return started

        yield start


HOME = "\x1b[H"


def test_watch_redraws_in_place_until_ctrl_c(terminal, hold, group):
    holder = hold(512, 0)
    watching = terminal("--watch", "0.1", "--group", group)
    watching.read_until(HOME)
    frame = watching.read_until(HOME)
    assert str(holder.pid) in frame and "0.5 / 1.0 GiB" in frame
    assert frame.endswith("\x1b[J")
    assert all(line.endswith("\x1b[K") for line in frame.split("\r\n")[:-1])
    holder.leave()
    watching.read_until("0.0 / 1.0 GiB")
    os.write(watching.screen, b"\x03")
    assert watching.process.wait() == 0
    assert "Traceback" not in watching.read_all()


def test_watch_draws_no_more_than_the_terminal_has_rows(terminal, hold, group):
    hold(512, 512)
    watching = terminal("--watch", "0.1", "--group", group, rows=6)
    watching.read_until(HOME)
    frame = watching.read_until(HOME)
    assert frame.count("\r\n") == 5
    assert "... " in frame and "more lines" in frame


def test_watch_elsewhere_than_on_a_terminal_prints_one_snapshot_after_another(
    hold, environment, group
):
    hold(1, 0)
    with subprocess.Popen(
        [*SMI, "--watch", "0.1", "--json", "--group", group],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    ) as watching:
        snapshots = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        assert watching.wait() == 0
    times = [snapshot["time_ns"] for snapshot in snapshots]
    assert times == sorted(set(times))
    for snapshot in snapshots:
        assert snapshot["groups"][0]["devices"][0]["used_bytes"] > 0


def test_colour_is_for_terminals(terminal, hold, group):
    hold(1000, 0)
    assert "\x1b[31m" in terminal("--group", group).read_all()
    assert "\x1b" not in terminal("--group", group, NO_COLOR="1").read_all()


def test_reader_that_has_seen_enough_is_no_failure_to_complain_of(environment):
    with subprocess.Popen(
        [*SMI, "--watch", "0.1"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        watching.stdout.readline()
        watching.stdout.close()
        assert "Traceback" not in watching.stderr.read()


# ---- drawing -------------------------------------------------------------------------------------


def snapshot_of(devices, processes):
    group = {"group": "group-drawn", "in_use": True, "devices": devices, "processes": processes}
    return {"version": 1, "time_ns": 0, "groups": [group], "problem": None}


def device_of(number, used, total=80 * GIB, **others):
    return {
        "device": number,
        "profile": "h100",
        "name": "NVIDIA H100 80GB HBM3",
        "numa_node": number,
        "cpuset": ",".join(str(2 * core) for core in range(60)),
        "total_bytes": total,
        "used_bytes": used,
        "busy_percent": 0,
    } | others


def process_of(pid, *sizes, name="python train.py", has_exited=False):
    process = {"pid": pid, "name": name, "has_exited": has_exited, "started_ns": 0}
    return process | {"bytes": list(sizes)}


PLAIN = Style(colour=False, blocks=True, redraws=False)


def cells_of(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.mark.parametrize("blocks", [True, False])
def test_drawing_is_never_wider_than_it_may_be(blocks):
    snapshot = snapshot_of(
        [device_of(0, 0), device_of(1, 80 * GIB, numa_node=None, cpuset=None)],
        [process_of(12345, 0, 80 * GIB, name="日本語" * 30), process_of(2, 0, 0)],
    )
    for columns in range(1, 200):
        lines = draw(snapshot, columns, Style(colour=False, blocks=blocks, redraws=False))
        assert max(map(cells_of, lines)) <= columns


def test_bar_is_as_full_as_the_device():
    devices = [device_of(i, used) for i, used in enumerate([0, 1, 40 * GIB, 80 * GIB])]
    bars = [
        line.partition("-3")[2].partition(" /")[0]
        for line in draw(
            snapshot_of([device | {"cpuset": "0-3"} for device in devices], []), 120, PLAIN
        )[4:]
    ]
    full = [bar.count("█") for bar in bars]
    assert full == [0, 0, 12, 24]
    assert "▏" in bars[1] and "▏" not in bars[0]


def test_unknown_utilization_is_a_dash():
    devices = [device_of(0, 0, busy_percent=None), device_of(1, 0, busy_percent=7)]
    heading, unknown, known = draw(snapshot_of(devices, []), 120, PLAIN)[3:]
    assert heading.endswith(" busy") and unknown.endswith("   -") and known.endswith("  7%")


def test_memory_that_outlives_its_process_is_marked():
    text = "\n".join(
        draw(snapshot_of([device_of(0, 5)], [process_of(7, 5, has_exited=True)]), 80, PLAIN)
    )
    assert re.search(r"^ +0 +7 +5 B +\(exited, in use by others\) python train.py$", text, re.M)


def test_process_without_memory_is_shown_once():
    lines = draw(snapshot_of([device_of(0, 0), device_of(1, 0)], [process_of(7, 0, 0)]), 80, PLAIN)
    assert [line for line in lines if " 7 " in line] == ["       -    7     0 B  python train.py"]


def test_names_cannot_write_to_the_terminal():
    lines = draw(snapshot_of([device_of(0, 5)], [process_of(7, 5, name="\x1b[2Jx\n")]), 80, PLAIN)
    assert lines[-1].endswith("?[2Jx?")


def test_damaged_figures_are_drawn_all_the_same():
    devices = [device_of(0, 5, total=0), device_of(1, 1 << 63)]
    assert "100%" in draw(snapshot_of(devices, []), 80, PLAIN)[-1]
