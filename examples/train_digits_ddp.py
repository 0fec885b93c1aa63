"""Train the classifier of handwritten digits with a process for each device: torch.distributed.

The network, batches and schedule are those of `train_digits.py`. That program sums the gradients by
hand in one process. Here `DistributedDataParallel` does it, or FSDP2 with `--fsdp`. With FSDP2 each
device holds a shard of every parameter, and the whole parameter only while it computes with it.
Nothing is specific to simulated devices:

    openreg run --ranks 4 examples/train_digits_ddp.py

torchrun works as well. The program ends with an error if less than 97 % of the test images are
recognised, or if the ranks end with different networks.
"""

import argparse
import sys
from typing import NamedTuple

import torch
import torch.distributed as dist
from digits import BATCH, batches, load_images, make_network
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

LEARNING_RATE = 0.01  # the maximum of the schedule
REQUIRED_ACCURACY = 97.0  # percent
KIB = 2**10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsdp", action="store_true", help="shard the parameters with FSDP2")
    parser.add_argument("--epochs", type=int, default=15, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    return parser.parse_args()


class Summary(NamedTuple):
    """The results of one rank."""

    device: str
    name: str
    parameters: int  # number of elements on this rank
    peak: int  # bytes
    loss: float  # the last batch, over all ranks


# ---- training ------------------------------------------------------------------------------------


def distribute(network, device, fsdp):
    """Return the network of this rank, wrapped by DDP or FSDP2."""
    network = network.to(device)
    if not fsdp:
        return DistributedDataParallel(network, device_ids=[device])
    for layer in network:
        if list(layer.parameters()):
            fully_shard(layer)
    return fully_shard(network)


def share(indices):
    """Return this rank's share of a batch."""
    return indices.tensor_split(dist.get_world_size())[dist.get_rank()]


def train(network, images, labels, options):
    """Train the network; return the loss of the last batch."""
    optimizer = torch.optim.Adam(network.parameters())
    steps = options.epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps + 1)
    for batch in batches(len(images), options.epochs, options.seed):
        part = share(batch)
        scores = network(images[part])
        loss = F.cross_entropy(scores, labels[part], reduction="sum", label_smoothing=0.1)
        # DDP and FSDP2 average gradients over the ranks, whose shares may differ in size.
        loss = loss * dist.get_world_size() / BATCH
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def accuracy(network, images, labels):
    """Return the percentage of recognised images. Each rank classifies a part of them."""
    part = share(torch.arange(len(images)))
    with torch.no_grad():
        right = (network(images[part]).argmax(dim=1) == labels[part]).sum()
    dist.all_reduce(right)
    return 100 * right.item() / len(images)


def whole(parameter):
    """Return the whole parameter. This rank may hold only a shard of it."""
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def are_equal(network):
    """Return whether all ranks have the same network, bit for bit."""
    mine = torch.cat([whole(parameter).detach().flatten() for parameter in network.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    differ = (mine != first).sum()
    dist.all_reduce(differ)
    return differ.item() == 0


# ---- what is shown -------------------------------------------------------------------------------


def summarize(network, device, loss):
    """Return the results of this rank."""
    module = torch.get_device_module(device)
    parameters = network.parameters()
    held = [p.to_local() if isinstance(p, DTensor) else p for p in parameters]
    return Summary(
        str(device),
        module.get_device_name(device),
        sum(tensor.numel() for tensor in held),
        module.max_memory_allocated(device),
        loss,
    )


def print_summaries(title, percent, summaries):
    """Print one line for the training and one line per rank."""
    print(f"{title}: {percent:.2f} % of the test images, loss {summaries[0].loss:.3f}\n")
    print(f"{'rank':<6}{'device':<12}{'simulated GPU':<28}{'parameters':>12}{'memory, peak':>16}")
    for rank, summary in enumerate(summaries):
        print(
            f"{rank:<6}{summary.device:<12}{summary.name:<28}{summary.parameters:>12}"
            f"{summary.peak / KIB:>12.0f} KiB"
        )
    sys.stdout.flush()


def main():
    options = parse_arguments()
    dist.init_process_group()
    kind = torch.accelerator.current_accelerator()
    assert kind is not None  # `openreg run` provides one
    device = torch.device(kind.type, dist.get_node_local_rank())
    torch.accelerator.set_device_index(device.index)

    data = load_images(options.seed)
    images, labels, test_images, test_labels = (tensor.to(device) for tensor in data)
    torch.manual_seed(options.seed)
    network = distribute(make_network(), device, options.fsdp)
    loss = train(network, images, labels, options)
    percent = accuracy(network, test_images, test_labels)
    equal = are_equal(network)

    summaries = [None] * dist.get_world_size()
    dist.all_gather_object(summaries, summarize(network, device, loss))
    if dist.get_rank() == 0:
        how = "FSDP2" if options.fsdp else "DistributedDataParallel"
        print_summaries(f"{len(summaries)} ranks, {how}", percent, summaries)
    dist.destroy_process_group()

    if not equal:
        sys.exit("train_digits_ddp: the ranks do not have the same network")
    if percent < REQUIRED_ACCURACY:
        sys.exit(
            f"train_digits_ddp: {percent:.2f} % of the test images were recognised; expected at "
            f"least {REQUIRED_ACCURACY:.0f} %"
        )


if __name__ == "__main__":
    main()
