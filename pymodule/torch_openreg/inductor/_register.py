"""Registration with Dynamo and Inductor, each when it is loaded."""

from types import ModuleType

import torch

_MOST_DEVICES = 64  # of a process: OPENREG_MAX_DEVICES


def with_dynamo(device_type: str) -> None:
    """Say what devices are, which Dynamo asks when it traces."""
    from torch._dynamo import device_interface

    from . import device, fake

    fake.install(device_type)
    if device_type != "cuda":  # for which PyTorch has an interface over torch.cuda
        interface = device.make_interface(device_type)
        device_interface.register_interface_for_device(device_type, interface)
        # How many there are is not asked: that would be the devices' first use.
        for index in range(_MOST_DEVICES):
            device_interface.register_interface_for_device(f"{device_type}:{index}", interface)


def with_inductor(device_type: str) -> None:
    """Register the backend that generates code."""
    from torch._inductor import compile_fx
    from torch._inductor.codegen import common, cpp_utils
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
    from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen

    from . import cpu_patches, codegen, cpp_wrapper, packages, cudagraph_trees

    packages.compile_for_host(device_type, compile_fx)
    cpp_wrapper.compile_for_host(device_type, compile_fx)
    cpu_patches.install(device_type)
    cudagraph_trees.allow(device_type)
    cpp_utils.DEVICE_TO_ATEN.setdefault(device_type, "at::kPrivateUse1")
    common._initialize_device_op_overrides()  # or it would come later
    common.register_device_op_overrides(device_type, codegen.OpOverrides(device_type))
    common.register_backend_for_device(
        device_type,
        codegen.Scheduling,
        codegen.Wrapper,
        CppWrapperCpu,
        WrapperFxCodegen,
        device_custom_pass=codegen.Version(),
    )


def with_trees(module: ModuleType, device_type: str) -> None:
    """Fill the module that replays compiled code."""
    from . import cudagraph_trees

    cudagraph_trees.read(module, device_type)


def with_packages(device_type: str) -> None:
    """Run programs that were compiled ahead of time on the devices that they are for."""
    from . import packages

    packages.load_onto_devices(device_type)


def with_flex_attention(device_type: str) -> None:
    """Add a name to its list of devices that it works on."""
    from torch.nn.attention import flex_attention

    validate = flex_attention._validate_device

    def validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != device_type:
            validate(query, key, value)

    flex_attention._validate_device = validate_device
