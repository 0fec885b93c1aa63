"""set_sync_debug_mode reports operations that make the host wait for a device, and nothing else."""

import warnings

import pytest
import torch

from device import DEVICE, NAME, module

SENTENCE = f"called a synchronizing {NAME} operation"


@pytest.fixture(autouse=True)
def default_mode():
    yield
    module.set_sync_debug_mode("default")


@pytest.fixture
def x():
    return torch.arange(6.0, device=DEVICE).view(2, 3)


WAITS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x[0, 1] > 0),
    "to the host": lambda x: x.cpu(),
    "to the host, converted": lambda x: x.to("cpu", torch.int32),
    "from the host": lambda x: torch.ones(3).to(x.device),
    "into a device tensor": lambda x: x.copy_(torch.ones(2, 3)),
    "tolist": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 2],
    "a number by indices": lambda x: x.index_put_((x[:, 0].long() % 2,), torch.tensor(1.0)),
    "masked_select": lambda x: x.masked_select(x > 2),
    "unique": lambda x: torch.unique(x),
    "unique rows": lambda x: torch.unique(x, dim=0),
    "unique_consecutive": lambda x: torch.unique_consecutive(x),
    "equal": lambda x: torch.equal(x, x + 1),
    "bincount": lambda x: torch.bincount(x.long().flatten()),
    "stream": lambda x: module.current_stream().synchronize(),
}

GOES_ON = {
    "kernels": lambda x: torch.nn.functional.linear(x, x).relu_().sum(),
    "draws": lambda x: torch.multinomial(x.abs() + 1, 2),
    "draws with replacement": lambda x: torch.multinomial(x.abs() + 1, 5, replacement=True),
    "factories": lambda x: torch.rand(3, device=x.device),
    "indices": lambda x: x[torch.zeros(4, dtype=torch.long, device=x.device)],
    "a number by a mask": lambda x: x.__setitem__(x > 2, 1.0),
    "a number by a mask of rows": lambda x: x.__setitem__(x[:, 0] > 2, torch.tensor([1.0])),
    "views": lambda x: x[1].t().view(3),
    "between devices": lambda x: x.to(f"{DEVICE}:1"),
    "within a device": lambda x: x.clone().to(torch.float16),
    "pinned": lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True),
    "not waited for": lambda x: x.to("cpu", non_blocking=True),
    "events": lambda x: module.current_stream().record_event(),
    "a whole device": lambda x: module.synchronize(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_waiting_raises_or_warns(x, wait):
    module.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=f"^{SENTENCE}"):
        wait(x)
    module.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match=f"^{SENTENCE}"):
        wait(x)
    module.set_sync_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wait(x)


@pytest.mark.parametrize("work", GOES_ON.values(), ids=GOES_ON.keys())
def test_asynchronous_work_is_not_reported(x, work):
    module.set_sync_debug_mode("error")
    work(x)


def test_training_step_waits_only_for_the_scaler(x):
    layer = torch.nn.Linear(3, 3, device=DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    module.set_sync_debug_mode("error")
    layer(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    scaler = torch.amp.GradScaler(DEVICE)
    scaler.scale(layer(x).sum()).backward()
    with pytest.raises(RuntimeError, match=SENTENCE):
        scaler.step(optimizer)


@pytest.mark.parametrize("number, name", [(0, "default"), (1, "warn"), (2, "error")])
def test_mode_is_a_number_or_its_name(number, name):
    for mode in (number, name):
        module.set_sync_debug_mode(mode)
        assert module.get_sync_debug_mode() == number


@pytest.mark.parametrize("mode", [3, -1, "loud"])
def test_other_modes_are_refused(mode):
    got = "" if DEVICE == "cuda" else ", got"
    with pytest.raises(
        RuntimeError, match=f"^invalid value of debug_mode, expected one of .*{got}"
    ):
        module.set_sync_debug_mode(mode)
    assert module.get_sync_debug_mode() == 0
