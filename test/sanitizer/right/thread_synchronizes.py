"""nothing: a thread synchronizes with its stream before the main thread goes on."""

import threading

import torch

from device import DEVICE, module

results = []


def produce():
    stream = module.Stream()
    with module.stream(stream):
        results.append(torch.full((100,), 3.0, device=DEVICE))
    stream.synchronize()


producer = threading.Thread(target=produce)
producer.start()
producer.join()
y = results[0] + 1
