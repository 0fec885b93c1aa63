"""`torch.func.vmap`: the operator over a batch of two, of every tensor argument."""

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .calls import calling, case
from .catalogue import samples


def batched(subject, dtype):
    def call(arguments, device):
        leaves, tree = tree_flatten(arguments)
        places = [i for i, each in enumerate(leaves) if isinstance(each, torch.Tensor)]

        def one(*tensors):
            given = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            return calling(subject.info.op)(tree_unflatten(given, tree), device)

        batch = [torch.stack([leaves[place], leaves[place]]) for place in places]
        return torch.func.vmap(one, randomness="different")(*batch)

    for sample in samples(subject, dtype):
        yield case(subject, f"vmap of {subject.name}", sample, call)
