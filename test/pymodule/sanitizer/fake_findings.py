"""Made-up findings, in the form that the extension reports them."""

BLOCK_BYTES = 4096


def stack(line, function="<module>", file="/nowhere/train.py"):
    return [(file, line, function)]


def block(line=1, freed=None, **changes):
    where = None if freed is None else stack(freed, **changes)
    return {"bytes": BLOCK_BYTES, "stack": stack(line, **changes), "freed": where}


def access(line, **changes):
    """Return a read of a tensor of 1000 numbers on the first device, which line 1 allocated."""
    made = {
        "operator": "aten::mul",
        "argument": "self",
        "mode": "reads",
        "shape": [1000],
        "dtype": "float32",
        "device": 0,
        "stream": 3,
        "stream_device": 0,
        "stack": stack(line),
        "forward": None,
        "block": block(),
    }
    assert changes.keys() <= made.keys()
    return made | changes


def write(line, **changes):
    """Return a write on the default stream."""
    made = {"operator": "aten::add_", "mode": "writes", "stream": 0}
    return access(line, **(made | changes))


def finding(kind, first, second, **changes):
    made = {
        "kind": kind,
        "count": 1,
        "bytes": (0, 4000),
        "first": first,
        "second": second,
        "event": None,
    }
    assert changes.keys() <= made.keys()
    return made | changes


def race(first=2, second=3):
    return finding("race", write(first), access(second))
