"""Which devices a process has used, and what its forks may do."""

import pytest

CONTEXTS = """
import torch
def contexts():
    return "".join(str(int(torch._C._cuda_hasPrimaryContext(device))) for device in range(2))
print(contexts())
x = torch.randn(1, device="cuda:1")
str(x), torch.empty(1).copy_(x), torch.ones(3).pin_memory().is_pinned()
print(contexts())
torch.cuda.set_device(0)
print(contexts())
"""


def test_a_process_has_contexts_on_the_devices_that_it_has_used(python):
    assert python(CONTEXTS, fresh=True).stdout.split() == ["00", "01", "11"]


FORK = """
import os, sys, torch
{}
child = os.fork()
if child == 0:
    try:
        torch.ones(1, device="cuda")
        print("used", torch.cuda._is_in_bad_fork(), flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(torch.ones(2, device="cuda").sum().item())
"""


def run_fork(python, statement, **variables):
    return python(FORK.format(statement), fresh=True, **variables).stdout.splitlines()


def test_a_fork_cannot_use_devices_after_is_available(python):
    child, parent = run_fork(python, "torch.cuda.is_available()")
    assert child.startswith("Cannot re-initialize CUDA in forked subprocess")
    assert parent == "2.0"


WITH_NVML = "torch.cuda._device_count_nvml = lambda: 2; assert torch.cuda.is_available()"


@pytest.mark.parametrize("statement", ["", WITH_NVML])
def test_a_fork_may_use_devices_before_its_parent_does(python, statement):
    assert run_fork(python, statement, PYTORCH_NVML_BASED_CUDA_CHECK="1") == ["used False", "2.0"]
