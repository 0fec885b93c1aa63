"""Plans are what a GPU did: test/fixtures/operators-*, made by tools/record_cuda_operators.py."""

import collections

import pytest
from peaks import peak_of
from recorded_calls import RECORDS, as_signature, load_answers, settings_of
from torch_openreg._releases import RELEASE
from torch_openreg.plans import builtin, libraries
from torch_openreg.plans.client import Client

MIB = 1 << 20
H100 = builtin.Device(132, 2048, 90)

# NVIDIA's libraries take workspaces, whose sizes are settings. So do operators of linear algebra
# and of cuDNN.
OF_LIBRARIES = {"_fft_c2r", "_fft_c2c", "_fft_r2c", "ormqr", "geqrf", "cholesky"}
WITH_CUDNN = {"convolution", "convolution_backward", "batch_norm_backward"}
VALUES_DECIDE = {"linalg_matrix_exp"}  # and the planner does not notice it
# Of the calls that a source has a plan for and that are neither of these.
LEAST = {"builtin": 12_900, "planner": 61_000}

pytestmark = pytest.mark.skipif(RELEASE != (2, 13), reason="the GPU ran 2.13")


def calls(path):
    """Yield the question of each call without a library, and the events on the GPU."""
    for answer in load_answers(path):
        name = answer["operator"].removeprefix("aten::")
        is_linear = "linalg" in name and name != "linalg_vector_norm"
        if is_linear or "cudnn" in name or name in OF_LIBRARIES | VALUES_DECIDE:
            continue
        if name in WITH_CUDNN and answer["settings"][-1]:
            continue
        yield (
            answer["operator"],
            [as_signature(each) for each in answer["arguments"]],
            {key: as_signature(each) for key, each in answer["keywords"].items()},
            settings_of(answer),
            tuple(answer["events"]),
        )


@pytest.fixture
def planner(build):
    made = Client(["h100"])
    yield made
    made.end()


def compare(path, ask, source):
    same, different = 0, collections.Counter()
    for operator, given, named, settings, events in calls(path):
        plan = ask(operator, given, named, settings)
        if plan is None:
            continue
        if plan.error is None and tuple(plan.events) == events:
            same += 1
        else:
            different[operator] += 1
    assert not different
    assert same >= LEAST[source]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_builtin_plans_are_what_the_gpu_did(path):
    compare(path, lambda *question: builtin.plan(*question, H100), "builtin")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_plans_of_the_planner_are_what_the_gpu_did(planner, path):
    compare(path, lambda *question: planner.ask((*question, "h100")), "planner")


@pytest.mark.parametrize(
    ("operator", "least"),
    [("aten::convolution", 0.8), ("aten::convolution_backward", 0.6)],
)
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_estimates_of_cudnn_are_near_what_the_gpu_took(path, operator, least):
    device = H100._replace(cudnn_workspace=libraries.ESTIMATED)
    ratios = []
    for answer in load_answers(path):
        on_gpu = peak_of(answer["events"])
        uses_cudnn = answer["settings"][-1]
        if answer["operator"] != operator or not uses_cudnn or on_gpu < 4 * MIB:
            continue
        given = [as_signature(each) for each in answer["arguments"]]
        plan = builtin.plan(operator, given, {}, (*settings_of(answer)[:-1], True), device)
        if plan is not None:
            ratios.append(peak_of(plan.events) / on_gpu)
    assert len(ratios) >= 300
    near = [ratio for ratio in ratios if 0.9 <= ratio <= 1.1]
    assert len(near) >= least * len(ratios)
