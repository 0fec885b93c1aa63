"""A graph as one kernel: compiled for the CPU as a whole, a call of it is one launch.

The program is the CPU's, and takes the device's memory for the host's, as every kernel of the CPU
does; what it allocates lies on the device. So it must not do what differs between the two: draw
random numbers, or call what a device has kernels of its own for.
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
# By number. A call is never queued, so whoever calls one has it until it has run.
_programs: weakref.WeakValueDictionary[int, "Launched"] = weakref.WeakValueDictionary()


@torch.library.impl(_operators, "run_whole", "CPU")
def _run(
    program: int,
    place: torch.Tensor,
    inputs: list[torch.Tensor],
    written: list[torch.Tensor],
    numbers: list[int],
) -> list[torch.Tensor]:
    return _programs[program].program(list(inputs), list(written), list(numbers))


class Launched:
    """A program of the CPU, of which a call is one launch on a device.

    Parameters
    ----------
    program : callable
        Is given the tensors that are read, those that are written, both as tensors of the CPU, and
        numbers; returns a list of tensors.
    device : torch.device
        Where the results lie.
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
    """Yield the nodes of a graph and of those within it."""
    for module in model.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def draws(node: Node) -> bool:
    """Return whether a node draws random numbers: dropout that is off does not."""
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


def is_of_host(operator: torch._ops.OpOverload) -> bool:
    """Return whether the CPU has an operator: CUDA has some of its own."""
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    return has_kernel(operator.name(), "CPU")


def on_host(model: GraphModule) -> GraphModule:
    """Return a copy of a device's graph that is the CPU's, with its constants."""
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
