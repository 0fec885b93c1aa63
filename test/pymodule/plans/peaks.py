"""The memory that a call takes, and what its plan says."""

from torch_openreg.plans.ask import plan

from device import module


def counters():
    stats = module.memory_stats()
    return [
        stats[f"{each}.all.{kind}"]
        for each in ("allocation", "requested_bytes")
        for kind in ("allocated", "freed")
    ]


def taken_by(work):
    """Return how often work takes and frees memory, the bytes, and the peak."""
    module.synchronize()
    before = counters()
    module.reset_peak_memory_stats()
    base = module.memory_allocated()
    result = work()
    peak = module.max_memory_allocated() - base
    after = counters()
    del result
    return [late - early for late, early in zip(after, before, strict=True)], peak


def peak_of(events):
    """Return the most that the events of a plan hold, in blocks of 512 bytes."""
    taken = [event for event in events if event > 0]
    held = peak = 0
    for event in events:
        size = event if event > 0 else taken[-event - 1]
        held += (1 if event > 0 else -1) * -(-size // 512) * 512
        peak = max(peak, held)
    return peak


def planned(operator, arguments, source, keywords=None, takes_more=True):
    """Return the same figures, according to the plan, which frees blocks if it `takes_more`."""
    name = str(operator._schema).partition("(")[0]
    answer = plan(name, arguments, keywords, source=source)
    assert answer is not None and answer.error is None
    taken = [event for event in answer.events if event > 0]
    freed = [taken[-event - 1] for event in answer.events if event < 0]
    assert freed or not takes_more  # otherwise the test shows nothing
    return [len(taken), len(freed), sum(taken), sum(freed)], peak_of(answer.events)
