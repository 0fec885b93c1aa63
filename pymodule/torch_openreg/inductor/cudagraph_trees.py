"""``mode="reduce-overhead"``: compiled code that is captured once and replayed.

PyTorch's ``torch._inductor.cudagraph_trees`` does that with what CUDA has: it warms up, captures,
replays, and keeps track of results whose memory the next replay uses again. In CUDA mode it runs as
it is. For devices of another name its text is read with the names of their module.
"""

import contextlib
import inspect
import re
from types import ModuleType, SimpleNamespace

import torch
from torch._inductor import cudagraph_utils

from torch_openreg.cuda import libraries, memory


def allow(device_type: str) -> None:
    """Let what one device computes be captured, as what one GPU does."""
    reason_against = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes

    def check(device_node_mapping: dict[torch.device, torch.fx.Node]) -> str | None:
        reason = reason_against(device_node_mapping)  # which forgets the devices that do not count
        devices = list(device_node_mapping)
        return None if [each.type for each in devices] == [device_type] else reason

    cudagraph_utils.check_multiple_devices_or_any_cpu_nodes = check


def read(module: ModuleType, device_type: str) -> None:
    """Fill ``torch._inductor.cudagraph_trees`` from its text, about devices of another name."""
    names = SimpleNamespace(
        **{name: getattr(source, name) for source in (memory, libraries) for name in source.__all__}
    )

    def ours(found: re.Match[str]) -> str:
        return f"_names.{found[1]}" if hasattr(names, found[1]) else found[0]

    text = re.sub(r"\btorch\._C\.(\w+)", ours, inspect.getsource(module))
    text = re.sub(r"\btorch\.cuda\b", f"torch.{device_type}", text)
    text = re.sub(r"\.is_cuda\b", f".is_{device_type}", text)
    namespace = vars(module)
    namespace["_names"] = names
    exec(compile(text, inspect.getfile(module), "exec"), namespace)
    # Branches, which are not captured, are looked for with streams of torch.cuda.
    namespace["ControlFlowOpWarmupDispatchMode"] = contextlib.nullcontext
    namespace["CUDAGraphCaptureControlFlowOpDispatchMode"] = contextlib.nullcontext
    namespace["_set_cached_tensors_enabled"] = torch._C._set_cached_tensors_enabled
