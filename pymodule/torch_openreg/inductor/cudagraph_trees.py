"""``mode="reduce-overhead"``: captures compiled code once and replays it.

PyTorch's ``torch._inductor.cudagraph_trees`` does this for CUDA: it warms up, captures, replays,
and tracks results whose memory the next replay reuses. In CUDA mode the module runs unchanged. For
device type ``openreg``, this file loads its source with the names of CUDA replaced.
"""

import contextlib
import inspect
import re
from types import ModuleType, SimpleNamespace

import torch
from torch._inductor import cudagraph_utils

from torch_openreg.cuda import libraries, memory


def allow(device_type: str) -> None:
    """Allow graphs on one device to be captured, like graphs on one GPU."""
    reason_against = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes

    def check(device_node_mapping: dict[torch.device, torch.fx.Node]) -> str | None:
        reason = reason_against(device_node_mapping)  # also removes irrelevant devices
        devices = list(device_node_mapping)
        return None if [each.type for each in devices] == [device_type] else reason

    cudagraph_utils.check_multiple_devices_or_any_cpu_nodes = check


def load(module: ModuleType, device_type: str) -> None:
    """Load ``torch._inductor.cudagraph_trees`` from its source for another device type."""
    names = SimpleNamespace(
        **{name: getattr(source, name) for source in (memory, libraries) for name in source.__all__}
    )

    def replace(found: re.Match[str]) -> str:
        return f"_names.{found[1]}" if hasattr(names, found[1]) else found[0]

    text = re.sub(r"\btorch\._C\.(\w+)", replace, inspect.getsource(module))
    text = re.sub(r"\btorch\.cuda\b", f"torch.{device_type}", text)
    text = re.sub(r"\.is_cuda\b", f".is_{device_type}", text)
    namespace = vars(module)
    namespace["_names"] = names
    exec(compile(text, inspect.getfile(module), "exec"), namespace)
    # These modes search for branches, which cannot be captured, with streams of torch.cuda.
    namespace["ControlFlowOpWarmupDispatchMode"] = contextlib.nullcontext
    namespace["CUDAGraphCaptureControlFlowOpDispatchMode"] = contextlib.nullcontext
    namespace["_set_cached_tensors_enabled"] = torch._C._set_cached_tensors_enabled
