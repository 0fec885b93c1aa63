"""Generates code for a device: the CPU's code, with launches instead of calls."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.common import DeviceOpOverrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.custom_graph_pass import CustomGraphModulePass, get_hash_for_files
from torch._inductor.virtualized import V

from torch_openreg import __version__

# Makes the text differ from CPU code in the same graph, so that they become different kernels.
_MARK = "// launched by openreg\n"
_CALLED = "async_compile.cpp_pybinding("

# Inductor generates loops for all threads of the program. A kernel only has the threads of its
# device's share.
_THREADS = re.compile(r"#pragma omp parallel num_threads\((\d+)\)")
_SHARE = r"#pragma omp parallel num_threads(std::min(\1, omp_get_max_threads()))"


class Version(CustomGraphModulePass):
    """A graph pass that changes nothing. Its uuid is a part of the key of Inductor's code cache, so
    that another version of these files does not find old code."""

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        pass

    def uuid(self) -> Any:
        files = sorted(str(path) for path in Path(__file__).parent.glob("*.py"))
        return (__version__, get_hash_for_files(tuple(files)))


class OpOverrides(DeviceOpOverrides):
    """The statements with which generated Python changes the current device or stream."""

    def __init__(self, device_type: str) -> None:
        self._module = f"torch.{device_type}"

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from torch_openreg.inductor.launches import current_raw_stream as {name}"

    def set_device(self, device_idx: int) -> str:
        return f"{self._module}.set_device({device_idx})"

    def synchronize(self) -> str:
        return f"{self._module}.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"{self._module}.device({device_idx})"

    def current_stream(self) -> str:
        return f"{self._module}.current_stream()"


class Scheduling(CppScheduling):
    """Generates C++ loops as kernels that are launched."""

    def codegen_template(self, *args: Any, **kwargs: Any) -> None:
        # A template distributes its work over the threads that exist at run time.
        with config.patch({"cpp.dynamic_threads": True}):
            super().codegen_template(*args, **kwargs)

    def define_kernel(self, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        source = _MARK + _THREADS.sub(_SHARE, src_code)
        wrapper: Any = V.graph.wrapper_code
        with wrapper.launched_kernels():
            return super().define_kernel(source, nodes, kernel_args)


class _Launches:
    """The differences in the Python that is generated for a graph or a subgraph."""

    _is_launched = False

    @contextlib.contextmanager
    def launched_kernels(self) -> Iterator[None]:
        """Context manager in which new kernels are for a device."""
        self._is_launched = True
        try:
            yield
        finally:
            self._is_launched = False

    def define_kernel(
        self,
        kernel_name: str,
        kernel_body: str,
        metadata: str | None = None,
        gpu: bool = True,
        cpp_definition: str | None = None,
    ) -> None:
        if self._is_launched:
            assert kernel_body.startswith(_CALLED)
            launched = f"launched_kernel(async_compile, {kernel_name!r}, "
            kernel_body = launched + kernel_body.removeprefix(_CALLED)
        super().define_kernel(kernel_name, kernel_body, metadata, gpu, cpp_definition)  # type: ignore[misc]

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Sequence[str], *, triton: bool = True, **others: Any
    ) -> None:
        if triton:
            raise NotImplementedError(
                f"openreg: compiled code for a simulated device cannot call the Triton kernel "
                f"{kernel_name}: call it outside of the compiled function"
            )
        self.writeline(self.wrap_kernel_call(kernel_name, call_args))  # type: ignore[attr-defined]

    def make_allocation(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        shape: Any,
        stride: Any,
        allocation_shape: Any = None,
        is_pinned: bool = False,
    ) -> str:
        if device.type == "cpu":
            return super().make_allocation(  # type: ignore[misc]
                name, device, dtype, shape, stride, allocation_shape, is_pinned
            )
        text = self.codegen_python_shape_tuple  # type: ignore[attr-defined]
        sizes, strides = text(shape), text(stride)
        allocated = sizes if allocation_shape is None else text(allocation_shape)
        line = f"{name} = empty_strided_openreg({allocated}, {strides}, {dtype}, {device.index})"
        return line if allocated == sizes else f"{line}.as_strided({sizes}, {strides})"


class Wrapper(_Launches, PythonWrapperCodegen):
    """Generates the Python function that calls the kernels of a graph."""

    @staticmethod
    def create(
        is_subgraph: bool,
        subgraph_name: str | None,
        parent_wrapper: PythonWrapperCodegen | None,
        partition_signatures: Any = None,
    ) -> PythonWrapperCodegen:
        if is_subgraph:
            assert subgraph_name is not None
            assert parent_wrapper is not None
            return _SubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return Wrapper()

    def write_header(self) -> None:
        super().write_header()
        self.header.splice(
            """
            from torch_openreg._C import empty_strided as empty_strided_openreg
            from torch_openreg.inductor.launches import launched_kernel
            """,
            strip=True,
        )


class _SubgraphWrapper(_Launches, SubgraphPythonWrapperCodegen):
    """Generates the Python function of a subgraph."""
