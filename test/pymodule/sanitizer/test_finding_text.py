"""The text of a finding: names, lines, and a remedy."""

import fake_findings as fake
import pytest
from torch_openreg.sanitizer import text
from torch_openreg.sanitizer.finding import from_dict
from torch_openreg.sanitizer.remedies import remedy

from device import DEVICE

API = f"torch.{DEVICE}"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program to the working folder, and return its path."""

    def write(*lines):
        file = tmp_path / "train.py"
        file.write_text("".join(f"{line}\n" for line in lines))
        return str(file)

    monkeypatch.chdir(tmp_path)
    return write


def of(kind, first, second, **changes):
    return from_dict(fake.finding(kind, first, second, **changes))


def event(recorded, waited, early):
    recorded, waited = fake.stack(recorded), fake.stack(waited)
    return {"recorded": recorded, "waited": waited, "waited_early": early}


# ---- the block -----------------------------------------------------------------------------------


def test_a_race_in_full(program):
    file = program("x = torch.ones(1000)", "x.add_(1)", "with stream(side):", "    y = x * 2")
    block = fake.block(file=file)
    found = of(
        "race",
        fake.write(2, stack=fake.stack(2, file=file), block=block),
        fake.access(4, stack=fake.stack(4, "step", file), block=block),
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
    first = fake.access(2, stack=fake.stack(2, file=file), block=fake.block(1, 3, file=file))
    second = fake.write(4, shape=[500], block=fake.block(4, file=file))
    lines = of("use after free", first, second).text().splitlines()
    assert lines[1].startswith(f"  tensor   float32 [1000] on {DEVICE}:0, allocated at train.py:1")
    assert lines[1].endswith(", freed at train.py:3")
    assert f"  reused   float32 [500] on {DEVICE}:0, allocated at train.py:4" in lines[4]


def test_a_read_has_one_access():
    lines = of("uninitialised read", None, fake.access(7)).text().splitlines()
    assert lines[2] == "  read     /nowhere/train.py:7: aten::mul reads `self` on stream 3"
    only_memory = fake.access(1, operator="", mode="", stack=[])
    assert of("uninitialised read", only_memory, fake.access(7)).text().splitlines()[2] == lines[2]


def test_a_backward_names_the_line_of_its_forward():
    forward = fake.write(2, stack=[], forward=fake.stack(5, "forward"))
    lines = of("race", forward, fake.access(9)).text().splitlines()
    assert lines[2] == (
        "  first    /nowhere/train.py:5 in forward: backward of this line: "
        "aten::add_ writes `self` on the default stream"
    )
    both = fake.write(2, stack=fake.stack(8), forward=fake.stack(5))
    assert (
        "/nowhere/train.py:5: the forward of this backward"
        in of("race", both, fake.access(9)).text()
    )


def test_a_view_has_its_own_shape():
    half = fake.write(2, shape=[500])
    assert "`self`, float32 [500], on the default" in of("race", half, fake.access(3)).text()
    assert "`self` on the default" in from_dict(fake.race()).text()


def test_a_result_has_no_name():
    product = fake.write(2, operator="aten::mm", argument="")
    assert "2: aten::mm writes its result on the" in of("race", product, fake.access(3)).text()


def test_bytes_are_shown_for_a_part_of_the_block():
    whole = of("race", fake.write(2), fake.access(3), bytes=(0, fake.BLOCK_BYTES))
    assert "bytes" not in whole.text()
    assert (
        "; bytes 8 to 15 of 4096\n"
        in of("race", fake.write(2), fake.access(3), bytes=(8, 16)).text()
    )


def test_unknown_parts_are_left_out():
    nowhere = fake.write(2, stack=[], operator="", argument="")
    found = of("race", nowhere, fake.access(3, block=None))
    assert "first    unknown location: writes on the default stream\n" in found.text()
    assert "allocated" not in found.text()


def test_the_host_is_shown_as_the_host():
    host = fake.write(4, operator="", argument="", stream=-1)
    assert "train.py:4: writes by the host\n" in of("host access", fake.access(3), host).text()


def test_an_event_is_shown():
    found = of("unordered event", fake.write(2), fake.access(9), event=event(5, 4, True))
    assert "  recorded /nowhere/train.py:5\n" in found.text()
    assert "  waited   /nowhere/train.py:4: before it was recorded\n" in found.text()
    again = of("unordered event", fake.write(2), fake.access(9), event=event(5, 8, False))
    assert "train.py:8: when it was recorded again\n" in again.text()


def test_whole_stacks_are_shown_on_request():
    calls = [*fake.stack(3, "step"), *fake.stack(9, "main"), *fake.stack(11)]
    found = of("race", fake.write(2), fake.access(3, stack=calls))
    assert "main" not in found.text()
    shown = text.block(found, whole=True)
    assert "           called at /nowhere/train.py:9 in main\n" in shown
    assert "           called at /nowhere/train.py:11\n" in shown


def test_files_of_other_folders_have_their_whole_path(program):
    program()
    assert "first    /nowhere/train.py:2" in from_dict(fake.race()).text()


# ---- remedies ------------------------------------------------------------------------------------


def expect(found, sentence):
    assert remedy(found) == sentence.replace("torch.gpu", API)


def test_a_stream_waits():
    expect(
        of("race", fake.access(4), fake.write(6)),
        "Call torch.gpu.current_stream().wait_stream(<stream of line 4>) before line 6 of "
        "/nowhere/train.py.",
    )


def test_default_streams_of_other_devices_have_their_number():
    expect(
        of("race", fake.write(4, stream_device=1), fake.access(6)),
        "Call torch.gpu.current_stream().wait_stream(torch.gpu.default_stream(1)) before line 6 of "
        "/nowhere/train.py.",
    )


def test_lines_of_two_files_are_both_named_with_them():
    model = fake.access(4, stack=fake.stack(4, file="/nowhere/model.py"))
    expect(
        of("race", model, fake.write(6)),
        "Call torch.gpu.current_stream().wait_stream(<stream of line 4 of /nowhere/model.py>) "
        "before line 6 of /nowhere/train.py.",
    )


def test_a_backward_waits():
    backward = fake.access(6, stack=[], forward=fake.stack(6))
    expect(
        of("race", fake.write(4), backward),
        "Call torch.gpu.current_stream().wait_stream(torch.gpu.default_stream()) before the "
        "backward pass of line 6 of /nowhere/train.py.",
    )


def test_the_host_waits():
    host = fake.write(6, stream=-1)
    expect(
        of("host access", fake.access(4), host),
        "Call <stream of line 4>.synchronize() before line 6 of /nowhere/train.py.",
    )


def test_a_tensor_is_recorded_by_its_name(program):
    file = program("x = torch.ones(1000)", "total = x.sum()")
    first = fake.access(2, stack=fake.stack(2, file=file), block=fake.block(1, file=file))
    expect(
        of("use after free", first, fake.write(4)),
        "Call x.record_stream(torch.gpu.current_stream()) after line 2 of train.py.",
    )


def test_a_tensor_of_another_function_is_named_by_its_line(program):
    file = program("x = torch.ones(1000)", "total = x.sum()")
    inner = fake.stack(2, "consume", file)
    first = fake.access(2, stack=inner, block=fake.block(1, file=file))
    expect(
        of("use after free", first, fake.write(4)),
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
def test_only_tensors_are_named(program, line):
    file = program(line, "total = x.sum()")
    first = fake.access(2, stack=fake.stack(2, file=file), block=fake.block(1, file=file))
    assert "on the tensor of line 1 after" in remedy(of("use after free", first, fake.write(4)))


def test_remedy_for_an_uninitialised_read(program):
    file = program("x = torch.empty(1000)", "total = x.sum()")
    read = fake.access(2, stack=fake.stack(2, file=file), block=fake.block(1, file=file))
    expect(
        of("uninitialised read", None, read),
        "Before line 2 of train.py, write all elements of x that are read there, or allocate it "
        "with zeros at line 1.",
    )


def test_remedy_for_an_early_wait():
    expect(
        of("unordered event", fake.write(2), fake.access(9), event=event(5, 4, True)),
        "Wait for the event after line 5 records it, not at line 4 of /nowhere/train.py.",
    )


def test_remedy_for_a_reused_event():
    expect(
        of("unordered event", fake.write(2), fake.access(9), event=event(5, 8, False)),
        "Record a separate event at line 5: the event was recorded again before line 8 of "
        "/nowhere/train.py waited for it.",
    )


def test_a_collective_is_waited_for():
    reduce = fake.write(4, operator="nccl:all_reduce")
    expect(
        of("never waited", reduce, fake.access(6)),
        "Before line 6 of /nowhere/train.py, call wait() on the work that all_reduce returned at "
        "line 4.",
    )


def test_an_operator_stays_inside():
    expect(
        of("out of bounds", None, fake.write(6, operator="mine::fill")),
        "Make mine::fill at line 6 of /nowhere/train.py access only memory inside the tensor.",
    )


def test_indices_are_within_the_size():
    expect(
        of("out of bounds", None, fake.access(6, operator="aten::take", argument="index")),
        "Pass aten::take at line 6 of /nowhere/train.py only values of `index` within the "
        "tensor's size.",
    )


@pytest.mark.parametrize(
    ("begin", "end", "where"),
    [
        (4096, 4100, "bytes 4096 to 4099, beyond its end at 4096"),
        (-4, 0, "bytes 4 to 1 before its start"),
        (16, 24, "bytes 16 to 23 of 4096"),
    ],
)
def test_bytes_are_counted_from_the_begin(begin, end, where):
    text = of("out of bounds", None, fake.write(6), bytes=(begin, end)).text()
    assert f"allocated at /nowhere/train.py:1; {where}\n" in text
    assert "\n  access   /nowhere/train.py:6: aten::add_ writes" in text


def test_a_tensor_is_released():
    leak = fake.access(1, operator="", mode="", stack=[])
    expect(
        of("leak", None, leak),
        "Release the tensor allocated at line 1 of /nowhere/train.py before the program ends.",
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
            "\nopenreg sanitizer: 3 findings (2 race, 1 leak) in 2 processes, 6 occurrences; "
            "1 suppressed\n",
        ),
    ],
)
def test_a_summary_counts(counts, suppressed, processes, expected):
    assert text.summary(counts, suppressed, processes) == expected
