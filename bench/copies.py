"""Copies of 64 MiB between host and devices, compared with ``copy_`` and ``clone`` on the CPU."""

import torch
from harness import Table, one_thread, run

MIB = 1 << 20


def main() -> None:
    """Print the table."""
    one_thread()
    elements = 64 * MIB // 4
    host, other_host = torch.ones(elements), torch.ones(elements)
    device, peer = host.to("openreg:0"), host.to("openreg:1")

    table = Table("Copies of 64 MiB: rate / rate on the CPU, one thread", "copy")
    pairs = {
        "copy_, host to device": lambda: device.copy_(host),
        "copy_, device to host": lambda: host.copy_(device),
        "copy_, device 0 to device 1": lambda: peer.copy_(device),
    }
    for name, work in pairs.items():
        table.measure(
            name, work, lambda: other_host.copy_(host), turns=15, seconds=0.05, at_least=0.95
        )
    results = {
        "x.to('openreg') / x.clone()": lambda: host.to("openreg"),
        "device clone / x.clone()": lambda: device.clone(),
    }
    for name, work in results.items():
        table.measure(name, work, host.clone, turns=15, seconds=0.05, at_least=7)


if __name__ == "__main__":
    run(main)
