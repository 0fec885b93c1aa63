"""Plans are what a GPU did: test/fixtures/operators-*, made by tools/record_cuda_operators.py.

The GPU ran PyTorch 2.11.0. ``CHANGED`` has the operators whose code for CUDA is another one since.
"""

import collections

import pytest
from recorded_calls import RECORDS, as_signature, load_answers, settings_of
from torch_openreg._releases import RELEASE
from torch_openreg.plans import builtin
from torch_openreg.plans.client import Client

H100 = builtin.Device(132, 2048, 90)

# They sort, reduce or check in another way since, and so take other blocks.
CHANGED = {
    *("any", "any.dims", "all.dim", "histc", "multinomial", "native_group_norm"),
    *("embedding_dense_backward", "embedding_renorm_", "cholesky_inverse", "cholesky_solve"),
    *("index_put", "index_put_", "_unsafe_masked_index_put_accumulate"),
}
# NVIDIA's libraries take workspaces, whose sizes are settings.
OF_LIBRARIES = {
    *("convolution", "convolution_backward", "batch_norm_backward", "cudnn_batch_norm_backward"),
    *("cudnn_grid_sampler", "cudnn_grid_sampler_backward", "_fft_c2r", "_fft_c2c", "_fft_r2c"),
    *("ormqr", "geqrf", "cholesky", "triangular_solve", "_cudnn_rnn", "_cudnn_rnn_backward"),
    "_cudnn_rnn_flatten_weight",
    *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"),
}
VALUES_DECIDE = {"linalg_matrix_exp"}  # and the planner does not notice it
# Of the calls that a source has a plan for and that are neither of these.
LEAST = {"builtin": 10_300, "planner": 50_000}

pytestmark = pytest.mark.skipif(RELEASE != (2, 13), reason="the exceptions are those of 2.13")


def calls(path):
    """Yield the question of each call without a library, and the events on the GPU."""
    for answer in load_answers(path):
        name = answer["operator"].removeprefix("aten::")
        is_linear = "linalg" in name
        if is_linear or name in CHANGED | OF_LIBRARIES | VALUES_DECIDE:
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
