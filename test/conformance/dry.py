"""Compare dry runs with real runs for every operator of PyTorch's database.

    python -m conformance.dry

A dry run knows no values. So a call must agree with the same call in a real run in everything that
does not depend on values: shapes, strides, dtypes and devices of results and of arguments, which
memory they share, the error, and the allocations and frees in order. Each kind of run has processes
of its own. Where a call reads unknown values, as the dry run itself says, the two may differ.
"""

import argparse
import collections
import contextlib
import json
import os
import sys
import uuid
from dataclasses import dataclass, field

from . import enlarged
from .dry_differences import reason_of
from .plan import Row, plan
from .progress import Progress
from .runner import Runner

DTYPES = ("float32", "bfloat16", "int64")

REAL = {
    "OPENREG_MEMORY_PLANS": "builtin",
    "OPENREG_LIBRARY_WORKSPACES": "cudnn:auto",
    "OPENREG_DEVICE_MEMORY": "4G",
}
DRY = {**REAL, "OPENREG_DRY_RUN": "1"}
# Nothing is known, however small.
UNKNOWN = {**DRY, "OPENREG_DRY_KNOWN_BYTES": "0"}


@dataclass
class Observed(Row):
    """A row with what was observed of each call: the label of the call, and the observation."""

    calls: list = field(default_factory=list)


# ---- one call, in a worker -----------------------------------------------------------------------


class _Memory:
    """Records what a call allocates and frees. Blocks freed one after the other are sorted."""

    def __init__(self):
        import torch

        from .inputs import DEVICE

        self._module = torch.get_device_module(DEVICE)

    @contextlib.contextmanager
    def recording(self, events):
        self._module.synchronize()
        self._module.empty_cache()
        memory = self._module.memory
        memory._record_memory_history(context=None, clear_history=True)
        try:
            yield
        finally:
            self._module.synchronize()
            (trace, *_) = memory._snapshot()["device_traces"]
            memory._record_memory_history(enabled=None)
            freed = []
            for each in trace:
                if each["action"] == "free_requested":
                    freed.append(-each["size"])
                elif each["action"] in ("alloc", "segment_alloc", "segment_free"):
                    events += [*sorted(freed), f"{each['action']} {each['size']}"]
                    freed = []
            events += sorted(freed)


def _describe(values, storages):
    """Describe what values are like. `storages` numbers the memory of tensors."""
    import torch
    from torch.utils._pytree import tree_leaves

    described = []
    for each in tree_leaves(values):
        if not isinstance(each, torch.Tensor):
            number = isinstance(each, (bool, int, float, complex, str, torch.dtype))
            described.append(repr(each) if number else type(each).__name__)
            continue
        words = {
            "class": type(each).__name__,
            "shape": list(map(str, each.shape)),
            "dtype": str(each.dtype),
            "device": str(each.device),
            "layout": str(each.layout),
            "requires_grad": each.requires_grad,
        }
        if each.layout == torch.strided and not each.is_nested:
            storage = each.untyped_storage()
            words |= {
                "strides": each.stride(),
                "offset": each.storage_offset(),
                "bits": [each.is_conj(), each.is_neg()],
                "memory": storages.setdefault(storage._cdata, (len(storages), storage))[0],
                "bytes": storage.nbytes(),
            }
        described.append(words)
    return json.loads(json.dumps(described))  # as it arrives from another process


def _count_reads():
    from torch_openreg.dry import reads

    return sum(count for _, count in reads.report())


def observe(call, given, memory):
    """Run a call with copies of the arguments on the device, and return what is observed.

    The call runs twice. What the first call of a signature takes is not always that of later ones.
    """
    _run(call, given, memory)
    return _run(call, given, memory)


def _run(call, given, memory):
    import torch
    from torch.utils._pytree import tree_leaves

    from .comparison import names_a_device
    from .inputs import DEVICE, move

    torch.manual_seed(7)
    arguments = move(given, DEVICE)
    tensors = [each for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)]
    storages, events = {}, []
    before = _describe(arguments, storages)
    found = {"error": None, "results": [], "changed": []}
    reads = _count_reads()
    with memory.recording(events):
        try:
            with contextlib.nullcontext() if names_a_device(arguments) else DEVICE:
                result = call(arguments, DEVICE)
        except Exception as error:
            found["error"] = [type(error).__name__, str(error)]
            error.__traceback__ = None  # its frames would keep tensors alive
    if found["error"] is None:
        found["results"] = _describe(result, storages)
    after = _describe(arguments, storages)
    found["changed"] = [[a, b] for a, b in zip(before, after, strict=True) if a != b]
    return found | {
        "events": events,
        "reads": _count_reads() - reads,
        "elements": sum(each.numel() for each in tensors),
    }


def _calls_of(task, size):
    from .calls import arguments_of, calling
    from .catalogue import describe, samples, subjects
    from .errors import error_inputs
    from .gradients import gradients_of
    from .plan import dtype_of

    subject, dtype = subjects()[task.subject], dtype_of(task.dtype)
    is_gradient = task.check == "gradients"
    function = subject.info.op
    if task.check == "errors":
        listed = [each.sample_input for each in error_inputs(subject.info, "cpu")]
    else:
        listed = samples(subject, dtype, requires_grad=is_gradient)
    for sample in listed:
        if size:
            sample = enlarged.enlarge(function, sample, size)
            if sample is None:
                continue
        call = calling(function)
        if is_gradient:
            call = gradients_of(function, sample.output_process_fn_grad)
        yield describe(sample), call, arguments_of(subject, sample)


def serve(connection, limit, said):
    """Be a worker of `Runner`: observe the calls of tasks until None comes."""
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())

    import itertools
    import warnings

    import torch
    import torch_openreg  # noqa: F401

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    size = int(os.environ.get("CONFORMANCE_ENLARGED", "0"))
    memory = _Memory()
    while (tasks := connection.recv()) is not None:
        for task in tasks:
            os.ftruncate(output, 0)
            row = Observed(task.check, task.subject, task.dtype)
            for label, call, arguments in itertools.islice(_calls_of(task, size), limit):
                row.calls.append((label, observe(call, arguments, memory)))
            connection.send(row)


# ---- all calls -----------------------------------------------------------------------------------


def observe_all(planned, variables, *, jobs, limit, size):
    """Observe the calls of all tasks in processes with some variables."""
    saved = dict(os.environ)
    os.environ.update(variables, OPENREG_GROUP=f"conformance-{uuid.uuid4().hex}")
    os.environ["CONFORMANCE_ENLARGED"] = str(size)
    try:
        progress = Progress(sum(map(len, planned.values())))
        return Runner(jobs=jobs, limit=limit, report=progress, serve=serve).run(planned)
    finally:
        os.environ.clear()
        os.environ.update(saved)


def difference(real, dry):
    """Return the kind of the first difference and a description; None if there is none."""
    for kind in ("error", "results", "changed", "events"):
        if real[kind] != dry[kind]:
            a, b = real[kind], dry[kind]
            if isinstance(a, list) and isinstance(b, list) and kind != "error":
                i = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
                i = min(len(a), len(b)) if i is None else i
                a, b = a[i : i + 3], b[i : i + 3]
                if a and b and isinstance(a[0], dict) and isinstance(b[0], dict):
                    keys = [key for key in a[0] if a[0].get(key) != b[0].get(key)]
                    a, b = ({key: each[0].get(key) for key in keys} for each in (a, b))
            return kind, f"real {str(a)[:240]}, dry {str(b)[:240]}"
    return None


def compare(real, dry):
    """Compare the rows of both runs. Return how many calls there are of each outcome, and groups.

    A group has a kind, a subject, a check and a dtype, and the calls that differ in this way.
    """
    outcomes, groups = collections.Counter(), collections.defaultdict(list)
    for row, other in zip(real, dry, strict=True):
        assert (row.check, row.subject, row.dtype) == (other.check, other.subject, other.dtype)
        crash = row.crash or other.crash
        if crash:
            outcomes["different"] += 1
            groups["crash", row.subject, row.check, row.dtype].append(("", crash))
            continue
        for (label, a), (_, b) in zip(row.calls, other.calls, strict=True):
            found = difference(a, b)
            if found is None:
                outcomes["same"] += 1
            elif b["reads"]:
                outcomes["reads unknown values"] += 1
            elif reason_of(row, found[0], a, b) is not None:
                outcomes[reason_of(row, found[0], a, b)] += 1
            else:
                outcomes["different"] += 1
                groups[found[0], row.subject, row.check, row.dtype].append((label, found[1]))
    return outcomes, groups


def _names(text):
    return tuple(name for name in text.split(",") if name)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m conformance.dry",
        description="Compare dry runs with real runs for every operator of PyTorch's database. "
        "Exits with 1 if calls differ that may not.",
    )
    parser.add_argument("--only", type=_names, default=(), metavar="NAMES", help="these operators")
    parser.add_argument("--dtype", type=_names, default=DTYPES, metavar="DTYPES")
    parser.add_argument("--limit", type=int, metavar="N", help="N calls of each operator and dtype")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--json", metavar="FILE", help="write all differences to a file")
    parser.add_argument(
        "--bytes",
        type=int,
        default=0,
        metavar="N",
        help="enlarge tensors to N bytes, where the operator allows it, and let small values be "
        "known; by default no value is known, however small",
    )
    return parser


def main(arguments=None):
    options = _parser().parse_args(arguments)
    planned = plan(
        checks=("forward", "errors", "gradients"), only=options.only, dtypes=options.dtype
    )
    planned = {
        name: [task for task in tasks if task.check != "gradients" or task.dtype == "float32"]
        for name, tasks in planned.items()
    }
    ways = {"jobs": options.jobs, "limit": options.limit, "size": options.bytes}
    real = observe_all(planned, REAL, **ways)
    dry = observe_all(planned, DRY if options.bytes else UNKNOWN, **ways)
    outcomes, groups = compare(real, dry)
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    for (kind, *where), calls in sorted(groups.items()):
        label, words = calls[0]
        print(f"{kind}: {', '.join(where)}: {len(calls)} calls: ({label}): {words}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump([[*key, *each] for key, calls in groups.items() for each in calls], file)
    return 1 if groups or not outcomes["same"] else 0


if __name__ == "__main__":
    sys.exit(main())
