"""Runs a graph as one kernel: it is compiled for the CPU as a whole, and a call is one launch.

The CPU program accesses device memory as if it were host memory, as every CPU kernel does here. Its
allocations are on the device. The program must not do what differs between CPU and device: use
random numbers, or call operators for which a device has its own kernels.
"""

import copy
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

_operators = torch.library.Library("openreg", "FRAGMENT")
_operators.define(
    "run_whole(int program, Tensor place, Tensor(a)[] inputs, Tensor(b!)[] written, int[] numbers) "
    "-> Tensor(a)[]"
)

_Program = Callable[[list[torch.Tensor], list[torch.Tensor], list[int]], list[torch.Tensor]]
_numbers = itertools.count(1)
# By number. Calls are never queued, so the caller keeps the kernel alive until it has run.
_programs: weakref.WeakValueDictionary[int, "GraphKernel"] = weakref.WeakValueDictionary()


@torch.library.impl(_operators, "run_whole", "CPU")
def _run(
    program: int,
    place: torch.Tensor,
    inputs: list[torch.Tensor],
    written: list[torch.Tensor],
    numbers: list[int],
) -> list[torch.Tensor]:
    return _programs[program].program(list(inputs), list(written), list(numbers))


class GraphKernel:
    """A CPU program. Each call of it is one launch on a device.

    Parameters
    ----------
    program : callable
        The program. Its arguments are the tensors to read and the tensors to write, all as CPU
        tensors, and numbers. It returns a list of tensors.
    device : torch.device
        The device of the results.
    """

    def __init__(self, program: _Program, device: torch.device) -> None:
        self.program = program
        self.device = device
        self._number = next(_numbers)
        _programs[self._number] = self

    def __call__(
        self,
        inputs: Sequence[torch.Tensor],
        written: Sequence[torch.Tensor] = (),
        numbers: Sequence[int] = (),
    ) -> list[torch.Tensor]:
        place = torch.empty(0, device=self.device)
        return torch.ops.openreg.run_whole(self._number, place, inputs, written, numbers)


def nodes_of(model: GraphModule) -> Iterator[Node]:
    """Yield the nodes of a graph and of its subgraphs."""
    for module in model.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def uses_rng(node: Node) -> bool:
    """Return whether a node uses random numbers. Dropout that is off does not."""
    operator = node.target
    if (
        not isinstance(operator, torch._ops.OpOverload)
        or torch.Tag.nondeterministic_seeded not in operator.tags
    ):
        return False
    arguments = operator._schema.arguments
    given = {each.name: each.default_value for each in arguments if each.has_default_value()}
    given |= dict(zip((each.name for each in arguments), node.args, strict=False)) | node.kwargs
    in_training = given.get("train", given.get("training", True))
    return bool(in_training) and given.get("dropout_p", given.get("p", 1)) != 0


def has_cpu_kernel(operator: torch._ops.OpOverload) -> bool:
    """Return whether an operator has a CPU kernel. Some operators only exist for CUDA."""
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    return has_kernel(operator.name(), "CPU")


def to_cpu(model: GraphModule) -> GraphModule:
    """Return a copy of a graph, with its constants, for the CPU instead of a device."""
    model = copy.deepcopy(model).cpu()
    host = torch.device("cpu")
    for node in nodes_of(model):
        node.args, node.kwargs = pytree.tree_map_only(
            torch.device, lambda _: host, (node.args, node.kwargs)
        )
        node.meta["val"] = pytree.tree_map_only(
            torch.Tensor, torch.Tensor.cpu, node.meta.get("val")
        )
    for module in model.modules():
        if isinstance(module, GraphModule):
            module.recompile()
    return model
