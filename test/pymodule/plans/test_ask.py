"""Plans of calls on this process's tensors: what CUDA returns, compared with openreg's results."""

import collections

import pytest
import torch
from torch_openreg.plans import ask, launches

from device import DEVICE


def _random(*sizes, dtype=torch.float32):
    return torch.ones(*sizes, dtype=dtype, device=DEVICE)


CALLS = {
    "aten::add.Tensor": lambda: (_random(4, 8).t(), 2),
    "aten::mm": lambda: (_random(4, 8), _random(8, 2)),
    "aten::sort": lambda: (_random(4, 8).t(), 0),
    "aten::view": lambda: (_random(4, 8), [8, 4]),
    "aten::split.Tensor": lambda: (_random(9, 8), 4),
    "aten::_foreach_mul.Scalar": lambda: ([_random(4), _random(2, 2)], 2.0),
    "aten::native_layer_norm": lambda: (_random(4, 8), [8], None, None, 1e-5),
    "aten::max_pool2d_with_indices": lambda: (_random(1, 2, 8, 8), [2, 2]),
    "aten::_to_copy": lambda: (_random(4, 8),),
    "aten::index.Tensor": lambda: (_random(4, 8), [_random(3, dtype=torch.int64)]),
}


def _compare(planned, result):
    if isinstance(result, (list, tuple)):
        assert len(planned) == len(result)
        for one, other in zip(planned, result, strict=True):
            _compare(one, other)
        return
    assert (planned.dtype, planned.sizes, planned.strides, planned.offset) == (
        str(result.dtype)[6:],
        tuple(result.shape),
        result.stride(),
        result.storage_offset(),
    )
    assert planned.storage_bytes == result.untyped_storage().nbytes()


@pytest.mark.parametrize("operator", CALLS)
def test_results_are_those_of_openreg(build, operator):
    arguments = CALLS[operator]()
    plan = ask.plan(operator, arguments)
    name, _, overload = operator[6:].partition(".")
    result = getattr(getattr(torch.ops.aten, name), overload or "default")(*arguments)
    _compare(list(plan.outputs), result if isinstance(result, tuple) else [result])


def test_settings_decide(build):
    index = _random(4, dtype=torch.int64)
    arguments = (_random(4, 8), 0, index, _random(4, 8))
    plans = []
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        try:
            plans.append(ask.plan("aten::index_add", arguments))
        finally:
            torch.use_deterministic_algorithms(False)
    assert len(plans[0].events) < len(plans[1].events)


def test_what_a_signature_cannot_describe_is_counted(build):
    before = ask.report()["counts"].get("signature", 0)
    assert ask.plan("aten::relu", (torch.eye(3).to_sparse(),)) is None
    assert ask.report()["counts"]["signature"] == before + 1


def test_a_tensor_of_the_host_stays_there(build):
    plan = ask.plan("aten::_to_copy", (torch.ones(4),), {"device": torch.device(DEVICE)})
    assert plan.outputs[0].where == "block"
    plan = ask.plan("aten::_to_copy", (_random(4),), {"device": torch.device("cpu")})
    assert plan.outputs[0].where == "host" and plan.events == ()


# ---- sources -------------------------------------------------------------------------------------


class NoPlans:
    """A client whose planner has no plans."""

    counts, sentences = {}, {}

    def __init__(self):
        self.questions = 0

    def ask(self, question):
        self.questions += 1


@pytest.fixture
def no_plans(monkeypatch):
    client = NoPlans()
    monkeypatch.setattr(ask, "_client", client)
    return client


def _sources():
    return collections.Counter(ask.report()["sources"])


def test_a_built_in_plan_answers_where_the_planner_has_none(no_plans, monkeypatch):
    monkeypatch.setattr(ask, "_has_build", True)
    before = _sources()
    plan = ask.plan("aten::sort", (_random(5000),), source="auto")
    assert plan.transient[0] == 8 * 5000
    assert no_plans.questions == 1
    assert _sources() - before == {"builtin": 1}


def test_without_a_cuda_build_the_planner_is_not_asked(no_plans, monkeypatch):
    monkeypatch.setattr(ask, "_has_build", False)
    assert ask.plan("aten::sort", (_random(5000),), source="auto") is not None
    assert ask.plan("aten::add.Tensor", (_random(5), 1), source="auto") is None
    assert no_plans.questions == 0


def test_built_in_plans_alone_do_not_ask_the_planner(no_plans):
    assert ask.plan("aten::sort", (_random(5000),), source="builtin") is not None
    assert no_plans.questions == 0


def test_the_planner_answers_first(build):
    before = _sources()
    plan = ask.plan("aten::sort", (_random(5000),), source="auto")
    assert plan.outputs[0].strides == (1,)
    assert _sources() - before == {"planner": 1}


def test_an_unknown_source_is_an_error():
    with pytest.raises(ValueError, match="expected none, planner, builtin or auto"):
        launches.use("gpu")


def test_the_variable_chooses_the_source(python):
    code = f"""
import torch
from torch_openreg.plans import ask, launches
torch.ones(70_000, device={DEVICE!r}).sort()
torch.accelerator.synchronize()
print(ask.report()["sources"].get("builtin", 0) > 0, ask.report()["counts"])
"""
    assert python(code, fresh=True, OPENREG_MEMORY_PLANS="builtin").stdout.split() == ["True", "{}"]
    refused = python("import torch", fresh=True, OPENREG_MEMORY_PLANS="gpu")
    assert "expected none, planner, builtin or auto" in refused.stderr
