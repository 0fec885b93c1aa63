"""What is printed of a finding: names, lines, and one sentence that a person can act on."""

import pytest
import told
from torch_openreg.sanitizer import text
from torch_openreg.sanitizer.finding import from_dict
from torch_openreg.sanitizer.remedies import remedy

from device import DEVICE

API = f"torch.{DEVICE}"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program into the working folder, and return its file."""

    def write(*lines):
        file = tmp_path / "train.py"
        file.write_text("".join(f"{line}\n" for line in lines))
        return str(file)

    monkeypatch.chdir(tmp_path)
    return write


def of(kind, first, second, **changes):
    return from_dict(told.finding(kind, first, second, **changes))


def event(recorded, waited, early):
    recorded, waited = told.stack(recorded), told.stack(waited)
    return {"recorded": recorded, "waited": waited, "waited_early": early}


# ---- the block -----------------------------------------------------------------------------------


def test_a_race_in_full(program):
    file = program("x = torch.ones(1000)", "x.add_(1)", "with stream(side):", "    y = x * 2")
    block = told.block(file=file)
    found = of(
        "race",
        told.write(2, stack=told.stack(2, file=file), block=block),
        told.access(4, stack=told.stack(4, "step", file), block=block),
    )
    assert found.text() == (
        "openreg sanitizer: race\n"
        f"  tensor   float32 [1000] on {DEVICE}:0, allocated at train.py:1; "
        "bytes 0 to 3999 of 4096\n"
        "  first    train.py:2: aten::add_ writes `self` on the default stream\n"
        "               x.add_(1)\n"
        "  second   train.py:4 in step: aten::mul reads `self` on stream 3\n"
        "               y = x * 2\n"
        f"  remedy   Call {API}.current_stream().wait_stream({API}.default_stream()) before line 4 "
        "of train.py.\n"
    )


def test_use_after_free_has_two_tensors(program):
    file = program("x = ones()", "x.sum()", "del x", "y = zeros()")
    first = told.access(2, stack=told.stack(2, file=file), block=told.block(1, 3, file=file))
    second = told.write(4, shape=[500], block=told.block(4, file=file))
    lines = of("use after free", first, second).text().splitlines()
    assert lines[1].startswith(f"  tensor   float32 [1000] on {DEVICE}:0, allocated at train.py:1")
    assert lines[1].endswith(", freed at train.py:3")
    assert f"  now      float32 [500] on {DEVICE}:0, allocated at train.py:4" in lines[4]


def test_a_read_has_one_access():
    lines = of("uninitialised read", None, told.access(7)).text().splitlines()
    assert lines[2] == "  read     /nowhere/train.py:7: aten::mul reads `self` on stream 3"
    only_memory = told.access(1, operator="", mode="", stack=[])
    assert of("uninitialised read", only_memory, told.access(7)).text().splitlines()[2] == lines[2]


def test_a_backward_names_the_line_of_its_forward():
    forward = told.write(2, stack=[], forward=told.stack(5, "forward"))
    lines = of("race", forward, told.access(9)).text().splitlines()
    assert lines[2] == (
        "  first    /nowhere/train.py:5 in forward: its backward, aten::add_ writes `self` on the "
        "default stream"
    )
    both = told.write(2, stack=told.stack(8), forward=told.stack(5))
    assert "/nowhere/train.py:5: the forward of it" in of("race", both, told.access(9)).text()


def test_a_view_is_told_from_the_tensor():
    half = told.write(2, shape=[500])
    assert "`self`, float32 [500], on the default" in of("race", half, told.access(3)).text()
    assert "`self` on the default" in from_dict(told.race()).text()


def test_a_result_has_no_name():
    product = told.write(2, operator="aten::mm", argument="")
    assert "2: aten::mm writes its result on the" in of("race", product, told.access(3)).text()


def test_bytes_are_told_where_they_are_a_part():
    whole = of("race", told.write(2), told.access(3), bytes=(0, told.BLOCK_BYTES))
    assert "bytes" not in whole.text()
    assert (
        "; bytes 8 to 15 of 4096\n"
        in of("race", told.write(2), told.access(3), bytes=(8, 16)).text()
    )


def test_what_is_not_known_is_not_made_up():
    nowhere = told.write(2, stack=[], operator="", argument="")
    found = of("race", nowhere, told.access(3, block=None))
    assert "first    a place that is not known: writes on the default stream\n" in found.text()
    assert "allocated" not in found.text()


def test_the_host_is_no_stream():
    host = told.write(4, operator="", argument="", stream=-1)
    assert "train.py:4: writes by the host\n" in of("host access", told.access(3), host).text()


def test_an_event_is_shown():
    found = of("unordered event", told.write(2), told.access(9), event=event(5, 4, True))
    assert "  recorded /nowhere/train.py:5\n" in found.text()
    assert "  waited   /nowhere/train.py:4: before it was recorded\n" in found.text()
    again = of("unordered event", told.write(2), told.access(9), event=event(5, 8, False))
    assert "train.py:8: when it was recorded again\n" in again.text()


def test_whole_stacks_are_shown_where_they_are_asked_for():
    calls = [*told.stack(3, "step"), *told.stack(9, "main"), *told.stack(11)]
    found = of("race", told.write(2), told.access(3, stack=calls))
    assert "main" not in found.text()
    shown = text.block(found, whole=True)
    assert "           called at /nowhere/train.py:9 in main\n" in shown
    assert "           called at /nowhere/train.py:11\n" in shown


def test_files_of_other_folders_have_their_whole_path(program):
    program()
    assert "first    /nowhere/train.py:2" in from_dict(told.race()).text()


# ---- remedies ------------------------------------------------------------------------------------


def expect(found, sentence):
    assert remedy(found) == sentence.replace("torch.gpu", API)


def test_a_stream_waits():
    expect(
        of("race", told.access(4), told.write(6)),
        "Call torch.gpu.current_stream().wait_stream(<stream of line 4>) before line 6 of "
        "/nowhere/train.py.",
    )


def test_default_streams_of_other_devices_have_their_number():
    expect(
        of("race", told.write(4, stream_device=1), told.access(6)),
        "Call torch.gpu.current_stream().wait_stream(torch.gpu.default_stream(1)) before line 6 of "
        "/nowhere/train.py.",
    )


def test_lines_of_two_files_are_both_named_with_them():
    model = told.access(4, stack=told.stack(4, file="/nowhere/model.py"))
    expect(
        of("race", model, told.write(6)),
        "Call torch.gpu.current_stream().wait_stream(<stream of line 4 of /nowhere/model.py>) "
        "before line 6 of /nowhere/train.py.",
    )


def test_a_backward_waits():
    backward = told.access(6, stack=[], forward=told.stack(6))
    expect(
        of("race", told.write(4), backward),
        "Call torch.gpu.current_stream().wait_stream(torch.gpu.default_stream()) before the "
        "backward pass of line 6 of /nowhere/train.py.",
    )


def test_the_host_waits():
    host = told.write(6, stream=-1)
    expect(
        of("host access", told.access(4), host),
        "Call <stream of line 4>.synchronize() before line 6 of /nowhere/train.py.",
    )


def test_a_tensor_is_recorded_by_its_name(program):
    file = program("x = torch.ones(1000)", "total = x.sum()")
    first = told.access(2, stack=told.stack(2, file=file), block=told.block(1, file=file))
    expect(
        of("use after free", first, told.write(4)),
        "Call x.record_stream(torch.gpu.current_stream()) after line 2 of train.py.",
    )


def test_a_tensor_of_another_function_is_named_by_its_line(program):
    file = program("x = torch.ones(1000)", "total = x.sum()")
    inner = told.stack(2, "consume", file)
    first = told.access(2, stack=inner, block=told.block(1, file=file))
    expect(
        of("use after free", first, told.write(4)),
        "Call record_stream(torch.gpu.current_stream()) on the tensor of line 1 after line 2 of "
        "train.py.",
    )


@pytest.mark.parametrize(
    "line",
    [
        "x = self.network(batch)",
        "x = network.to(device)",
        "x = torch.nn.Linear(1, 2)",
        "x, y = torch.zeros(1), torch.zeros(2)",
        "x = [torch.zeros(1000)]",
        "x = torch.zeros(",
        "return torch.zeros(1000)",
    ],
)
def test_what_may_be_no_tensor_is_not_called_one(program, line):
    file = program(line, "total = x.sum()")
    first = told.access(2, stack=told.stack(2, file=file), block=told.block(1, file=file))
    assert "on the tensor of line 1 after" in remedy(of("use after free", first, told.write(4)))


def test_what_is_read_is_written(program):
    file = program("x = torch.empty(1000)", "total = x.sum()")
    read = told.access(2, stack=told.stack(2, file=file), block=told.block(1, file=file))
    expect(
        of("uninitialised read", None, read),
        "Before line 2 of train.py write all of x that is read there, or allocate it with zeros "
        "at line 1.",
    )


def test_an_event_is_waited_for_later():
    expect(
        of("unordered event", told.write(2), told.access(9), event=event(5, 4, True)),
        "Wait for the event after it has been recorded at line 5, not at line 4 of "
        "/nowhere/train.py.",
    )


def test_an_event_of_its_own_is_recorded():
    expect(
        of("unordered event", told.write(2), told.access(9), event=event(5, 8, False)),
        "Record an event of its own at line 5: what line 8 of /nowhere/train.py waits for was "
        "recorded again in between.",
    )


def test_a_collective_is_waited_for():
    reduce = told.write(4, operator="nccl:all_reduce")
    expect(
        of("never waited", reduce, told.access(6)),
        "Call wait() on what all_reduce of line 4 returned before line 6 of /nowhere/train.py.",
    )


def test_an_operator_stays_inside():
    expect(
        of("out of bounds", None, told.write(6, operator="mine::fill")),
        "Have mine::fill at line 6 of /nowhere/train.py stay inside of the tensor.",
    )


def test_indices_are_within_the_size():
    expect(
        of("out of bounds", None, told.access(6, operator="aten::take", argument="index")),
        "Give aten::take at line 6 of /nowhere/train.py as `index` only what is within the "
        "tensor's size.",
    )


@pytest.mark.parametrize(
    ("begin", "end", "where"),
    [
        (4096, 4100, "bytes 4096 to 4099, behind its 4096"),
        (-4, 0, "bytes 4 to 1 in front of it"),
        (16, 24, "bytes 16 to 23 of 4096"),
    ],
)
def test_bytes_are_counted_from_the_begin(begin, end, where):
    text = of("out of bounds", None, told.write(6), bytes=(begin, end)).text()
    assert f"allocated at /nowhere/train.py:1; {where}\n" in text
    assert "\n  access   /nowhere/train.py:6: aten::add_ writes" in text


def test_a_tensor_is_let_go():
    leak = told.access(1, operator="", mode="", stack=[])
    expect(
        of("leak", None, leak),
        "Let go of the tensor of line 1 of /nowhere/train.py before the program ends.",
    )


# ---- summaries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "suppressed", "processes", "expected"),
    [
        ([], 0, 0, "openreg sanitizer: nothing found\n"),
        ([], 2, 0, "openreg sanitizer: nothing found; 2 suppressed\n"),
        ([("race", 1)], 0, 1, "\nopenreg sanitizer: 1 finding (1 race)\n"),
        (
            [("leak", 1), ("race", 3), ("race", 2)],
            1,
            2,
            "\nopenreg sanitizer: 3 findings (2 race, 1 leak) in 2 processes, 6 times in all; "
            "1 suppressed\n",
        ),
    ],
)
def test_a_summary_counts(counts, suppressed, processes, expected):
    assert text.summary(counts, suppressed, processes) == expected
