"""Features of torch.cuda for training: mixed precision, checkpoints, generator states."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.cuda.amp:FutureWarning")


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def train(device, mixed):
    """Train with the old names of mixed precision; on the CPU only with autocast."""
    module = network().to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler(enabled=mixed and device != "cpu")
    inputs = torch.linspace(-1, 1, 24).reshape(6, 4).to(device)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        with torch.cuda.amp.autocast(enabled=mixed):
            output = module(inputs)
            loss = output.float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, output.dtype


def test_training_without_mixed_precision_is_that_of_the_host():
    assert train("cuda", mixed=False)[1] == torch.float32
    torch.testing.assert_close(train("cuda", mixed=False)[0], train("cpu", mixed=False)[0])


def test_training_with_mixed_precision_is_near_that_of_the_host():
    losses, dtype = train("cuda:1", mixed=True)
    assert dtype == torch.float16
    torch.testing.assert_close(losses, train("cpu", mixed=False)[0], rtol=1e-2, atol=1e-3)


def test_gradients_that_overflow_are_skipped():
    scaler = torch.cuda.amp.GradScaler(init_scale=2.0**20)
    parameter = torch.nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale((parameter * 1e38).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (parameter.tolist(), scaler.get_scale()) == ([1.0, 1.0], 2.0**19)


def test_function_of_ones_own_is_cast():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd(cast_inputs=torch.float16)
        def forward(ctx, tensor):
            return 2 * tensor

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, gradient):
            return 2 * gradient

    tensor = torch.ones(2, device="cuda", requires_grad=True)
    with torch.cuda.amp.autocast():
        result = Double.apply(tensor)
    assert result.dtype == torch.float16
    result.float().sum().backward()
    assert tensor.grad.tolist() == [2.0, 2.0]


# ---- generators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_checkpoint_draws_the_same_again(device, reentrant):
    tensor = torch.ones(1000, device=device, requires_grad=True)
    result = checkpoint(
        lambda inputs: torch.nn.functional.dropout(inputs * 3.0), tensor, use_reentrant=reentrant
    )
    torch.rand(7, device=device)  # random numbers in between change nothing
    result.sum().backward()
    assert 0 < result.count_nonzero() < 1000
    assert torch.equal(tensor.grad, result.detach())  # 6 where the value was kept, else 0


def draw():
    return [torch.rand(3, device=f"cuda:{index}").tolist() for index in (0, 1)]


def test_states_of_all_generators_are_brought_back():
    states = torch.cuda.get_rng_state_all()
    assert len(states) == 2 and states[0].device.type == "cpu"
    first = draw()
    assert draw() != first
    torch.cuda.set_rng_state_all(states)
    assert draw() == first


def test_forked_generators_leave_no_trace():
    torch.cuda.manual_seed_all(3)
    expected = draw()
    torch.cuda.manual_seed_all(3)
    with torch.random.fork_rng(devices=[0, 1]):
        draw()
    assert draw() == expected
    torch.cuda.manual_seed_all(3)
    with torch.random.fork_rng(devices=["cuda:0"]):
        draw()
    found = draw()
    assert found[0] == expected[0] and found[1] != expected[1]


def test_one_seed_is_for_all_devices():
    torch.manual_seed(5)
    first, second = draw()
    assert first == second
    assert torch.cuda.initial_seed() == 5
