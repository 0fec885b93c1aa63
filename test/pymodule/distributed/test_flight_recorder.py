"""The flight recorder: how it records a group's calls, and what it writes when a group fails.

PyTorch's own analyser `torchfrtrace` checks the files.
"""

import datetime
import http.client
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref

import pytest
import torch
import torch.distributed as dist
from peers import kept
from ranks import BACKEND, own_device, ranks_of

from device import DEVICE, module

pytestmark = pytest.mark.own_processes

RECORDER = torch._C._distributed_c10d


def dump(**parts):
    return pickle.loads(RECORDER._dump_nccl_trace(**parts))


def dump_json(**parts):
    return json.loads(RECORDER._dump_nccl_trace_json(**parts))


def prepare(places):
    """PyTorch's variables that configure the recorder, by name."""
    os.environ.update(places)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    with ranks_of(tmp_path_factory.mktemp("group"), backend=BACKEND) as ranks:
        ranks.call(connect)
        ranks.call(connect_pair)
        yield ranks


def connect():
    module.set_device(own_device())
    dist.all_reduce(torch.ones(2, device=own_device()))
    module.synchronize()


def connect_pair():
    """Checks messages that are not batched."""
    tensor = torch.ones(2, device=own_device())
    dist.send(tensor, 1) if dist.get_rank() == 0 else dist.recv(tensor, 0)
    module.synchronize()


# ---- calls ---------------------------------------------------------------------------------------


def call_all_kinds():
    rank, device = dist.get_rank(), own_device()
    RECORDER._reset_fr_recording_nccl()
    tensor = torch.ones(3, 4, device=device)
    dist.all_reduce(tensor)
    dist.barrier(device_ids=[device.index])
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    operation = dist.isend if rank == 0 else dist.irecv
    for work in dist.batch_isend_irecv([dist.P2POp(operation, tensor, 1 - rank)] * 2):
        work.wait()
    outputs = [torch.empty(part + 1, device=device) for part in range(2)]
    dist.all_gather(outputs, torch.ones(rank + 1, device=device))
    with dist.distributed_c10d._coalescing_manager():
        for _ in range(2):
            dist.all_reduce(tensor)
    module.synchronize()
    return dump(), threading.get_ident()


def test_calls_have_the_names_and_numbers_that_nccl_gives_them(ranks):
    for rank, (everything, _) in enumerate(ranks.call(call_all_kinds)):
        entries = everything["entries"]
        first, message, call = (
            entries[0][key] for key in ("collective_seq_id", "p2p_seq_id", "op_id")
        )
        name = "send 0->1" if rank == 0 else "recv 1<-0"
        sizes = [[3, 4]]
        parts = [([[1]], [[1]]), ([[2]], [[2]])]
        expected = [
            ("all_reduce", 0, 0, 0, False, sizes, sizes, "completed"),
            ("all_reduce_barrier", 1, 0, 1, False, [[1]], [[1]], "completed"),
            (name, 1, 1, 2, True, sizes, sizes, "completed"),
            (name, 1, 2, 3, True, sizes, sizes, "scheduled"),
            (name, 1, 2, 4, True, sizes, sizes, "scheduled"),
            ("coalesced", 1, 2, 4, True, [], [], "completed"),
            ("_broadcast_oop", 2, 2, 5, False, *parts[0], "scheduled"),
            ("_broadcast_oop", 2, 2, 5, False, *parts[1], "scheduled"),
            ("ALLGATHER_coalesced", 2, 2, 5, False, [], [], "completed"),
            ("allreduce_coalesced", 3, 2, 6, False, sizes * 2, sizes * 2, "completed"),
        ]
        assert [
            (
                entry["profiling_name"].removeprefix("nccl:"),
                entry["collective_seq_id"] - first,
                entry["p2p_seq_id"] - message,
                entry["op_id"] - call,
                entry["is_p2p"],
                entry["input_sizes"],
                entry["output_sizes"],
                entry["state"],
            )
            for entry in entries
        ] == expected
        assert [entry["record_id"] for entry in entries] == list(range(len(expected)))


def test_calls_tell_where_they_come_from(ranks):
    for everything, thread in ranks.call(call_all_kinds):
        entry = everything["entries"][0]
        assert entry["process_group"] == ("0", "default_pg")
        assert entry["pg_id"] == 0
        assert entry["thread_id"] == str(thread)
        assert entry["input_dtypes"] == entry["output_dtypes"] == ["Float"]
        assert entry["timeout_ms"] == 120_000
        frames = {(frame["name"], os.path.basename(frame["filename"])) for frame in entry["frames"]}
        assert ("call_all_kinds", os.path.basename(__file__)) in frames
        lines = [frame["line"] for frame in entry["frames"] if frame["name"] == "call_all_kinds"]
        assert lines == [call_all_kinds.__code__.co_firstlineno + 4]
        assert everything["version"] == "2.10"
        assert everything["comm_lib_version"] == ("2.29.7" if DEVICE == "cuda" else "")
        assert everything["pg_config"] == {
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
        }
        last = entry["collective_seq_id"] + 3
        status = everything["pg_status"]["0"]
        assert status["last_enqueued_collective"] == last
        assert status["last_completed_collective"] == last


def dump_twice():
    call_all_kinds()
    return dump(includeStackTraces=False), dump_json()


def test_json_has_the_same_but_frames(ranks):
    for everything, as_json in ranks.call(dump_twice):
        for entry in everything["entries"]:
            for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[key] = entry[key] or 0
            entry["process_group"] = list(entry["process_group"])
        for status in everything["pg_status"].values():
            for key, number in status.items():
                status[key] = str(number)
        assert as_json == everything


def record_and_forget():
    RECORDER._reset_fr_recording_nccl()
    tensor = torch.ones(4, device=own_device())
    dist.all_reduce(tensor)
    module.synchronize()
    storage = weakref.ref(tensor.untyped_storage())
    recorded = dump(includeStackTraces=False)["entries"]
    del tensor
    return len(recorded), storage() is None, dump(includeCollectives=False).get("entries")


def test_records_keep_no_tensor(ranks):
    assert ranks.call(record_and_forget) == [(1, True, None)] * 2


# ---- progress ------------------------------------------------------------------------------------


def start_alone(timed):
    if timed:
        dist.group.WORLD._get_backend(own_device())._enable_collectives_timing()
    RECORDER._reset_fr_recording_nccl()
    dist.all_reduce(torch.ones(2, device=own_device()))
    module.synchronize()
    kept["work"] = dist.all_reduce(torch.ones(2, device=own_device()), async_op=True)
    state = dump()["entries"][1]["state"]
    while timed and state == "scheduled":  # until the group's stream has reached it
        state = dump()["entries"][1]["state"]
    return state, [entry["state"] for entry in dump(onlyActive=True)["entries"]]


def come_later():
    dist.all_reduce(torch.ones(2, device=own_device()))


def end():
    work = kept.pop("work")
    work.wait()
    module.synchronize()
    entry = dump()["entries"][1]
    times = [entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"]]
    order = [entry["time_created_ns"], *(time for time in times if time is not None)]
    return (
        entry["state"],
        entry["retired"],
        times[0] is not None,
        order == sorted(order),
        entry.get("duration_ms", -1) >= 0,
        dump(onlyActive=True)["entries"],
    )


@pytest.mark.parametrize("timed", [False, True])
def test_a_call_that_waits_for_another_rank(tmp_path, timed):
    """As with NCCL, the start is recorded only if calls are timed."""
    with ranks_of(tmp_path, backend=BACKEND) as ranks:
        ranks.peers[0].start(start_alone, timed)
        ranks.peers[1].call(come_later)
        state = "started" if timed else "scheduled"
        assert ranks.peers[0].finish() == (state, [state])
        ranks.peers[1].call(come_later)
        assert ranks.peers[0].call(end) == ("completed", True, timed, True, timed, [])


# ---- capacity ------------------------------------------------------------------------------------

FIVE = f"""
import pickle, torch, torch.distributed as dist
dist.init_process_group("{BACKEND}", store=dist.HashStore(), rank=0, world_size=1)
for count in range(5):
    dist.all_reduce(torch.ones(count, device="{DEVICE}"))
everything = pickle.loads(torch._C._distributed_c10d._dump_nccl_trace())
print([entry["input_sizes"] for entry in everything["entries"]])
"""


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
@pytest.mark.parametrize(
    ("size", "recorded"),
    [("3", [[[2]], [[3]], [[4]]]), ("0", []), ("9", [[[i]] for i in range(5)])],
)
def test_the_last_ones_are_kept(python, name, size, recorded):
    assert python(FIVE, **{name: size}).stdout == f"{recorded}\n"


class Connection(http.client.HTTPConnection):
    """Connects to a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def ask(path, words):
    connection = Connection(path)
    connection.request("POST", f"/handler/{words}")
    response = connection.getresponse()
    return response.status, response.read()


def serve(folder):
    path = f"{folder}/server"
    server = torch._C._distributed_c10d._WorkerServer(path)
    answers = [
        ask(path, f"dump_nccl_trace_{words}")
        for words in ("pickle", "json", "json?onlyactive=true", "json?onlyactive=yes")
    ]
    server.shutdown()
    return answers, dump(), dump_json()


def test_debug_server_finds_it(ranks, tmp_path):
    answers, everything, as_json = ranks.peers[0].call(serve, str(tmp_path))
    assert pickle.loads(answers[0][1]) == everything
    assert json.loads(answers[1][1]) == as_json
    assert "entries" not in json.loads(answers[2][1])
    assert answers[3] == (400, b"Invalid value for onlyactive valid values are true or false")


# ---- when a group fails --------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    """Two ranks that write their dumps to a folder; yields them and the folder.

    They send no messages: the analyser would count a message after a collective of the same number
    as a part of it.
    """
    folder = tmp_path / "dumps"
    folder.mkdir()
    chosen = {
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "trace_"),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "ask_"),
    }
    with ranks_of(tmp_path, backend=BACKEND, prepare=prepare, places=[chosen] * 2) as ranks:
        ranks.call(connect)
        yield ranks, folder


def fail(function, *arguments):
    try:
        function(*arguments)
        module.synchronize()
    except dist.DistBackendError as error:
        return str(error)
    return None


def call_differently():
    tensor = torch.ones(2, device=own_device())
    if dist.get_rank() == 0:
        return fail(dist.all_reduce, tensor)
    return fail(dist.broadcast, tensor, 0)


def wait_for_no_rank():
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(milliseconds=100))
    return fail(dist.all_reduce, torch.ones(2, device=own_device()))


def analyse(folder):
    words = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    result = subprocess.run(
        [*words, str(folder), "-p", "trace_"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


def test_analyser_names_the_call_that_differs(recorded):
    ranks, folder = recorded
    assert all("broadcast" in sentence for sentence in ranks.call(call_differently))
    reported = analyse(folder)
    assert "Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH" in reported
    assert "'all_reduce' does not match found collective type: 'broadcast'" in reported
    assert "call_differently at " in reported


def read_when_written(path):
    """The file is a pipe, so the reader waits for the writer."""
    with open(path, "rb") as file:
        return pickle.load(file)


def test_analyser_names_the_rank_that_is_missing(recorded):
    """The rank that is missing waits for nothing, and writes a file, too."""
    ranks, folder = recorded
    os.mkfifo(folder / "trace_1")
    ranks.peers[0].start(wait_for_no_rank)
    idle = read_when_written(folder / "trace_1")
    assert "rank 1 did not reach" in ranks.peers[0].finish()
    (folder / "trace_1").unlink()
    (folder / "trace_1").write_bytes(pickle.dumps(idle))
    reported = analyse(folder)
    assert "missing ranks: {1}" in reported
    assert "wait_for_no_rank at " in reported


def abort():
    dist.group.WORLD._get_backend(own_device()).abort()
    return fail(dist.all_reduce, torch.ones(1, device=own_device()))


def test_a_rank_that_aborts_its_group_writes_nothing(recorded):
    ranks, folder = recorded
    os.mkfifo(folder / "trace_1")
    ranks.peers[0].start(abort)
    read_when_written(folder / "trace_1")
    assert "abort" in ranks.peers[0].finish()
    assert not (folder / "trace_0").exists()


def test_it_is_written_when_it_is_asked_for(recorded, tmp_path):
    ranks, folder = recorded
    os.mkfifo(folder / "trace_0")
    (tmp_path / "ask_0.pipe").write_text("1\n")
    names = {entry["profiling_name"] for entry in read_when_written(folder / "trace_0")["entries"]}
    assert names == {"nccl:all_reduce"}
    assert ranks.call(fail, connect) == [None, None]


LEAVES = f"""
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
device = torch.device("{DEVICE}", rank)
torch.get_device_module("{DEVICE}").set_device(rank)
dist.init_process_group("{BACKEND}")
dist.all_reduce(torch.ones(3 + rank, device=device))
torch.get_device_module("{DEVICE}").synchronize()
"""


def test_all_ranks_of_a_job_write_before_it_is_ended(tmp_path, own_group):
    program = tmp_path / "program.py"
    program.write_text(LEAVES)
    variables = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    command = [sys.executable, "-m", "torch_openreg", "run", "--ranks", "2", str(program)]
    mode = {"OPENREG_DEVICE_TYPE": DEVICE}
    result = subprocess.run(
        command, env=own_group() | variables | mode, capture_output=True, text=True
    )
    assert result.returncode == 1, result.stderr
    assert f"{tmp_path}/trace_" in result.stderr
    for rank in range(2):
        with open(tmp_path / f"trace_{rank}", "rb") as file:
            assert pickle.load(file)["entries"][0]["input_sizes"] == [[3 + rank]]
