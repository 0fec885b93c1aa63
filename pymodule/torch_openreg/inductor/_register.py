"""Registers the devices with Dynamo and Inductor. Each is called when its module is loaded."""

from types import ModuleType

import torch

_MAX_DEVICES = 64  # OPENREG_MAX_DEVICES in device/device.h


def with_dynamo(device_type: str) -> None:
    """Register the devices with Dynamo, for tracing."""
    from torch._dynamo import device_interface

    from . import device, fake

    fake.install(device_type)
    if device_type != "cuda":  # PyTorch has an interface for cuda
        interface = device.make_interface(device_type)
        device_interface.register_interface_for_device(device_type, interface)
        # All possible indices: counting the devices would read their configuration.
        for index in range(_MAX_DEVICES):
            device_interface.register_interface_for_device(f"{device_type}:{index}", interface)


def with_inductor(device_type: str) -> None:
    """Register the code generator with Inductor."""
    from torch._inductor import compile_fx
    from torch._inductor.codegen import common, cpp_utils
    from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
    from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen

    from . import codegen, cpp_wrapper, cpu_patches, cudagraph_trees, packages

    packages.compile_for_host(device_type, compile_fx)
    cpp_wrapper.compile_for_host(device_type, compile_fx)
    cpu_patches.install(device_type)
    cudagraph_trees.allow(device_type)
    cpp_utils.DEVICE_TO_ATEN.setdefault(device_type, "at::kPrivateUse1")
    common._initialize_device_op_overrides()  # later it would replace ours
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
    """Load ``torch._inductor.cudagraph_trees`` for the devices."""
    from . import cudagraph_trees

    cudagraph_trees.load(module, device_type)


def with_packages(device_type: str) -> None:
    """Let AOTInductor packages run on the devices."""
    from . import packages

    packages.load_onto_devices(device_type)


def with_flex_attention(device_type: str) -> None:
    """Allow flex_attention on the devices."""
    from torch.nn.attention import flex_attention

    validate = flex_attention._validate_device

    def validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != device_type:
            validate(query, key, value)

    flex_attention._validate_device = validate_device
