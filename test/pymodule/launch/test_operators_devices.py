"""The device on which an operator runs, and errors for tensors on different devices."""

import pytest
import samples
import torch
import torch.nn.functional as F

from device import DEVICE, KEY, NAME, module

SENTENCE = "Expected all tensors to be on the same device"

CALLS = {
    "add": lambda s, t: s.x + t.y,
    "add_": lambda s, t: s.x.add_(t.y),
    "mul_out": lambda s, t: torch.mul(s.x, s.y, out=t.x),
    "addmm": lambda s, t: torch.addmm(s.bias, s.x, t.w),
    "bmm": lambda s, t: torch.bmm(s.batch, t.batch2),
    "cat": lambda s, t: torch.cat([s.x, t.y]),
    "stack": lambda s, t: torch.stack([s.x, t.y]),
    "conv2d": lambda s, t: F.conv2d(s.image, t.kernel2),
    "linear": lambda s, t: F.linear(s.x, t.w.T),
    "mm": lambda s, t: s.x @ t.w,
    "where": lambda s, t: torch.where(s.b, s.x, t.y),
    "index_select": lambda s, t: s.x.index_select(0, t.index),
    "gather": lambda s, t: s.x.gather(0, t.places),
    "scatter": lambda s, t: s.x.scatter(0, t.places, s.y),
    "embedding": lambda s, t: F.embedding(t.tokens, s.table),
    "layer_norm": lambda s, t: F.layer_norm(s.x, (5,), t.row),
    "mse_loss": lambda s, t: F.mse_loss(s.x, t.y),
    "nll_loss": lambda s, t: F.nll_loss(s.x, t.labels),
}


@pytest.mark.parametrize("name", CALLS)
def test_tensors_of_two_devices_are_refused(name):
    sentence = f"{SENTENCE}.*{DEVICE}:[01]"
    with pytest.raises(RuntimeError, match=sentence) as raised:
        CALLS[name](samples.make(f"{DEVICE}:0"), samples.make(f"{DEVICE}:1"))
    assert f"{DEVICE}:0" in str(raised.value) and f"{DEVICE}:1" in str(raised.value)


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"conv2d"}))
def test_tensors_of_device_and_host_are_refused(name):
    with pytest.raises(RuntimeError, match=SENTENCE) as raised:
        CALLS[name](samples.make(f"{DEVICE}:0"), samples.make())
    assert f"{DEVICE}:0" in str(raised.value) and "cpu" in str(raised.value)


def test_convolution_of_a_host_tensor_names_types():
    ours = "torch.cuda.FloatTensor" if DEVICE == "cuda" else f"{DEVICE}FloatType"
    types = rf"\({ours}\) and weight type \(torch.FloatTensor\)"
    with pytest.raises(RuntimeError, match=f"Input type {types} should be the same"):
        CALLS["conv2d"](samples.make(DEVICE), samples.make())


@pytest.mark.parametrize("name", CALLS)
def test_refused_operator_changes_nothing(name):
    s, t = samples.make(f"{DEVICE}:0"), samples.make(f"{DEVICE}:1")
    with pytest.raises(RuntimeError):
        CALLS[name](s, t)
    assert torch.equal(s.x.cpu(), samples.make().x)
    assert torch.equal(t.x.cpu(), samples.make().x)


def test_device_index_error_names_both_devices_as_cuda_does():
    s, t = samples.make(f"{DEVICE}:0"), samples.make(f"{DEVICE}:1")
    with pytest.raises(RuntimeError, match=f"at least two devices, {DEVICE}:0 and {DEVICE}:1!"):
        s.x + t.x


@pytest.mark.parametrize(
    "call",
    [
        lambda x, scalar: x + scalar,
        lambda x, scalar: scalar * x,
        lambda x, scalar: x.div_(scalar),
        lambda x, scalar: torch.where(x > scalar, x, scalar),
        lambda x, scalar: torch.pow(x, scalar),
        lambda x, scalar: x.fill_(scalar),
        lambda x, scalar: torch.lerp(x, x + 1, scalar),
    ],
)
def test_zero_dimensional_host_tensor_is_a_scalar(call):
    scalar = torch.tensor(2.0)
    actual = call(samples.make(f"{DEVICE}:1").p, scalar)
    assert actual.device == torch.device(f"{DEVICE}:1")
    torch.testing.assert_close(actual.cpu(), call(samples.make().p, scalar))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, scalar: torch.clamp(x, min=scalar),
        lambda x, scalar: x.clamp_(max=scalar),
        lambda x, scalar: torch.logaddexp(x, scalar),
        lambda x, scalar: torch.equal(x, scalar),
    ],
)
def test_operators_that_cuda_checks_take_no_host_scalar(call):
    message = "Expected all tensors to be on the same device, but got .* is on cpu"
    with pytest.raises(RuntimeError, match=message):
        call(samples.make(f"{DEVICE}:1").p, torch.tensor(2.0))


def test_addcmul_takes_a_host_scalar_as_its_last_tensor_only():
    x, scalar = torch.ones(2, device=DEVICE), torch.tensor(3.0)
    assert torch.addcmul(x, x, scalar).tolist() == [4, 4]
    assert x.clone().addcmul_(x, scalar, value=2).tolist() == [7, 7]
    sentence = f"CPU Scalar support for {{}} argument is not supported .* on {NAME} tensors"
    with pytest.raises(RuntimeError, match=sentence.format("self")):
        torch.addcmul(scalar, x, x)
    with pytest.raises(RuntimeError, match=sentence.format("tensor1")):
        torch.addcmul(x, scalar, x)
    with pytest.raises(RuntimeError, match=sentence.format("tensor1") + ".*swap your tensor1"):
        x.addcmul_(scalar, x)
    assert x.tolist() == [1, 1]


def test_zero_dimensional_tensor_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match=SENTENCE):
        torch.ones(2, device=f"{DEVICE}:0") + torch.tensor(1.0, device=f"{DEVICE}:1")
    with pytest.raises(RuntimeError, match=SENTENCE):
        torch.ones(2) + torch.ones(1, device=DEVICE)


def test_host_indices_select_from_a_device_tensor():
    device, host = samples.make(f"{DEVICE}:1"), samples.make()
    assert torch.equal(device.x[host.index].cpu(), host.x[host.index])
    assert torch.equal(device.x[host.b].cpu(), host.x[host.b])


def test_device_indices_do_not_select_from_a_host_tensor():
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        samples.make().x[samples.make(DEVICE).index]


INDEX = torch.tensor([0, 2])
MASK = torch.tensor([True, False, True])

WRITES = {
    "index_put_": lambda x, values: x.index_put_((INDEX,), values),
    "index_put_ by device indices": lambda x, values: x.index_put_((INDEX.to(x.device),), values),
    "index_put": lambda x, values: x.index_put((INDEX,), values),
    "_unsafe_index_put": lambda x, values: torch.ops.aten._unsafe_index_put(x, (INDEX,), values),
    "x[index] =": lambda x, values: x.__setitem__(INDEX, values),
    "x[mask] =": lambda x, values: x.__setitem__(MASK.to(x.device), values),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("elsewhere", ["cpu", f"{DEVICE}:0"])
def test_values_of_another_device_are_not_written_by_indices(name, elsewhere):
    x = torch.zeros(3, device=f"{DEVICE}:1")
    with pytest.raises(RuntimeError, match=f"{SENTENCE}.* {DEVICE}:1 and {elsewhere}!"):
        WRITES[name](x, torch.ones(2, device=elsewhere))
    assert x.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("elsewhere", ["cpu", f"{DEVICE}:0"])
def test_values_of_another_device_are_not_accumulated(elsewhere):
    x = torch.zeros(3, device=f"{DEVICE}:1")
    with pytest.raises(
        RuntimeError, match=f"device {DEVICE}:1 but got device {elsewhere} for value"
    ):
        x.index_put_((INDEX,), torch.ones(2, device=elsewhere), accumulate=True)


def test_device_values_are_not_written_to_the_host():
    with pytest.raises(RuntimeError, match=f"{SENTENCE}.* {DEVICE}:0 and cpu!"):
        torch.zeros(3).index_put_((INDEX,), torch.ones(2, device=DEVICE))


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("elsewhere", ["cpu", f"{DEVICE}:0"])
def test_number_of_any_device_is_written_by_indices(name, elsewhere):
    x = torch.zeros(3, device=f"{DEVICE}:1")
    result = WRITES[name](x, torch.tensor(5.0, device=elsewhere))
    assert (x if result is None else result).tolist() == [5.0, 0.0, 5.0]


def test_one_host_element_is_written_by_a_device_mask():
    x = torch.zeros(3, device=DEVICE)
    x.index_put_((MASK.to(DEVICE),), torch.tensor([7.0]))
    assert x.tolist() == [7.0, 0.0, 7.0]
    for indices in [(MASK,), (INDEX,)]:
        with pytest.raises(RuntimeError, match=SENTENCE):
            x.index_put_(indices, torch.tensor([7.0]))


def test_device_number_is_written_to_the_host():
    x = torch.zeros(3).index_put_((INDEX,), torch.tensor(5.0, device=f"{DEVICE}:1"))
    assert x.tolist() == [5.0, 0.0, 5.0]


def step_sgd(parameters, gradients, **rate):
    options = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": False}
    torch._fused_sgd_(
        parameters, gradients, [], **options, **rate, maximize=False, is_first_step=True
    )


@pytest.mark.parametrize("strangers", [0, 1, 2])
def test_lists_of_two_devices_are_refused_by_the_name_of_the_argument(strangers):
    parameters = [torch.ones(3, device=DEVICE) for _ in range(3)]
    gradients = [torch.ones(3, device="cpu" if i >= strangers else DEVICE) for i in range(3)]
    sentence = f"{SENTENCE}, but got grads is on cpu, different from other tensors on {DEVICE}:0"
    with pytest.raises(RuntimeError, match=sentence):
        step_sgd(parameters, gradients, lr=0.1)
    assert all(each.tolist() == [1.0, 1.0, 1.0] for each in parameters)


def test_rate_of_a_fused_optimizer_may_be_on_the_host_and_its_gradients_not():
    parameter, gradient = torch.ones(3, device=DEVICE), torch.ones(3)
    step_sgd([parameter], [gradient.to(DEVICE)], lr=torch.tensor(0.5))
    assert parameter.tolist() == [0.5, 0.5, 0.5]
    with pytest.raises(RuntimeError, match=SENTENCE):
        step_sgd([parameter], [gradient], lr=torch.tensor(0.5))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_rate_of_a_fused_optimizer_may_have_any_shape_of_one_element(name, shape):
    values = []
    for rate in (0.5, torch.full(shape, 0.5)):
        parameter = torch.ones(3, device=DEVICE, requires_grad=True)
        parameter.grad = torch.full_like(parameter, 0.25)
        getattr(torch.optim, name)([parameter], lr=rate, fused=True).step()
        values.append(parameter.tolist())
    assert values[0] == values[1] != [1.0, 1.0, 1.0]


def test_error_names_an_argument_after_an_omitted_one():
    with pytest.raises(RuntimeError, match="got bias is on cpu"):
        F.layer_norm(torch.ones(3, device=DEVICE), (3,), bias=torch.ones(3))


def test_result_is_on_the_device_of_its_inputs_not_the_current_one():
    x = torch.ones(3, device=f"{DEVICE}:1")
    assert module.current_device() == 0
    results = [x + 1, x.sum(), x.new_zeros(2), torch.zeros_like(x), x.nonzero(), x.cumsum(0)]
    assert {result.device for result in results} == {torch.device(f"{DEVICE}:1")}
    assert module.current_device() == 0


def test_sentence_of_a_kernel_is_that_of_the_cpu():
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device)
        with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0"):
            torch.ones(3, device=device)[5]


def test_program_continues_after_an_error():
    x = torch.ones(2, 3, device=DEVICE)
    before = module.memory_allocated()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            x @ x
    assert torch.ones(2).is_cpu
    assert (x + 1).sum().item() == 12
    assert module.memory_allocated() == before


def test_operator_without_a_kernel_refuses_by_name():
    with torch.library._scoped_library("openreg_test", "DEF") as library:
        library.define("nothing(Tensor x) -> Tensor")
        with pytest.raises(NotImplementedError, match="openreg_test::nothing"):
            torch.ops.openreg_test.nothing(torch.ones(1, device=DEVICE))


def test_operator_registered_by_a_user_for_the_cpu_runs_on_the_device():
    with torch.library._scoped_library("openreg_test", "FRAGMENT") as library:
        library.define("only_cpu(Tensor x) -> Tensor")
        library.impl("only_cpu", lambda x: x + 1, "CPU")
        result = torch.ops.openreg_test.only_cpu(torch.ones(2, device=f"{DEVICE}:1"))
    assert result.device == torch.device(f"{DEVICE}:1")
    assert result.tolist() == [2.0, 2.0]


def test_operator_registered_by_a_user_for_the_device_is_run():
    with torch.library._scoped_library("openreg_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, KEY)
        assert torch.ops.openreg_test.twice(torch.ones(2, device=DEVICE)).tolist() == [2.0, 2.0]
