"""Why a dry run may differ from a real run, besides values that it reads."""

# launch/kernel_memory.h: of a launch with so few elements, a real run counts only the results.
MOVED_ELEMENTS = 1024

_STRIDES = "a real run has strides of the CPU's kernel, a dry run those of CUDA's"
_ORDER = "a dry run allocates results in the order in which the operator returns them"
_MASK = "a mask of unknown values selects nothing"
_CHECKS = "PyTorch's meta function raises another error than the kernel, or none"
_SMALL = "a small launch of a real run counts only its results"


def _without_strides(described):
    keys = ("strides", "memory")
    return [
        {key: value for key, value in each.items() if key not in keys}
        if isinstance(each, dict)
        else each
        for each in described
    ]


def _is_within(few, many):
    """Return whether the events are among the others, in order."""
    remaining = iter(many)
    return all(each in remaining for each in few)


def reason_of(row, kind, real, dry):
    """Return why a call differs in its results, events or error; None if nobody says."""
    if kind == "results" and _without_strides(real[kind]) == _without_strides(dry[kind]):
        return _STRIDES
    if kind == "error" and row.check == "errors" and real["error"] is not None:
        return _CHECKS
    if kind == "events":
        if row.subject.startswith("index_put") and _is_within(dry[kind], real[kind]):
            return _MASK
        if sorted(map(str, real[kind])) == sorted(map(str, dry[kind])):
            return _ORDER
        if real["elements"] <= MOVED_ELEMENTS and _is_within(real[kind], dry[kind]):
            return _SMALL
    return None
