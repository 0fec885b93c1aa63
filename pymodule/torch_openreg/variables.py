"""The table of environment variables: names, defaults, allowed values and meanings.

To add a variable, add a row here and read it in the code that uses it. Everything else follows from
the table:

- ``tools/write-configuration`` writes the table of ``docs/configuration.md``.
- A row with an `option` becomes an option of ``openreg run`` or ``openreg sanitize``.
- ``openreg doctor`` warns about variables that start with ``OPENREG_`` and are not in the table.
- ``test/pymodule/module/test_variables.py`` compares the table with the sources: the names that are
  read, the defaults, and the sentences that refuse a value.

This module imports neither PyTorch nor the rest of the package, so that every command can use it.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Variable(NamedTuple):
    """One environment variable.

    Parameters
    ----------
    name
        The name of the variable.
    default
        What applies if the variable is not set or empty, as shown in the documentation.
    allowed
        The allowed values. Where openreg rejects a value, the error says "expected" and this text.
    meaning
        What the variable does: plain sentences, in Markdown.
    link
        A Markdown link to the page of ``docs/`` that says more; "" for none.
    option
        The command and the option that set the variable, such as "run --devices N"; "" for none.
    help
        The help text of the option.
    """

    name: str
    default: str
    allowed: str
    meaning: str
    link: str = ""
    option: str = ""
    help: str = ""


SWITCH = "0 or 1"
_PREFIX = "OPENREG_"

VARIABLES = (
    # ---- the devices
    Variable(
        "OPENREG_DEVICE_TYPE",
        "openreg",
        "openreg or cuda",
        "The device type of the simulated devices in PyTorch. `cuda` must be set before Python "
        "starts. `openreg run` sets `cuda` unless the variable is set.",
        link="[CUDA mode](cuda-mode.md)",
    ),
    Variable(
        "OPENREG_DEVICE_COUNT",
        "2",
        "1 to 64",
        "The number of devices. `openreg run --ranks N` sets it to N unless it is set.",
        option="run --devices N",
        help="number of devices, 1 to 64",
    ),
    Variable(
        "OPENREG_DEVICE_MEMORY",
        "the memory of the profile, or an equal share of the machine's memory if that is smaller",
        "a size such as 8G or 512M, from 2M to 64T, for all devices, or one size per device, "
        "separated by commas",
        "The memory capacity of each device.",
        link="[Memory](memory.md)",
        option="run --memory SIZE[,SIZE...]",
        help="memory of every device, such as 8G, or one size per device, such as 8G,4G",
    ),
    Variable(
        "OPENREG_PROFILE",
        "h100",
        "a GPU name such as h100 for all devices, or one name per device, separated by commas",
        "The GPU whose properties and random numbers the devices have: `h100`, `a100`, `v100`, "
        "`t4`, `rtx4090` and others. A value such as `48x1536` sets the number of multiprocessors "
        "and of threads on each.",
        link="[Contexts and workspaces](gpu-memory.md)",
        option="run --profile NAME[,NAME...]",
        help="GPU that all devices imitate, such as h100, a100, t4 or rtx4090, or one per device",
    ),
    Variable(
        "OPENREG_VISIBLE_DEVICES",
        "all devices",
        "device indices or UUIDs, separated by commas",
        "The devices that the process sees, in this order. An empty value hides all devices. With "
        "the device type `cuda`, `CUDA_VISIBLE_DEVICES` is read instead.",
        link="[CUDA mode](cuda-mode.md)",
    ),
    Variable(
        "OPENREG_CUDA_VERSION",
        "PyTorch's own, or 13.0 in its CPU build",
        "a CUDA version such as 12.8, or `none`",
        "The value of `torch.version.cuda` with the device type `cuda`. `none`: PyTorch's own, "
        "which is `None` in its CPU build.",
        link="[CUDA mode](cuda-mode.md)",
        option="run --cuda-version X.Y",
        help="value of torch.version.cuda, such as 12.8, or none for PyTorch's own",
    ),
    # ---- several processes
    Variable(
        "OPENREG_GROUP",
        "one group for all processes with the same devices",
        "1 to 63 letters, digits, '_', '.' or '-'",
        "The name of the device group. Processes of one user and group share the devices and their "
        "memory.",
        link="[Several devices](distributed.md)",
    ),
    Variable(
        "OPENREG_SHARE_DEVICE",
        "0",
        SWITCH,
        "`1`: two ranks of a process group may use the same device.",
        link="[Several devices](distributed.md)",
    ),
    Variable(
        "OPENREG_HOST",
        "none",
        "any text",
        "Treat ranks with different values as being on different hosts (for testing multi-host "
        "code).",
        link="[Several hosts](distributed.md#several-hosts)",
    ),
    # ---- execution
    Variable(
        "OPENREG_LAUNCH_BLOCKING",
        "0",
        SWITCH,
        "`1`: every operator finishes before it returns, so errors are raised by the operator that "
        "caused them.",
        link="[Debugging](debugging.md)",
    ),
    Variable(
        "OPENREG_AUTOGRAD_THREADS",
        "",
        SWITCH,
        "`1`: run every backward on a thread of its device, as with GPUs. `0`: run every backward "
        "on the calling thread. By default the calling thread is used where a program cannot tell "
        "the difference.",
        link="[Architecture](architecture.md#backward)",
    ),
    Variable(
        "OPENREG_SIMD",
        "the widest that the machine supports",
        "c, avx2 or avx512",
        "The instruction set for random numbers and the gradient scaler. Results are identical "
        "with each.",
        link="[Random numbers](random.md)",
    ),
    # ---- dry runs
    Variable(
        "OPENREG_DRY_RUN",
        "0",
        SWITCH,
        "`1`: a dry run. All memory is allocated as on a GPU, but large kernels do not run. "
        "Devices have the memory of their profile, unless `OPENREG_DEVICE_MEMORY` is set.",
        link="[Dry runs](dry-run.md)",
        option="run --dry",
        help="find out whether a job fits: allocate all memory, but run no large kernel",
    ),
    Variable(
        "OPENREG_DRY_UNKNOWN",
        "zero",
        "zero or error",
        "What the host gets in a dry run when it reads a value that was not computed: `zero`, or "
        "an error (`error`).",
        link="[Dry runs](dry-run.md#known-and-unknown-values)",
        option="run --unknown RULE",
        help="what a dry run returns for a value that was not computed: zero (default) or error",
    ),
    Variable(
        "OPENREG_DRY_ROUTING",
        "even",
        "even or zero",
        "How many tokens each expert of a mixture of experts gets in a dry run: equally many, or "
        "none.",
        link="[Dry runs](dry-run.md#known-and-unknown-values)",
        option="run --routing RULE",
        help="how many tokens each expert gets in a dry run: even (default) or zero",
    ),
    Variable(
        "OPENREG_DRY_REPRESENT",
        "none",
        "ranks such as 0 or 0,7",
        "The ranks of a dry run that stand for all others. `openreg run --represent` sets it for "
        "these ranks.",
        link="[Dry runs](dry-run.md#several-ranks)",
    ),
    Variable(
        "OPENREG_DRY_KNOWN_BYTES",
        "1M",
        "a size such as 64K or 1M, from 0 to 1G",
        "Kernels of a dry run that read known values run if their tensors have at most so many "
        "bytes.",
        link="[Dry runs](dry-run.md#known-and-unknown-values)",
    ),
    # ---- finding errors
    Variable(
        "OPENREG_HOST_ACCESS",
        "0",
        SWITCH,
        "`1`: host code may read and write device memory.",
        link="[Memory](memory.md)",
    ),
    Variable(
        "OPENREG_DEBUG_MEMORY",
        "0",
        SWITCH,
        "`1`: report writes to freed memory and beyond the end of a block, with the stack of the "
        "allocation. New memory is filled with NaN. Slow.",
        link="[Memory](memory.md)",
    ),
    Variable(
        "OPENREG_GPU_OVERHEAD",
        "0",
        SWITCH,
        "`1`: also count the device memory that a GPU uses besides tensors: a context per process "
        "and the cuBLAS workspaces.",
        link="[Contexts and workspaces](gpu-memory.md)",
    ),
    Variable(
        "OPENREG_NCCL_MEMORY",
        "388 for 1 rank, 544 for 2, 688 for more",
        "a number of MiB up to 1048576",
        "With `OPENREG_GPU_OVERHEAD=1`: the device memory that each communicator takes, an "
        "estimate.",
        link="[Memory of NCCL](gpu-memory.md#memory-of-nccl)",
    ),
    Variable(
        "OPENREG_MEMORY_PLANS",
        "none",
        "none, planner, builtin or auto",
        "Source of the device memory that operators take and free on CUDA while they run. "
        "`planner`: PyTorch's CUDA build. `builtin`: formulas of openreg. `auto`: the CUDA build "
        "if there is one, and the formulas where it has no plan. `none`: operators hold their "
        "results only.",
        link="[Memory plans](memory-plans.md)",
    ),
    Variable(
        "OPENREG_LIBRARY_WORKSPACES",
        "none",
        "a list such as cudnn:64M,cufft:512K of the libraries cudnn, cufft, cusolver and cusparse",
        "With memory plans: the workspace that each call of a library takes. With `cudnn`, "
        "convolutions take cuDNN's memory, otherwise that of PyTorch's own kernels. `cudnn:auto`, "
        "the default of dry runs: an estimate for each call.",
        link="[What libraries decide](gpu-memory.md#what-libraries-decide)",
    ),
    Variable(
        "OPENREG_REPORT",
        "none",
        "text, or files that end in .json or .html, separated by colons",
        "Print a report of memory when the program ends, and write it to these files. `text`: no "
        "files.",
        link="[The report](dry-run.md#the-report)",
        option="run --report FILE",
        help="when the program ends, print a report of memory and write it to a .json or .html "
        "file; `text` for no file; may be repeated",
    ),
    Variable(
        "OPENREG_BLOCK_OPERATORS",
        "none",
        "operators such as aten::svd or aten::add.Tensor, separated by commas",
        "Operators to reject, as a device that does not implement them. A name without an overload "
        "stands for all its overloads.",
        link="[Testing](testing.md)",
    ),
    Variable(
        "OPENREG_UNSUPPORTED_DTYPES",
        "none",
        "dtypes such as float64 or bfloat16, separated by commas",
        "Dtypes to reject. If `float64` is listed, print tensors with `x.cpu()`: PyTorch formats "
        "in float64.",
        link="[Testing](testing.md)",
    ),
    # ---- the sanitizer
    Variable(
        "OPENREG_SANITIZER",
        "0",
        SWITCH,
        "`1`: find races and other invalid memory accesses, print them, and make the program exit "
        "with status 86.",
        link="[Find a race](sanitizer.md#options-and-variables)",
    ),
    Variable(
        "OPENREG_SANITIZER_EXITCODE",
        "86",
        "0 to 255",
        "The exit status of a program with findings. `0` keeps the status of the program.",
        link="[Find a race](sanitizer.md#options-and-variables)",
        option="sanitize --error-exitcode N",
        help="exit status if there are findings, 0 to 255; 0 keeps the command's own (default 86)",
    ),
    Variable(
        "OPENREG_SANITIZER_ONLY",
        "all kinds except leak",
        "kinds such as race or use-after-free, separated by commas",
        "The kinds of findings to look for.",
        link="[Find a race](sanitizer.md#options-and-variables)",
        option="sanitize --only KIND[,KIND...]",
        help="kinds of findings to look for: race, use-after-free, host-access, "
        "uninitialised-read, unordered-event, never-waited, out-of-bounds, leak (default: all "
        "except leak)",
    ),
    Variable(
        "OPENREG_SANITIZER_SUPPRESSIONS",
        "none",
        "a file",
        "A file of findings to suppress.",
        link="[Find a race](sanitizer.md#options-and-variables)",
        option="sanitize --suppressions FILE",
        help="file of findings to suppress",
    ),
    Variable(
        "OPENREG_SANITIZER_STACKS",
        "0",
        SWITCH,
        "`1`: print whole stacks, including the frames of libraries.",
        link="[Find a race](sanitizer.md#options-and-variables)",
        option="sanitize --stacks",
        help="print whole stacks, including the frames of libraries",
    ),
    Variable(
        "OPENREG_SANITIZER_LEAKS",
        "0",
        SWITCH,
        "`1`: also report memory that is still allocated when the program ends.",
        link="[Find a race](sanitizer.md#options-and-variables)",
        option="sanitize --leaks",
        help="also report memory that is still allocated when the program ends",
    ),
)

# Set by `openreg sanitize` for the processes that it watches: the path of its socket.
SANITIZER_SOCKET = "OPENREG_SANITIZER_SOCKET"
# Set by `openreg run --ranks` for the ranks: the folder for their parts of the report.
REPORT_PARTS = "OPENREG_REPORT_PARTS"
_INTERNAL = (SANITIZER_SOCKET, REPORT_PARTS)

# Variables of PyTorch, CUDA and hwloc that change what openreg does. `openreg doctor` shows them.
OTHERS = (
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "HWLOC_SYNTHETIC",
    "HWLOC_XMLFILE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)

_BY_NAME = {variable.name: variable for variable in VARIABLES}


def get(name: str) -> Variable:
    """Return the row of a variable."""
    return _BY_NAME[name]


def rejection(name: str, value: str) -> str:
    """Return the sentence that rejects a value: the variable, the value and what is allowed."""
    return f"openreg: {name}={value[:100]}: expected {_BY_NAME[name].allowed}"


class Option(NamedTuple):
    """A command-line option that sets a variable."""

    flag: str
    placeholder: str  # "" if the option takes no value and sets the variable to 1
    variable: Variable


def options(command: str) -> list[Option]:
    """Return the options of a command ("run" or "sanitize") that set variables."""
    found = []
    for variable in VARIABLES:
        owner, _, option = variable.option.partition(" ")
        if owner == command:
            flag, _, placeholder = option.partition(" ")
            found.append(Option(flag, placeholder, variable))
    return found


def select(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that affect openreg, sorted by name."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIX) or name in OTHERS
    }


def find_unknown(names: Iterable[str]) -> dict[str, str | None]:
    """Return the names that start with OPENREG_ and are not in the table.

    Each comes with the most similar name of the table, or None if no name is similar.
    """
    unknown: dict[str, str | None] = {}
    known = {name.removeprefix(_PREFIX): name for name in _BY_NAME}
    for name in names:
        if name.startswith(_PREFIX) and name not in _BY_NAME and name not in _INTERNAL:
            similar = difflib.get_close_matches(name.removeprefix(_PREFIX), known, 1)
            unknown[name] = known[similar[0]] if similar else None
    return unknown
