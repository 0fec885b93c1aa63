"""The workspaces of NVIDIA's libraries are a setting (OPENREG_LIBRARY_WORKSPACES)."""

import grids
import pytest
from record_plans import DEVICES, answer_of
from torch_openreg import variables
from torch_openreg.plans import ask, builtin, libraries
from torch_openreg.plans.client import DEFAULT_SETTINGS, Client
from torch_openreg.plans.text import parse_call

MIB = 1 << 20
WITHOUT_CUDNN = (*DEFAULT_SETTINGS[:-1], False)
CONVOLUTION = "[1,1] [1,1] [1,1] False [0,0] 1"
FORMATS = {  # of a tensor of 8 x 16 x 9 x 11
    "contiguous": "8,16,9,11",
    "channels_last": "8,16,9,11;1584,1,176,16",
    "strided": "8,16,9,11;3168,99,11,1",
}
FILTERS = {"contiguous": "32,16,3,3", "channels_last": "32,16,3,3;144,1,48,16"}


@pytest.fixture(scope="module")
def planner(build):
    """Yield a client whose libraries take workspaces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(libraries.VARIABLE, "cudnn:64M,cufft:3M,cusolver:512K")
        libraries.workspaces.cache_clear()
        made = Client(["h100"])
        yield made
        made.end()
    libraries.workspaces.cache_clear()


def plan_of(planner, operator, text, settings=DEFAULT_SETTINGS):
    given, named = parse_call(text.split())
    return planner.ask((operator, given, named, settings, "h100"))


def compute(operator, text, settings=DEFAULT_SETTINGS):
    given, named = parse_call(text.split())
    device = DEVICES["h100"]._replace(cudnn_workspace=64 * MIB)
    return builtin.compute(operator, given, named, settings, device)


def convolutions():
    yield from grids.convolutions()
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        for x in FORMATS.values():
            for weight in FILTERS.values():
                yield "aten::convolution", f"{dtype}[{x}] {dtype}[{weight}] None {CONVOLUTION}"
                for y in ("8,32,9,11", "8,32,9,11;3168,1,352,32"):
                    yield (
                        "aten::convolution_backward",
                        f"{dtype}[{y}] {dtype}[{x}] {dtype}[{weight}] [32] {CONVOLUTION} "
                        "[True,True,True]",
                    )
    for x in (FORMATS["contiguous"], FORMATS["channels_last"]):
        for weight in ("16,1,3,3", "32,1,3,3"):
            depthwise = CONVOLUTION.removesuffix("1") + "16"
            yield "aten::convolution", f"float32[{x}] float32[{weight}] None {depthwise}"


def test_a_convolution_takes_the_workspace_of_cudnn(planner):
    text = f"float32[8,16,9,11] float32[32,16,3,3] float32[32] {CONVOLUTION}"
    result = 8 * 32 * 9 * 11 * 4
    assert plan_of(planner, "aten::convolution", text).events == (result, 64 * MIB, -2)
    columns = 16 * 9 * 9 * 11 * 4
    without = plan_of(planner, "aten::convolution", text, WITHOUT_CUDNN)
    assert without.events == (result, columns, -2)


def test_builtin_plans_are_those_of_the_planner(planner):
    count = known = 0
    for operator, text in convolutions():
        expected = plan_of(planner, operator, text)
        if expected is None or expected.error is not None:
            continue
        count += 1
        found = compute(operator, text)
        if found is not None:
            known += 1
            assert answer_of(found) == answer_of(expected), f"{operator} {text}"
    assert count > 300
    assert known == count


@pytest.mark.parametrize(
    ("operator", "text", "size"),
    [
        ("aten::_fft_r2c", "float32[64,1000] [1] 0 True", 3 * MIB),
        ("aten::linalg_cholesky_ex", "float32[64,64]", MIB // 2),
    ],
)
def test_other_libraries_take_their_workspaces(planner, operator, text, size):
    plan = plan_of(planner, operator, text)
    assert size in plan.transient


def test_settings():
    assert libraries.parse("") == {}
    assert libraries.parse("cufft:3,cudnn:auto") == {"cufft": 3, "cudnn": libraries.ESTIMATED}
    assert libraries.as_text({"cufft": 3, "cudnn": libraries.ESTIMATED}) == "cufft:3,cudnn:0"
    assert libraries.parse("cudnn:64M,cufft:3,cusparse:1G,cusolver:0") == {
        **{"cudnn": 64 * MIB, "cufft": 3},
        **{"cusparse": 1024 * MIB, "cusolver": 0},
    }


@pytest.mark.parametrize(
    "text",
    [
        *("cudnn", "cudnn:", "cublas:1M", "cudnn:-1", "cudnn:1T", "cudnn:1M,cudnn:2M"),
        *("cudnn:auto,cudnn:1M", "cufft:auto"),
    ],
)
def test_a_wrong_setting_is_refused(text):
    with pytest.raises(ValueError, match=f"openreg: {libraries.VARIABLE}={text}: expected a list"):
        libraries.parse(text)


def test_a_program_with_a_wrong_setting_is_refused(python):
    settings = {"OPENREG_MEMORY_PLANS": "builtin", libraries.VARIABLE: "cudnn"}
    result = python("import torch_openreg", expect=1, fresh=True, **settings)
    assert f"ImportError: {variables.rejection(libraries.VARIABLE, 'cudnn')}" in result.stderr


CONVOLVE = """
import torch
from device import DEVICE

def peak():
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    y = torch.conv2d(x, weight, padding=1)
    return torch.accelerator.max_memory_allocated() - before - y.nbytes

x = torch.ones(8, 16, 9, 11, device=DEVICE)
weight = torch.ones(32, 16, 3, 3, device=DEVICE)
print(peak())
torch.backends.cudnn.enabled = False
print(peak())
"""


COPIES = 4 * (8 * 16 + 8 * 32) * 9 * 11 + 4 * 32 * 16 * 9 + 16


@pytest.mark.parametrize(("size", "expected"), [("64M", 64 * MIB), ("auto", COPIES)])
def test_launches_take_the_workspace_of_cudnn(python, size, expected):
    settings = {"OPENREG_MEMORY_PLANS": "builtin", libraries.VARIABLE: f"cudnn:{size}"}
    found = python(CONVOLVE, fresh=True, **settings).stdout.split()
    columns = 16 * 9 * 9 * 11 * 4
    assert found == [str(-(-each // 512) * 512) for each in (expected, columns)]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (f"float32[8,16,9,11] float32[32,16,3,3] None {CONVOLUTION}", COPIES),
        (
            f"float32[{FORMATS['channels_last']}] float32[{FILTERS['channels_last']}] None "
            f"{CONVOLUTION}",
            0,
        ),
        (f"bfloat16[2,3,8,8] bfloat16[4,3,3,3] None {CONVOLUTION}", 16 * (128 + 128 + 36 + 1)),
        ("float32[2,8,4,4] float32[4,8,1,1] None [1,1] [0,0] [1,1] False [0,0] 1", 0),
        ("float32[2,8,5,5] float32[4,8,1,1] None [1,1] [0,0] [1,1] False [0,0] 1", 2416),
        ("float32[2,8,4,4] float32[4,8,1,1] None [2,2] [0,0] [1,1] False [0,0] 1", 1168),
        (f"float32[2,1,8,8] float32[4,1,3,3] None {CONVOLUTION}", 0),
    ],
    ids=["filters", "channels_last", "padded", "product", "unaligned", "strided", "one channel"],
)
def test_estimates_are_the_copies_of_the_tensors(text, size):
    given, named = parse_call(text.split())
    device = DEVICES["h100"]._replace(cudnn_workspace=libraries.ESTIMATED)
    plan = builtin.compute("aten::convolution", given, named, DEFAULT_SETTINGS, device)
    assert sum(plan.transient) == size


def test_a_depthwise_result_has_the_channels_of_its_weight():
    groups = CONVOLUTION.removesuffix("1") + "16"
    text = f"float32[{FORMATS['channels_last']}] float32[32,1,3,3] None {groups}"
    assert compute("aten::convolution", text).events[0] == 8 * 32 * 9 * 11 * 4


PRODUCT = "[1,1] [0,0] [1,1] False [0,0]"


@pytest.mark.parametrize(
    ("sizes", "options", "size"),
    [
        # Sixteen partial sums; two, because more have over 8 MiB.
        (("8,32,9,11", "8,16,9,11", "32,16,3,3"), CONVOLUTION, COPIES + 16 * 4 * 32 * 16 * 9),
        (
            ("1,640,4,4", "1,160,4,4", "640,160,3,3"),
            CONVOLUTION,
            4 * (160 + 640) * 16 + 3 * 4 * 640 * 160 * 9 + 16,
        ),
        (("2,4,4,4", "2,8,4,4", "4,8,1,1"), f"{PRODUCT} 1", 64 * 4 * 4 * 8),
        (("1,1024,4,4", "1,512,4,4", "1024,512,1,1"), f"{PRODUCT} 1", 0),
        (("2,8,4,4", "2,8,4,4", "8,1,1,1"), f"{PRODUCT} 8", 0),
    ],
    ids=["sums", "few sums", "product", "large product", "one channel"],
)
def test_estimates_of_the_gradient_of_a_weight_have_its_partial_sums(sizes, options, size):
    tensors = [f"float32[{each}]" for each in sizes]
    given, named = parse_call([*tensors, "None", *options.split(), "[False,True,False]"])
    device = DEVICES["h100"]._replace(cudnn_workspace=libraries.ESTIMATED)
    plan = builtin.compute("aten::convolution_backward", given, named, DEFAULT_SETTINGS, device)
    assert sum(plan.transient) == size


@pytest.mark.parametrize(
    ("source", "has_build", "is_estimated", "order"),
    [
        ("auto", True, False, ("planner", "builtin")),
        ("auto", True, True, ("builtin", "planner")),
        ("auto", False, False, ("builtin",)),
        ("planner", True, True, ("planner",)),
    ],
)
def test_builtin_plans_come_first_where_they_estimate(
    monkeypatch, source, has_build, is_estimated, order
):
    monkeypatch.setattr(ask, "_can_start_planner", lambda: has_build)
    assert ask._order(source, is_estimated) == order
