"""nothing: a thread produces on a stream of its own, and hands over an event with the tensor."""

import queue
import threading

import torch

from device import DEVICE, module

results = queue.Queue()


def produce():
    with module.stream(module.Stream()):
        for step in range(3):
            x = torch.full((100,), float(step), device=DEVICE)
            results.put((x, module.current_stream().record_event()))


producer = threading.Thread(target=produce)
producer.start()
kept = []
for _ in range(3):
    x, ready = results.get()
    module.current_stream().wait_event(ready)
    kept.append((x, x + 1))
producer.join()
