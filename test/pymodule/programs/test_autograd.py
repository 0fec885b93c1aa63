"""Backward passes on a device give the gradients of the CPU."""

import copy
import threading

import pytest
import samples
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from device import DEVICE, module


def networks():
    torch.manual_seed(0)
    relu = torch.nn.ReLU
    perceptron = torch.nn.Sequential(torch.nn.Linear(5, 16), relu(), torch.nn.Linear(16, 3))
    convolutional = torch.nn.Sequential(
        torch.nn.Conv2d(4, 6, 3, padding=1),
        torch.nn.BatchNorm2d(6),
        relu(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(6, 6, 3, stride=2, groups=2, bias=False),
        torch.nn.ConvTranspose2d(6, 4, 2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    recurrent = torch.nn.LSTM(12, 4, num_layers=2)
    encoder = torch.nn.TransformerEncoderLayer(12, 3, 16, dropout=0.0, batch_first=True)
    return {
        "perceptron": (perceptron, "x"),
        "convolutional": (convolutional, "image"),
        "recurrent": (recurrent, "signal"),
        "transformer": (encoder, "signal"),
    }


def gradients(module, x):
    x = x.detach().requires_grad_()
    output = module(x)
    output = output[0] if isinstance(output, tuple) else output
    output.square().sum().backward()
    return [x.grad, *(parameter.grad for parameter in module.parameters())]


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_gradients_of_a_network_agree_with_the_cpu(name, device):
    module, key = networks()[name]
    actual = gradients(copy.deepcopy(module).to(device), getattr(samples.make(device), key))
    expected = gradients(module, getattr(samples.make(), key))
    assert {gradient.device for gradient in actual} == {torch.device(device)}
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_training_agrees_with_the_cpu():
    def train(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.Linear(8, 5))
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        s = samples.make(device)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(s.x), s.labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train("cpu")
    assert expected[-1] < expected[0] / 2
    assert train(DEVICE) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
@pytest.mark.parametrize("foreach", [False, True])
def test_optimizers_take_the_steps_of_the_cpu(kind, foreach):
    def steps(device):
        weight = samples.make(device).x.requires_grad_()
        optimizer = getattr(torch.optim, kind)([weight], lr=0.1, foreach=foreach)
        for _ in range(5):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
        return weight.detach().cpu()

    torch.testing.assert_close(steps(f"{DEVICE}:1"), steps("cpu"))


def test_gradient_crosses_devices():
    x = torch.ones(3, device=f"{DEVICE}:0", requires_grad=True)
    y = (x * 2).to(f"{DEVICE}:1") * torch.arange(3.0, device=f"{DEVICE}:1")
    y.sum().backward()
    assert x.grad.device == torch.device(f"{DEVICE}:0")
    assert x.grad.tolist() == [0.0, 2.0, 4.0]


def test_model_split_over_two_devices_agrees_with_the_cpu():
    torch.manual_seed(0)
    first, second = torch.nn.Linear(5, 6), torch.nn.Linear(6, 2)
    split = copy.deepcopy(first).to(f"{DEVICE}:0"), copy.deepcopy(second).to(f"{DEVICE}:1")
    second(first(samples.make().x).relu()).sum().backward()
    hidden = split[0](samples.make(f"{DEVICE}:0").x).relu()
    split[1](hidden.to(f"{DEVICE}:1")).sum().backward()
    torch.testing.assert_close(split[0].weight.grad.cpu(), first.weight.grad)
    torch.testing.assert_close(split[1].weight.grad.cpu(), second.weight.grad)


def test_gradients_accumulate():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    for _ in range(3):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_gradient_of_a_gradient_agrees_with_the_cpu():
    def second(x):
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    torch.testing.assert_close(second(samples.make(DEVICE).x).cpu(), second(samples.make().x))


def test_gradients_are_right_by_finite_differences():
    x = samples.make(DEVICE).x.double().requires_grad_()
    w = samples.make(DEVICE).w.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: (x @ w).tanh().logsumexp(1), (x, w))


def test_hooks_see_gradients_on_the_device():
    seen = []
    x = torch.ones(2, device=f"{DEVICE}:1", requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient.device))
    (x * 3).sum().backward()
    assert seen == [torch.device(f"{DEVICE}:1")]


def test_hooks_run_in_the_order_of_the_cpu():
    def order(device):
        seen = []
        layer = torch.nn.Linear(2, 1).to(device)
        layer.register_forward_hook(lambda *_: seen.append("forward"))
        layer.register_full_backward_pre_hook(lambda *_: seen.append("before backward"))
        layer.register_full_backward_hook(lambda *_: seen.append("after backward"))
        x = torch.ones(2, device=device, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.is_cpu))
        doubled = x * 2
        doubled.register_hook(lambda gradient: seen.append("gradient"))
        layer(doubled).sum().backward()
        return seen

    expected = ["forward", "before backward", "after backward", "gradient", True]
    assert order("cpu") == expected
    assert order(DEVICE) == [*expected[:-1], False]


def test_hook_replaces_a_gradient():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda gradient: gradient * 3)
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 6.0] and y.grad.device.type == DEVICE


def test_graph_is_walked_again_only_if_retained():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad.cpu(), 2 * torch.ones(2).exp())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_part_draws_the_same_numbers_again(reentrant):
    def gradient(checkpointed):
        torch.manual_seed(0)
        x = samples.make(f"{DEVICE}:1").x.requires_grad_()
        if checkpointed:
            y = checkpoint(F.dropout, x * 2, use_reentrant=reentrant)
        else:
            y = F.dropout(x * 2)
        y.square().sum().backward()
        return x.grad

    assert torch.equal(gradient(True), gradient(False))


def test_custom_function_runs_on_the_device():
    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3

    x = torch.ones(2, device=DEVICE, requires_grad=True)
    Triple.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_the_graphs_device_is_current_during_backward():
    seen = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append(module.current_device())
            return gradient

    x = torch.ones(2, device=f"{DEVICE}:1", requires_grad=True)
    Look.apply(x).sum().backward()
    assert seen == [1]
    assert module.current_device() == 0


def test_saved_tensor_changed_in_place_is_an_error():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_saved_tensors_can_be_offloaded_to_the_host():
    x = samples.make(DEVICE).x.requires_grad_()
    with torch.autograd.graph.save_on_cpu(device_type=DEVICE):
        y = (x * x).sum()
    y.backward()
    torch.testing.assert_close(x.grad.cpu(), 2 * samples.make().x)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_mode_finds_the_operator():
    x = torch.zeros(1, device=DEVICE, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
        pytest.raises(RuntimeError, match="SqrtBackward0.*returned nan"),
        torch.autograd.detect_anomaly(check_nan=True),
    ):
        (x.sqrt() * 0).sum().backward()


def test_threads_train_on_devices_of_their_own():
    module, key = networks()["convolutional"]
    expected = gradients(copy.deepcopy(module), getattr(samples.make(), key))
    barrier, results = threading.Barrier(4), {}

    def work(number):
        device = f"{DEVICE}:{number % 2}"
        mine, x = copy.deepcopy(module).to(device), getattr(samples.make(device), key)
        barrier.wait()
        results[number] = [gradient.cpu() for gradient in gradients(mine, x)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        for ours, theirs in zip(results[number], expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_threads_add_to_one_gradient():
    weight = torch.ones(4, device=DEVICE, requires_grad=True)
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        for _ in range(20):
            (weight * 2).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert weight.grad.tolist() == [160.0] * 4


@pytest.mark.parametrize("product", [torch.dot, torch.vdot])
def test_a_product_with_a_zero_gradient_is_zero(product):
    ones = torch.ones(3, device=DEVICE)
    zeros = torch._efficientzerotensor(3, device=DEVICE)
    assert product(ones, ones).item() == 3
    result = product(ones, zeros)
    assert result._is_zerotensor() and result.device == ones.device
    assert product(zeros, ones).item() == 0


def test_zero_gradients_need_no_memory():
    for device in ("cpu", DEVICE):
        before = module.memory_allocated()
        zeros = torch._efficientzerotensor(1000, device=device)
        assert zeros._is_zerotensor() and module.memory_allocated() == before
        assert (zeros * 2)._is_zerotensor() and not (zeros + 1)._is_zerotensor()
        assert (zeros + 1).device == zeros.device and (zeros + 1).sum().item() == 1000
        assert not zeros.clone().count_nonzero() and not zeros.cpu().count_nonzero()
        assert not torch.ones(1000, device=device).copy_(zeros).count_nonzero()
        with pytest.raises(RuntimeError, match="immutable"):
            zeros.add_(1)


def test_derivative_keeps_zeros_where_the_cpu_keeps_them():
    def tangent(device):
        with torch.autograd.forward_ad.dual_level():
            x = torch.ones(3, dtype=torch.float64, device=device)
            dual = torch.autograd.forward_ad.make_dual(x, x)
            real = torch.complex(dual, x)  # the imaginary part has no tangent
            return torch.autograd.forward_ad.unpack_dual(real).tangent

    assert torch.equal(tangent(DEVICE).cpu(), tangent("cpu"))


def test_inference_mode_runs():
    with torch.inference_mode():
        x = torch.ones(2, device=DEVICE) + 1
        x[0] = 5
    assert x.is_inference() and x.tolist() == [5.0, 2.0]


def test_view_in_inference_mode_is_inference_like_its_base():
    for device in ("cpu", DEVICE):
        base = torch.ones(2, 3, device=device)
        with torch.inference_mode():
            views = [base.view(6), base.t(), base.detach(), base[0]]
            assert [view.is_inference() for view in views] == [False] * 4
            assert (base + 1).is_inference() and (base + 1).view(6).is_inference()
            views[0].add_(1)
        assert base.sum().item() == 12
