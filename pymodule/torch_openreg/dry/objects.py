"""Python objects that ranks exchange in a dry run.

Their bytes stay true, however many they are. A rank that stands for others (``--represent``) gets
no object from a rank that does not run: it keeps what it has itself, which is recorded.
"""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from torch_openreg import _C

__all__ = ["apply"]

Call = dict[str, Any]
Record = Callable[[str, str], Any]


def _is_represented(group: Any, device: Any) -> bool:
    """Return whether this rank stands for all ranks of a group when it exchanges objects."""
    running = {int(rank) for rank in os.environ["OPENREG_DRY_REPRESENT"].split(",")}
    if not running.issuperset(distributed.get_process_group_ranks(group)):
        return True
    device = torch.device(device or distributed.distributed_c10d._get_object_coll_device(group))
    return isinstance(group._get_backend(device), _C.RepresentedGloo)


def _absent_source(call: Call) -> int | None:
    """Return the rank of the job that these objects come from, if it cannot send them."""
    group, source, source_in_group = (call.get(name) for name in ("group", "src", "group_src"))
    group = group or distributed.group.WORLD
    if group is None or distributed.get_rank(group) < 0:
        return None
    if source_in_group is not None:
        source = distributed.get_global_rank(group, source_in_group)
    if source in (None, distributed.get_rank()) or not _is_represented(group, call.get("device")):
        return None
    return source


def _keep_list(call: Call, source: int, record: Record) -> None:
    record("broadcast_object_list", f"own list, not that of rank {source}")


def _keep_object(call: Call, source: int, record: Record) -> None:
    inputs = call.get("scatter_object_input_list")
    rank = distributed.get_rank(call.get("group"))
    if inputs and len(inputs) > rank:
        call["scatter_object_output_list"][0] = inputs[rank]
    record("scatter_object_list", f"own object, not that of rank {source}")


def _refuse(call: Call, source: int, record: Record) -> None:
    raise RuntimeError(
        f"openreg: recv_object_list: rank {source}, which sends the objects, is one of those that "
        f"rank {distributed.get_rank()} stands for. Let all ranks of the group run: name them in "
        "--represent"
    )


def _exchange(name: str, answer: Any, record: Record) -> None:
    """Let a function of torch.distributed keep objects true."""
    function = getattr(distributed, name)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def exchange(*arguments: Any, **keywords: Any) -> Any:
        if answer is not None and os.environ.get("OPENREG_DRY_REPRESENT"):
            call = signature.bind(*arguments, **keywords).arguments
            source = _absent_source(call)
            if source is not None:
                return answer(call, source, record)
        return _C.call_in_known_scope(function, *arguments, **keywords)

    for module in (distributed.distributed_c10d, distributed):
        setattr(module, name, exchange)


def apply(record: Record) -> None:
    """Start it. `record` gets the function that has no true objects, and what it left instead."""
    if not distributed.is_available():
        return
    for name in ("all_gather_object", "gather_object", "send_object_list"):
        _exchange(name, None, record)
    _exchange("broadcast_object_list", _keep_list, record)
    _exchange("scatter_object_list", _keep_object, record)
    _exchange("recv_object_list", _refuse, record)
