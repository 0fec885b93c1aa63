"""What the planner answers, what it refuses, and how it lives and dies."""

import concurrent.futures
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from torch_openreg.plans import client as client_module
from torch_openreg.plans import sharing
from torch_openreg.plans.client import DEFAULT_SETTINGS, Client
from torch_openreg.plans.server import LENGTH

SORT = (
    "aten::sort",
    [("tensor", "float32", (8,), (1,), 0, 0, 32, "")],
    {},
    DEFAULT_SETTINGS,
    "h100",
)
# The planner cannot take these settings apart.
ABSURD = (*SORT[:3], (1,), "h100")


def slow(number):
    """Return a question that takes the planner long enough to be killed meanwhile: a product."""
    size = 4000 + number
    matrix = ("tensor", "float64", (size, size), (size, 1), 0, 0, 8 * size * size, "h")
    return ("aten::mm", [matrix, ("again", 0)], {}, DEFAULT_SETTINGS, "h100")


def _wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def _is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- answers -------------------------------------------------------------------------------------


def test_results_have_sizes_strides_dtypes_and_blocks(ask):
    values, indices = ask("aten::sort", "float32[2,3;1,2] 0").outputs
    assert values[:6] == ("block", 1, "float32", (2, 3), (1, 2), 0)
    assert indices[:6] == ("block", 2, "int64", (2, 3), (1, 2), 0)


def test_a_view_lies_in_the_memory_of_its_argument(ask):
    (view,) = ask("aten::select.int", "float32[4,8] 0 3").outputs
    assert view[:6] == ("alias", 0, "float32", (8,), (1,), 24)


def test_an_operator_in_place_returns_its_argument(ask):
    plan = ask("aten::add_.Tensor", "float32[8] float32[8]")
    assert plan.outputs[0][:2] == ("argument", 0)
    assert plan.events == ()


def test_a_result_argument_that_is_resized_is_reported(ask):
    plan = ask("aten::add.out", "float32[8] float32[8] out=float32[0]")
    assert plan.changed == ((2, (8,), (1,)),)
    assert plan.events == (32,)


def test_a_number_is_a_wrapped_number(ask):
    (added,) = ask("aten::add.Tensor", "float16[8] 2.0").outputs
    assert added.dtype == "float16"


def test_the_chosen_path_of_attention_is_a_number(ask):
    tensors = "bfloat16[1,8,8192,128] bfloat16[1,8,8192,128] bfloat16[1,8,8192,128]"
    assert ask("aten::_fused_sdp_choice", tensors).outputs == (1,)  # flash
    without_flash = (False, True, True, True, False)
    settings = (*DEFAULT_SETTINGS[:4], without_flash, *DEFAULT_SETTINGS[5:])
    assert ask("aten::_fused_sdp_choice", tensors, settings).outputs == (2,)  # memory-efficient


def test_an_error_has_the_text_of_cuda(ask):
    assert ask("aten::mm", "int64[8,8] int64[8,8]").error == (
        "NotImplementedError",
        "\"addmm_cuda\" not implemented for 'Long'",
    )


def test_the_profile_decides_about_the_blocks(ask):
    # The number of multiprocessors: 132 and 108.
    arguments = "bfloat16[1,8,1000,64] bfloat16[1,8,1000,64] bfloat16[1,8,1000,64]"
    plans = [
        ask("aten::_scaled_dot_product_flash_attention", arguments, profile=profile)
        for profile in ("h100", "a100")
    ]
    assert plans[0].transient == (64000, 4096000)
    assert plans[1].transient != plans[0].transient


def test_nothing_takes_memory(client, ask):
    assert ask("aten::add.Tensor", "float32[1000000,250000] float32[1000000,250000]").events == (
        10**12,
    )
    pid = client._planner.process
    with open(f"/proc/{pid}/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    assert resident < 1 << 30


def test_tensors_of_one_storage_share_memory(ask, client):
    def of(offset):
        return ("tensor", "float32", (8,), (1,), offset, 0, 64, "")

    error = client.ask(("aten::add_.Tensor", [of(0), of(4)], {}, DEFAULT_SETTINGS, "h100")).error
    assert error is not None and "some elements of the input tensor" in error[1]


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operator, arguments, cause",
    [
        ("aten::nonzero", "float32[8]", "values"),
        ("aten::item", "float32[]", "values"),
        ("aten::_ctc_loss.Tensor", "float32[9,2,5] int64[2,4] int64[2] int64[2]", "values"),
        ("aten::index.Tensor", "float32[8] [bool[8]]", "values"),
        ("aten::index.Tensor", "float32[8] [host:bool[8]]", "values"),
        ("aten::no_such_operator", "float32[8]", "operator"),
        ("quantized::add", "float32[8]", "operator"),
    ],
)
def test_a_refusal_has_a_cause_and_a_sentence(ask, client, operator, arguments, cause):
    before = client.counts[cause]
    assert ask(operator, arguments) is None
    assert client.counts[cause] == before + 1
    assert client.sentences[cause]


def test_values_that_are_read_but_do_not_decide_are_no_refusal(ask):
    (line,) = ask("aten::linspace.Tensor_Tensor", "float32[] float32[] 5 device=cuda").outputs
    assert line.sizes == (5,)
    assert ask("aten::linalg_cholesky_ex", "float32[8,8] check_errors=True").error is None


# ---- the process ---------------------------------------------------------------------------------


@pytest.fixture
def own_client(build, monkeypatch):
    """Return a client whose planner no other test shares."""
    monkeypatch.setenv("OPENREG_GROUP", f"own-planner-{os.getpid()}")
    made = Client(["h100"])
    yield made
    made.end()


def _kill(client):
    os.kill(client._planner.process, signal.SIGKILL)
    _wait_for(lambda: not _is_running(client._planner.process))


def _kill_at_work(monkeypatch, client):
    """Let the planner be killed when it begins with the next question of a client."""
    planner = client._planner
    receive = planner._receive

    def receive_and_kill(seconds):
        message = receive(seconds)
        if message == ("working",):
            os.kill(planner.process, signal.SIGKILL)
        return message

    monkeypatch.setattr(planner, "_receive", receive_and_kill)


def test_an_idle_planner_that_dies_is_started_again(own_client, capsys):
    assert own_client.ask(SORT) is not None
    _kill(own_client)
    assert own_client.ask(SORT) is not None
    assert own_client.counts["planner"] == 0
    assert capsys.readouterr().err == ""


def test_a_question_that_the_planner_dies_of_is_not_asked_again(own_client, capsys, monkeypatch):
    assert own_client.ask(SORT) is not None
    _kill_at_work(monkeypatch, own_client)
    assert own_client.ask(slow(1)) is None
    printed = capsys.readouterr().err
    assert printed.count("openreg: the planner ended with status -9") == 1
    assert printed.endswith(", at aten::mm. Memory plans are incomplete.\n")
    assert own_client.ask(slow(1)) is None
    assert own_client._planner is None
    assert own_client.ask(SORT) is not None
    assert own_client.counts["planner"] == 2


def test_a_planner_that_dies_again_and_again_is_given_up(own_client, capsys, monkeypatch):
    for number in range(client_module.MAX_DEATHS):
        assert own_client.ask(SORT) is not None
        _kill_at_work(monkeypatch, own_client)
        assert own_client.ask(slow(number)) is None
    assert own_client.ask(SORT) is None
    assert own_client._planner is None
    assert capsys.readouterr().err.count("openreg:") == 1


def test_an_unknown_gpu_is_named_with_the_known_ones(build, capsys):
    client = Client(["nonsense"])
    assert client.ask((*SORT[:4], "nonsense")) is None
    printed = capsys.readouterr().err
    assert "OPENREG_PROFILE=nonsense: expected a GPU name such as h100" in printed
    assert "known names: b200, h200, h100," in printed
    assert printed.count("\n") == 1
    client.end()
    _wait_for(lambda: sharing._started[-1].poll() is not None)


def test_an_error_of_the_planner_itself_is_a_refusal(own_client):
    assert own_client.ask(ABSURD) is None
    assert "ValueError" in own_client.sentences["planner"]
    assert own_client.ask(SORT) is not None


# A process that asks once, prints the process number of its planner, and waits.
ASKING = """
import os
from torch_openreg.plans.client import Client, DEFAULT_SETTINGS
client = Client(['h100'])
client.ask(('aten::sum', [], {}, DEFAULT_SETTINGS, 'h100'))
"""
WAITING = """
print(client._planner.process, flush=True)
os.read(0, 1)
"""


@contextlib.contextmanager
def _asking(code=""):
    """Run a process that has asked. Yield it, and its planner's process number."""
    with subprocess.Popen(
        [sys.executable, "-c", ASKING + code + WAITING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process, int(process.stdout.readline())
        process.kill()


def test_the_processes_of_a_group_share_a_planner(own_client):
    assert own_client.ask(SORT) is not None
    with _asking() as (process, planner):
        assert planner == own_client._planner.process
        own_client.end()  # the process that started it
        assert _is_running(planner)
        assert own_client.ask(SORT) is not None
        assert own_client._planner.process == planner
    own_client.end()
    _wait_for(lambda: not _is_running(planner))


def test_another_group_has_another_planner(own_client, monkeypatch):
    assert own_client.ask(SORT) is not None
    monkeypatch.setenv("OPENREG_GROUP", f"other-planner-{os.getpid()}")
    with _asking() as (process, planner):
        assert planner != own_client._planner.process


def test_the_planner_ends_after_the_last_process_was_killed(own_client):
    with _asking() as (process, planner):
        assert _is_running(planner)
        process.send_signal(signal.SIGKILL)
        _wait_for(lambda: not _is_running(planner))


def test_the_planner_ends_although_a_forked_child_holds_the_socket(own_client):
    fork = "if os.fork() == 0:\n    os.read(0, 1)\n    os._exit(0)\n"
    with _asking(fork) as (process, planner):
        process.send_signal(signal.SIGKILL)
        _wait_for(lambda: not _is_running(planner))
        process.stdin.close()


def test_a_forked_child_has_a_connection_of_its_own(own_client):
    assert own_client.ask(SORT) is not None
    pid = own_client._planner.process
    child = os.fork()
    if child == 0:
        is_well = own_client.ask(SORT) is not None and own_client._planner.process == pid
        own_client.end()
        os._exit(0 if is_well else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert own_client.ask(SORT) is not None
    assert own_client._planner.process == pid


def test_a_question_that_waits_is_asked_again_if_the_planner_dies_of_another(
    own_client, monkeypatch
):
    other = Client(["h100"])
    assert own_client.ask(SORT) is not None
    assert other.ask(SORT) is not None
    planner, begun = own_client._planner, threading.Event()
    receive = planner._receive

    def receive_and_tell(seconds):
        message = receive(seconds)
        begun.set()
        return message

    monkeypatch.setattr(planner, "_receive", receive_and_tell)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        died_of = threads.submit(own_client.ask, slow(1))
        assert begun.wait(60)
        waiting = threads.submit(other.ask, SORT)
        os.kill(planner.process, signal.SIGKILL)
        assert died_of.result() is None
        assert waiting.result() is not None
    assert other.counts["planner"] == 0
    other.end()


def test_half_a_question_does_not_block_other_processes(own_client):
    assert own_client.ask(SORT) is not None
    with socket.socket(socket.AF_UNIX) as half:
        half.connect(own_client._planner._socket.getpeername())
        half.sendall(LENGTH.pack(100) + b"half")
        assert own_client.ask(SORT) is not None


def test_processes_that_start_together_start_one_planner(own_client):
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", ASKING + WAITING],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(3)
        ]
        assert len({process.stdout.readline() for process in processes}) == 1
        for process in processes:
            process.kill()


def test_the_planner_is_no_group_of_openreg_smi(own_client):
    assert own_client.ask(SORT) is not None
    from torch_openreg.commands import smi

    assert not any(group["group"].startswith("group-planner-") for group in smi.take()["groups"])
