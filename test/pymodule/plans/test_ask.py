"""Plans of calls on this process's tensors: what CUDA returns, compared with openreg's results."""

import pytest
import torch
from torch_openreg.plans import ask

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
