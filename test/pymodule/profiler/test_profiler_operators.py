"""Which operators and types of events a profile shows, and the names of kernels."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from modes import cuda_only
from recording import DEVICE_ACTIVITY, recorded, square
from torch.profiler import profile, record_function

from device import DEVICE, module

# Operators that start no kernel: they make tensors or views.
MAKES_TENSORS = {"empty", "empty_strided", "empty_like"}
WITHOUT_WORK = MAKES_TENSORS | {"as_strided", "broadcast_tensors", "detach", "expand", "view"}


def leaves(profiler):
    """Return the operators that call no other operator."""
    return [
        event
        for event in profiler.events()
        if event.name.startswith("aten::") and event.device_type.name == "CPU"
        if not any(each.name.startswith("aten::") for each in event.cpu_children)
    ]


def test_each_operator_of_a_step_has_work_on_its_device():
    """A step on two devices and three streams."""
    first = torch.nn.Linear(16, 8).to(f"{DEVICE}:0")
    second = torch.nn.Linear(8, 4).to(f"{DEVICE}:1")
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    x, target = torch.randn(4, 16, device=f"{DEVICE}:0"), torch.randn(4, 4, device=f"{DEVICE}:1")
    streams = [module.Stream(device=index) for index in (0, 0, 1)]

    def step():
        with module.stream(streams[0]):
            hidden = first(x).relu()
        streams[1].wait_stream(streams[0])
        with module.stream(streams[1]):
            hidden = hidden * 2
        streams[2].wait_stream(streams[1])
        with module.stream(streams[2]):
            F.mse_loss(second(hidden.to(f"{DEVICE}:1")), target).backward()
            optimizer.step()
        module.synchronize(0)
        module.synchronize(1)

    step()
    operators = leaves(recorded(step))
    names = {each.name.removeprefix("aten::") for each in operators}
    assert {"addmm", "mse_loss", "mse_loss_backward", "mm", "sum", "relu", "mul"} <= names
    without = {each.name.removeprefix("aten::") for each in operators if not each.kernels}
    assert without <= WITHOUT_WORK


def test_operators_of_a_kernel_are_hidden_also_when_it_is_queued(close_gate):
    x = torch.randn(64, 64, device=DEVICE)
    torch.nn.functional.mse_loss(x, x)
    stream = module.current_stream()

    def work():
        gate = close_gate(stream)
        F.mse_loss(x, x)
        gate.open()
        module.synchronize()

    names = [each.name.removeprefix("aten::") for each in leaves(recorded(work))]
    assert [name for name in names if name not in WITHOUT_WORK] == ["mse_loss"]


def test_ranges_in_a_kernel_of_the_program_are_shown():
    with torch.library._scoped_library("test_ranges", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")

        def twice(x):
            with record_function("in the kernel"):
                return x * 2

        library.impl("twice", twice, "CPU")
        x = square()
        profiler = recorded(lambda: torch.ops.test_ranges.twice(x))
    assert "in the kernel" in {each.name for each in profiler.events()}


def test_products_have_the_words_of_cublas_in_their_names():
    x, v = square(), torch.ones(8, device=DEVICE)
    batch = torch.ones(2, 8, 8, device=DEVICE)

    def work():
        x.mm(x)
        x.addmm(x, x)
        x.clone().addmm_(x, x)
        batch.bmm(batch)
        x.mv(v)
        v.dot(v)

    events = recorded(work).events()
    kernels = {each.name for each in events if each.name.endswith("_kernel")}
    assert {
        "mm_gemm_kernel",
        "addmm_gemm_kernel",
        "addmm__gemm_kernel",
        "bmm_gemm_kernel",
    } <= kernels
    assert {"mv_gemv_kernel", "dot_kernel"} <= kernels


@cuda_only("PyTorch's filter has names for CUDA's types of events only")
def test_a_profile_records_only_the_wanted_types():
    x = torch.ones(8, 8)

    def work():
        moved = x.to(DEVICE)
        moved @ moved

    def names(*types):
        with profile(activities=[{DEVICE_ACTIVITY: list(types)}]) as profiler:
            work()
        return {event.name for event in profiler.events()}

    copies = {"Memcpy HtoD (Pageable -> Device)"}
    assert names("GPU_MEMCPY") == copies
    calls = {"cudaMemcpyAsync", "cudaLaunchKernel", "cudaStreamSynchronize"}
    calls.add("cudaDeviceSynchronize")  # at the profile's end
    assert names("GPU_MEMCPY", "CUDA_RUNTIME") == copies | calls
    assert names("CONCURRENT_KERNEL") == {"mm_gemm_kernel"}
    assert names() == set()


def kernels_of(work):
    """Return the names of kernels, by the operator that launches them."""
    work()
    return {
        event.name: [kernel.name for kernel in event.kernels]
        for event in recorded(work).events()
        if event.kernels
    }


def test_an_operator_on_a_list_is_one_kernel(nothing_queued):
    first = [torch.ones(4, device=DEVICE) for _ in range(3)]
    second = [torch.ones(4, device=DEVICE) for _ in range(3)]
    assert kernels_of(lambda: torch._foreach_add_(first, second)) == {
        "aten::_foreach_add_": ["_foreach_add__multi_tensor_apply_kernel"]
    }
    assert kernels_of(lambda: torch._foreach_sqrt(first)) == {
        "aten::_foreach_sqrt": ["_foreach_sqrt_multi_tensor_apply_kernel"]
    }


def test_steps_of_a_long_list_have_the_name_of_the_list():
    long = [torch.ones(20_000, device=DEVICE) for _ in range(2)]
    assert kernels_of(lambda: torch._foreach_mul_(long, 2.0)) == {
        "aten::_foreach_mul_": ["_foreach_mul__multi_tensor_apply_kernel"] * 2
    }


def ones(*size, dtype=torch.float32):
    return torch.ones(*size, device=DEVICE, dtype=dtype)


LOOPS_ON_CUDA = {
    "dtypes": lambda: (torch._foreach_add, [ones(2)], [ones(2, dtype=torch.float64)]),
    "shapes": lambda: (torch._foreach_add, [ones(2, 2)], [ones(2)]),
    "gaps": lambda: (torch._foreach_exp, [ones(4)[::2]]),
    "integers": lambda: (torch._foreach_exp, [ones(4, dtype=torch.int32)]),
    "complex": lambda: (torch._foreach_abs, [ones(4, dtype=torch.complex64)]),
    "order": lambda: (torch._foreach_norm, [ones(4)], 3),
    "promotion": lambda: (torch._foreach_mul, [ones(4, dtype=torch.int32)], 0.5),
}
ONE_KERNEL_ON_CUDA = {
    "integers": lambda: (torch._foreach_add, [ones(4, dtype=torch.int32)], 1),
    "norm": lambda: (torch._foreach_norm, [ones(4)], 2),
    "factor": lambda: (torch._foreach_addcmul, [ones(4)], [ones(())], [ones(4)]),
    "conversion": lambda: (torch._foreach_copy_, [ones(4)], [ones(4, dtype=torch.float64)]),
    "power": lambda: (torch._foreach_pow, 2, [ones(4, dtype=torch.int32)]),
}


@pytest.mark.parametrize("kind", LOOPS_ON_CUDA)
def test_a_list_without_a_kernel_for_lists_has_a_kernel_for_each_tensor(kind):
    operator, *arguments = LOOPS_ON_CUDA[kind]()
    names = [name for each in kernels_of(lambda: operator(*arguments)).values() for name in each]
    assert names
    assert not [name for name in names if "multi_tensor_apply" in name]


@pytest.mark.parametrize("kind", ONE_KERNEL_ON_CUDA)
def test_a_list_with_a_kernel_for_lists_has_one_kernel(kind):
    operator, *arguments = ONE_KERNEL_ON_CUDA[kind]()
    (names,) = kernels_of(lambda: operator(*arguments)).values()
    assert len(names) == 1
    assert "multi_tensor_apply" in names[0]
