"""race: a thread produces on a stream of its own, and hands over the tensor without an event."""

import queue
import threading

import torch

from device import DEVICE, module

results = queue.Queue()


def produce():
    with module.stream(module.Stream()):
        results.put(torch.full((100,), 3.0, device=DEVICE))  # first


producer = threading.Thread(target=produce)
producer.start()
x = results.get()
producer.join()
y = x + 1  # second
