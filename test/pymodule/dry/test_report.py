"""The report of a run: peaks, groups, steps, lines and the request that ran out of memory."""

import json
import re
from html.parser import HTMLParser

import pytest
from reported_programs import FINISH, PRELUDE, line_of
from torch_openreg.dry.report.model import GROUPS, Report

TRAIN = (
    PRELUDE
    + """
model = Model().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters())
train(model, optimizer, 3)
stats = memory.memory_stats(0)
print([stats[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved")])
"""
)


@pytest.fixture
def reported(python):
    """Run a program and return its report, and what it printed before."""

    def run(program, **options):
        *before, last = python(program + FINISH, **options).stdout.splitlines()
        return Report.from_json(last), before

    return run


@pytest.fixture
def training(reported):
    report, (peaks,) = reported(TRAIN)
    (rank,) = report.ranks
    (device,) = rank.devices
    return report, device, json.loads(peaks)


def sizes(groups):
    return {group.name: group.bytes for group in groups}


def test_peaks_are_those_of_the_statistics(training):
    _, device, (allocated, reserved) = training
    assert device.peak_allocated.bytes == allocated
    assert device.peak_reserved.bytes == reserved


def test_peaks_of_expandable_segments_and_of_other_streams(reported):
    program = (
        PRELUDE
        + """
side = module.Stream()
for size in (3, 30, 5, 50):
    x = torch.ones(size << 18, device=DEVICE)
    with module.stream(side):
        y = 2 * x
    x.record_stream(side)
    del x
memory.empty_cache()
stats = memory.memory_stats(0)
print(*[stats[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved")])
"""
    )
    report, (peaks,) = reported(program, PYTORCH_ALLOC_CONF="expandable_segments:True")
    device = report.ranks[0].devices[0]
    assert [device.peak_allocated.bytes, device.peak_reserved.bytes] == list(
        map(int, peaks.split())
    )


def test_the_groups_are_the_peak_to_the_byte(training):
    _, device, (allocated, _) = training
    assert [group.name for group in device.groups] == list(GROUPS)
    assert sum(group.bytes for group in device.groups) == allocated
    for group in device.groups:
        assert sum(owner.bytes for owner in group.owners) == group.bytes
        assert sum(owner.blocks for owner in group.owners) == group.blocks


def test_parameters_and_optimizer_state_have_their_sizes(training):
    _, device, _ = training
    found = sizes(device.groups)
    blocks = 3 * (2 * 256 * 1024 * 4 + 1024 * 4 + 256 * 4)
    assert found["parameters"] == blocks
    assert 2 * blocks <= found["optimizer state"] <= 2 * blocks + 512 * 12


def test_activations_are_what_the_backward_needs(training):
    """The peak is at the begin of a backward: each block has kept the results of two operators."""
    _, device, _ = training
    assert device.peak_allocated.step in (2, 3)
    relu = 512 * 1024 * 4
    found = sizes(device.groups)["activations"]
    assert 3 * relu <= found <= 3 * (2 * relu + 512 * 256 * 4) + 2 * 512 * 256 * 4


def test_owners_have_names_modules_and_lines(training):
    _, device, _ = training
    groups = {group.name: group for group in device.groups}
    names = {owner.name for owner in groups["parameters"].owners}
    assert names == {
        f"Model.layers.*.{part}.{kind}" for part in ("up", "down") for kind in ("weight", "bias")
    }
    states = {owner.name.split()[1] for owner in groups["optimizer state"].owners}
    assert {"exp_avg", "exp_avg_sq"} <= states
    lines = {(owner.site.module, owner.site.line) for owner in groups["activations"].owners}
    assert ("Model.layers.*", line_of(TRAIN, "line of the block")) in lines


def test_steps_are_those_of_the_optimizer(training):
    _, device, _ = training
    assert [step.number for step in device.steps] == [1, 2, 3]
    assert max(step.peak_allocated for step in device.steps) == device.peak_allocated.bytes
    assert device.steps[0].peak_allocated < device.steps[1].peak_allocated  # optimizer state
    assert device.steps[1].requests == device.steps[2].requests


def test_an_optimizer_that_steps_in_parts_makes_one_step(reported):
    """DeepSpeed sets the parameters of an optimizer before each call."""
    program = (
        PRELUDE
        + """
model = Model().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters())
group = optimizer.param_groups[0]
parameters = group["params"]
for _ in range(2):
    model(torch.ones(512, 256, device=DEVICE)).square().mean().backward()
    for part in (parameters[:4], parameters[4:8], parameters[8:]):
        group["params"] = part
        optimizer.step()
    group["params"] = parameters
    optimizer.zero_grad()
"""
    )
    report, _ = reported(program)
    (device,) = report.ranks[0].devices
    assert [step.number for step in device.steps] == [1, 2]


def test_the_series_has_the_peaks(training):
    _, device, (allocated, reserved) = training
    assert max(point.allocated for point in device.series) == allocated
    assert max(point.reserved for point in device.series) == reserved


def test_a_peak_in_a_backward_names_the_backward_and_its_forward(reported):
    program = (
        PRELUDE
        + """
weight = torch.ones(1024, 1024, device=DEVICE, requires_grad=True)
y = weight.exp()  # line of the forward
y.sum().backward()  # line of the call
"""
    )
    report, _ = reported(program)
    peak = report.ranks[0].devices[0].peak_allocated
    assert peak.phase == "backward"
    assert peak.site.line == line_of(program, "line of the call")
    assert peak.site.forward_line == line_of(program, "line of the forward")


OUT_OF_MEMORY = (
    PRELUDE
    + """
model = Model().to(DEVICE)
optimizer = torch.optim.SGD(model.parameters())
train(model, optimizer, 1)
kept = model(torch.ones(512, 256, device=DEVICE))
total = module.mem_get_info(0)[1]
try:
    torch.empty(total, dtype=torch.uint8, device=DEVICE)  # line of the request
except torch.OutOfMemoryError:
    pass
print(memory.memory_allocated(), memory.memory_reserved(), total, module.mem_get_info(0)[0])
"""
)


def test_a_request_that_fails_says_how_much_was_missing_and_what_held_the_memory(reported):
    report, (numbers,) = reported(OUT_OF_MEMORY, OPENREG_DEVICE_MEMORY="1G")
    allocated, reserved, total, free = map(int, numbers.split())
    (request,) = report.ranks[0].devices[0].out_of_memory
    assert request.requested == total
    assert request.missing == total - free
    assert request.free == free
    assert (request.allocated, request.cached) == (allocated, reserved - allocated)
    assert sum(group.bytes for group in request.groups) == allocated
    assert request.site.line == line_of(OUT_OF_MEMORY, "line of the request")
    assert request.step == 2
    assert sizes(request.groups)["activations"] > 0


def test_a_program_may_use_the_history_itself(reported):
    program = (
        PRELUDE
        + """
memory._record_memory_history(stacks="python")
x = torch.ones(1024, device=DEVICE)
frames = [
    block["frames"]
    for segment in memory._snapshot()["segments"]
    for block in segment["blocks"]
    if block["address"] == x.untyped_storage().data_ptr()
]
print(frames[0][0]["line"])
print(len(memory._snapshot()["device_traces"][0]))
memory._record_memory_history(None)
y = torch.ones(1024, device=DEVICE)
print(len(memory._snapshot()["device_traces"][0]))
"""
    )
    report, (line, events, after) = reported(program)
    assert int(line) == line_of(program, "x = torch.ones(1024")
    assert int(events) > 0
    assert int(after) == 0
    assert report.ranks[0].devices[0].peak_allocated.bytes == 2 * 4096


def test_a_peak_survives_that_the_program_resets_the_statistics(reported):
    program = (
        PRELUDE
        + """
x = torch.ones(1 << 20, device=DEVICE)
del x
memory.reset_peak_memory_stats(0)
"""
    )
    report, _ = reported(program)
    assert report.ranks[0].devices[0].peak_allocated.bytes == 4 << 20


def test_repeated_forwards_are_activations(reported):
    program = (
        PRELUDE
        + """
from torch.utils.checkpoint import checkpoint
model = Model().to(DEVICE)
x = torch.ones(4096, 256, device=DEVICE, requires_grad=True)
checkpoint(model, x, use_reentrant=False).sum().backward()
"""
    )
    report, _ = reported(program)
    device = report.ranks[0].devices[0]
    assert device.peak_allocated.phase == "backward"
    assert sizes(device.groups)["activations"] >= 3 * 4096 * 1024 * 4


def test_inference_has_no_gradients(reported):
    program = (
        PRELUDE
        + """
model = Model().to(DEVICE)
with torch.no_grad():
    model(torch.ones(512, 256, device=DEVICE))
"""
    )
    report, _ = reported(program)
    found = sizes(report.ranks[0].devices[0].groups)
    assert found["gradients"] == found["optimizer state"] == 0
    assert found["parameters"] == 3 * (2 * 256 * 1024 * 4 + 1024 * 4 + 256 * 4)
    assert found["other"] == 512 * 256 * 4  # the batch


def test_parameters_without_a_module_are_those_of_the_optimizer(reported):
    program = (
        PRELUDE
        + """
weight = torch.ones(1024, device=DEVICE, requires_grad=True)
(2 * weight).sum().backward()
torch.optim.SGD([weight], foreach=False).step()
"""
    )
    report, _ = reported(program)
    groups = {group.name: group for group in report.ranks[0].devices[0].groups}
    assert [owner.name for owner in groups["parameters"].owners] == ["SGD.params.*"]
    assert sizes(groups.values())["parameters"] == 4096


def test_the_hooks_cause_no_graph_breaks(reported):
    program = (
        PRELUDE
        + """
from torch._dynamo.utils import counters
model = torch.compile(Model(), backend="eager").to(DEVICE)
train(model, torch.optim.SGD(model.parameters()), 2)
print(dict(counters["graph_break"]), counters["stats"]["unique_graphs"])
"""
    )
    report, (line,) = reported(program)
    assert line == "{} 1"
    assert [step.number for step in report.ranks[0].devices[0].steps] == [1, 2]


def test_two_devices_are_reported_each(reported):
    program = (
        PRELUDE
        + """
x = torch.ones(1024, device=f"{DEVICE}:0")
y = torch.ones(4096, device=f"{DEVICE}:1")
"""
    )
    report, _ = reported(program)
    assert [(device.index, device.peak_allocated.bytes) for device in report.ranks[0].devices] == [
        (0, 4096),
        (1, 16384),
    ]


# ---- what is written -----------------------------------------------------------------------------


def test_json_makes_the_same_report_again(training):
    report, _, _ = training
    assert Report.from_json(report.to_json()) == report


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 99}', '{"version": 1, "ranks": 3}'])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match="report|version"):
        Report.from_json(text)


def test_the_text_is_short_and_begins_with_the_answer(training):
    report, device, _ = training
    lines = report.text().splitlines()
    assert re.fullmatch(r"openreg report: fits: device 0 needs .* of .*; .* are left", lines[0])
    assert len(lines) <= 60
    assert max(map(len, lines[1:])) <= 110
    assert any("parameters" in line for line in lines)


class Tags(HTMLParser):
    """Checks that tags are closed in order, and collects addresses of other files."""

    VOID = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.links, self.seen = [], [], set()

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing(training):
    report, _, _ = training
    tags = Tags()
    tags.feed(report.to_html())
    assert tags.open == []
    assert tags.links == []
    assert {"svg", "path", "table"} <= tags.seen
    assert "url(" not in report.to_html()
