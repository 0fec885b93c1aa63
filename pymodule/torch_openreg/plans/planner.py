"""The planner: a process that answers which memory PyTorch's CUDA operators take.

PyTorch's published CUDA build runs here over stand-ins for NVIDIA's libraries (cudart/planner/).
Its host code checks the arguments, chooses kernels, and allocates results and temporaries. Kernels
do nothing, and device memory has addresses only (cudart/planning.c).

This file is a program of its own: it runs with another PyTorch than the package, so it imports
nothing of the package but ``server.py``. ``sharing.py`` starts it as ``python -I -S planner.py
CONFIGURATION``, with a socket that listens as stdin, and describes the configuration. ``client.py``
describes questions and answers.
"""

import ctypes
import gc
import importlib.util
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any

EVENT = struct.Struct("Qq")

# Operators that read from the device only whether a library of linear algebra failed. Zeros say
# that it did not.
READ_ERRORS = ("aten::_linalg_", "aten::cholesky", "aten::linalg_", "aten::lu_")
VALUES_DECIDE = ("data_dependent_output", "dynamic_output_shape")
# What the texts of errors of NVIDIA's libraries contain. No such error can occur on a GPU here.
LIBRARY_ERRORS = (
    "CUDA error",
    "CUDA driver error",
    "CUDA_ERROR",
    "CUDNN_STATUS",
    "CUBLAS_STATUS",
    "cusolver error",
    "CUSPARSE_STATUS",
    "cuFFT error",
    "cuDNN",
    "openreg",
)


class Refusal(Exception):
    """The planner cannot answer. Arguments: the cause, and a sentence."""


class CannotStart(Exception):
    """The planner has no devices. The argument is a sentence."""


class Runtime:
    """The functions of openreg_planning.h."""

    def __init__(self, library: str) -> None:
        self.path = library
        self._library = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self._library.openreg_cudart_planned_events.restype = ctypes.c_size_t
        self._library.openreg_cudart_planned_reads.restype = ctypes.c_uint64
        self._library.openreg_cudart_device_error.restype = ctypes.c_char_p
        self._address = ctypes.c_void_p()
        self.clear = self._library.openreg_cudart_clear_plan
        self.reads = self._library.openreg_cudart_planned_reads

    def start(self, binary_version: int) -> None:
        if (error := self._library.openreg_cudart_device_error()) is not None:
            raise CannotStart(error.decode().removeprefix("openreg: "))
        if self._library.openreg_cudart_start_planning(binary_version) != 0:
            raise MemoryError("the system has no addresses left")

    def events(self) -> Iterator[tuple[int, int]]:
        count = self._library.openreg_cudart_planned_events(ctypes.byref(self._address))
        if count == 0:
            return iter(())
        events = ctypes.string_at(self._address.value or 0, count * EVENT.size)
        return EVENT.iter_unpack(events)


class Arguments:
    """Makes the arguments of a question. Tensors of one storage share it."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensors: list[Any] = []
        self.storages: dict[int, Any] = {}
        self.on_host: list[Any] = []  # the storages there that have elements

    def set_host(self, value: int) -> None:
        """Set all bytes of the tensors on the host."""
        for storage in self.on_host:
            storage.fill_(value)

    def make(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.make(each) for each in value]
        if not isinstance(value, tuple):
            return value
        kind = value[0]
        if kind == "tensor":
            return self._tensor(*value[1:])
        if kind == "again":
            return self.tensors[value[1]]
        if kind == "device":
            return self.torch.device(value[1])
        if kind in ("dtype", "layout", "format"):
            return getattr(self.torch, value[1])
        raise Refusal("signature", f"an argument of the kind {kind!r} is unknown")

    def _tensor(
        self,
        dtype: str,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        storage: int,
        storage_bytes: int,
        flags: str,
    ) -> Any:
        torch = self.torch
        of = getattr(torch, dtype)
        device = "cpu" if "h" in flags else "cuda"
        if storage not in self.storages:
            make = torch.zeros if device == "cpu" else torch.empty
            self.storages[storage] = make(
                storage_bytes, dtype=torch.uint8, device=device
            ).untyped_storage()
            if device == "cpu" and storage_bytes > 0:
                self.on_host.append(self.storages[storage])
        made = torch.empty(0, dtype=of, device=device)
        made.set_(self.storages[storage], offset, sizes, strides)
        if "c" in flags:
            torch._C._set_conj(made, True)
        if "n" in flags:
            torch._C._set_neg(made, True)
        if "g" in flags:
            made.requires_grad_(True)
        self.tensors.append(made)
        return made


class Planner:
    """Answers questions with an imported PyTorch."""

    def __init__(
        self, torch: Any, runtime: Runtime, profiles: list[str], libraries: dict[str, int]
    ) -> None:
        self.torch = torch
        self.runtime = runtime
        self.profiles = profiles
        self.has_cudnn = "cudnn" in libraries  # else its heuristics would decide sizes
        self.settings: tuple[Any, ...] = ()
        self.device = 0
        self.operators: dict[str, Any] = {}

    def answer(self, question: tuple[Any, ...]) -> tuple[Any, ...]:
        """Answer a question; see ``client.py``."""
        name, arguments, keywords, settings, profile = question
        made = Arguments(self.torch)
        try:
            operator = self._operator(name)
            self._select(profile)
            self._set(settings)
            given = [made.make(each) for each in arguments]
            named = {key: made.make(each) for key, each in keywords.items()}
            return self._run(name, operator, given, named, made)
        except Refusal as refusal:
            return ("refused", *refusal.args)
        except Exception as error:  # of the planner itself
            return ("refused", "planner", f"{name}: {type(error).__name__}: {error}")

    def _operator(self, name: str) -> Any:
        if (found := self.operators.get(name)) is not None:
            return found
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if namespace != "aten":
            raise Refusal("operator", f"{name} is not an operator of PyTorch itself")
        try:
            operator = getattr(getattr(self.torch.ops.aten, base), overload or "default")
        except AttributeError:
            raise Refusal("operator", f"this PyTorch has no operator {name}") from None
        self.operators[name] = operator
        return operator

    def _select(self, profile: str) -> None:
        if profile not in self.profiles:
            raise Refusal("signature", f"the planner was started without the profile {profile}")
        if (device := self.profiles.index(profile)) != self.device:
            self.torch.cuda.set_device(device)
            self.runtime.start(self._binary_version(device))
            self.device = device

    def _binary_version(self, device: int) -> int:
        """Return the architecture of the code in this build that a device would run."""
        major, minor = self.torch.cuda.get_device_capability(device)
        have = [int(each[3:]) for each in self.torch.cuda.get_arch_list() if each[3:].isdigit()]
        fits = [each for each in have if each // 10 == major and each % 10 <= minor]
        return max(fits, default=10 * major + minor)

    def _set(self, settings: tuple[Any, ...]) -> None:
        """Apply the settings of ``signature.current_settings``, in that order."""
        if settings == self.settings:
            return
        torch, C = self.torch, self.torch._C
        grad, deterministic, warn_only, dtype, sdp, order, linalg, cudnn = settings
        C._set_grad_enabled(grad)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_default_dtype(getattr(torch, dtype))
        for path, enabled in zip(
            ("flash", "mem_efficient", "math", "overrideable"), sdp[:4], strict=True
        ):
            getattr(C, f"_set_sdp_use_{path}")(enabled)
        C._set_math_sdp_allow_fp16_bf16_reduction(sdp[4])
        if order:
            C._set_sdp_priority_order(list(order))
        torch.backends.cuda.preferred_linalg_library(linalg)
        C._set_cudnn_enabled(cudnn and self.has_cudnn)
        self.settings = settings

    def _run(
        self, name: str, operator: Any, given: list[Any], named: dict[str, Any], made: Arguments
    ) -> tuple[Any, ...]:
        """Call the operator. One that can read values is called again with others."""
        before = [(each.shape, each.stride()) for each in made.tensors]
        answer = self._call(name, operator, given, named, made, before)
        reads = self.runtime.reads()
        if not (reads or made.on_host) or (answer[0] == "plan" and name.startswith(READ_ERRORS)):
            return answer
        if reads and any(tag.name in VALUES_DECIDE for tag in operator.tags):
            raise Refusal("values", f"the values of the arguments decide what {name} returns")
        is_as_before = all(
            (each.shape, each.stride()) == shape
            for each, shape in zip(made.tensors, before, strict=True)
        )
        made.set_host(1)
        if not is_as_before or answer != self._call(
            name, operator, given, named, made, before, value=1
        ):
            raise Refusal("values", f"{name} reads values, and they decide")
        return answer

    def _call(
        self,
        name: str,
        operator: Any,
        given: list[Any],
        named: dict[str, Any],
        made: Arguments,
        before: list[tuple[Any, Any]],
        value: int = 0,
    ) -> tuple[Any, ...]:
        runtime = self.runtime
        runtime.clear(value)
        try:
            with self.torch._C._AutoDispatchBelowAutograd():
                result = operator(*given, **named)
        except Exception as error:
            text = str(error).partition("\nException raised from")[0]
            if any(each in text for each in LIBRARY_ERRORS):
                raise Refusal("library", f"a stand-in of the planner failed: {text}") from None
            if runtime.reads() > 0:
                raise Refusal("values", f"{name} reads values from the device: {text}") from None
            return ("error", type(error).__name__, text)
        blocks: dict[int, int] = {}  # the number of the block at an address
        own = {each.data_ptr() for each in made.storages.values()}
        events, count = [], 0
        for address, size in runtime.events():
            if size > 0:
                count += 1
                blocks[address] = count
                events.append(size)
            elif address in blocks:
                events.append(-blocks[address])
            elif address in own:
                raise Refusal("signature", f"{name} frees the memory of an argument")
        is_single = len(operator._schema.returns) == 1 or not isinstance(result, tuple)
        outputs = [
            self._describe(each, made, blocks) for each in ((result,) if is_single else result)
        ]
        changed = [
            (i, tuple(each.shape), each.stride())
            for i, each in enumerate(made.tensors)
            if (each.shape, each.stride()) != before[i]
        ]
        return ("plan", outputs, events, changed)

    def _describe(self, value: Any, made: Arguments, blocks: dict[int, int]) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._describe(each, made, blocks) for each in value]
        if isinstance(value, self.torch.Tensor):
            return self._describe_tensor(value, made, blocks)
        if value is None or isinstance(value, (bool, int, float, complex, str)):
            return value
        raise Refusal("signature", f"a result is a {type(value).__name__}")

    def _describe_tensor(self, tensor: Any, made: Arguments, blocks: dict[int, int]) -> Any:
        for i, each in enumerate(made.tensors):
            if each is tensor:
                return ("tensor", "argument", i)
        if tensor.layout is not self.torch.strided:
            raise Refusal("signature", f"a result has the layout {tensor.layout}")
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        where, index = "block", blocks.get(address, 0)
        if tensor.device.type == "cpu":
            where = "host"
        elif size == 0:
            where = "empty"
        elif index == 0:
            where = "alias"
            index = next(
                (key for key, each in made.storages.items() if each.data_ptr() == address), -1
            )
            if index < 0:
                raise Refusal("signature", "a result lies in memory from before the call")
        flags = ("c" if tensor.is_conj() else "") + ("n" if tensor.is_neg() else "")
        return (
            "tensor",
            where,
            index,
            str(tensor.dtype)[6:],
            tuple(tensor.shape),
            tensor.stride(),
            tensor.storage_offset(),
            size,
            flags,
        )


# ---- the program ---------------------------------------------------------------------------------


def load(configuration: dict[str, Any]) -> Planner:
    """Load the stand-ins, and then PyTorch over them."""
    sys.path[:0] = configuration["path"]
    runtime = Runtime(configuration["libraries"][0])
    for library in configuration["libraries"][1:]:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    runtime.start(0)
    import torch

    if os.path.dirname(os.path.dirname(torch.__file__)) != configuration["path"][0]:
        raise ImportError(f"the build in {configuration['path'][0]} is incomplete")
    if torch.__version__.partition("+")[0] != configuration["release"]:
        raise ImportError(
            f"the build is PyTorch {torch.__version__}: expected {configuration['release']}"
        )
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(
            runtime.path, "openreg_cudart_plan_malloc", "openreg_cudart_plan_free"
        )
    )
    torch.cuda.init()
    torch._C._set_sdp_use_cudnn(False)
    planner = Planner(torch, runtime, configuration["profiles"], configuration["workspaces"])
    torch.backends.cudnn.enabled = planner.has_cudnn
    runtime.start(planner._binary_version(0))
    return planner


def load_server() -> Any:
    """Load ``server.py``, which no other name in this process may hide."""
    path = os.path.join(os.path.dirname(__file__), "server.py")
    specification = importlib.util.spec_from_file_location("openreg_planner_server", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def main() -> None:
    """Answer the questions of the processes that connect to the socket on stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program
    server = load_server().Server(socket.socket(fileno=os.dup(0)))
    os.dup2(2, 1)  # what PyTorch prints
    try:
        planner = load(json.loads(sys.argv[1]))
    except CannotStart as error:
        server.refuse(str(error))
        return
    except Exception as error:
        server.refuse(f"{type(error).__name__}: {error}")
        return
    import warnings

    warnings.simplefilter("ignore")
    gc.collect()
    gc.freeze()
    server.serve(planner.answer)


if __name__ == "__main__":
    main()
