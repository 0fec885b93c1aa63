"""Records what the report needs of a running program, beside the allocation log.

Hooks of PyTorch number the calls of modules, the backward passes and the optimizers' steps. At
these places the recorder also writes down which blocks are parameters, gradients and optimizer
state, because the memory may be freed long before the report is written. Positions are numbers of
events.
"""

import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.autograd.variable import Variable
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from torch_openreg import _C

from .names import Modules, storages_of

# 64 bytes each. Later events are not in the report.
MAX_EVENTS = 2_000_000


def _in_backward() -> bool:
    """Return whether autograd computes gradients on this thread."""
    return torch._C._current_graph_task_id() != -1


class Label(NamedTuple):
    """The group and the name of an allocation."""

    group: str
    name: str
    is_trained: bool = False  # a parameter of an optimizer


@dataclass
class Span:
    """A part of the log: a call of a module, a backward or an optimizer's step."""

    begin: int
    end: int | None = None  # None: it did not end
    stack: int = 0
    path: str = ""  # of a module
    outer: int = 0  # the module call around a module call


@dataclass
class Failure:
    """A request that failed, as the observer of PyTorch gets it."""

    position: int
    device: int
    tried: int
    allowed: int
    free: int


@dataclass
class Recorder:
    """Everything that is recorded beside the log."""

    module_calls: list[Span] = field(default_factory=lambda: [Span(0, 0)])  # 0: none
    backwards: list[Span] = field(default_factory=list)
    optimizer_steps: list[tuple[int, Span]] = field(default_factory=list)  # with the optimizer's id
    labels: dict[int, Label] = field(default_factory=dict)  # by the event of the allocation
    failures: list[Failure] = field(default_factory=list)
    largest_group: int = 0  # of processes that communicate through devices

    def __post_init__(self) -> None:
        self._modules = Modules()
        self._optimizers: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._calls = threading.local()  # open module calls of a thread, innermost last
        self._steps: dict[int, Span] = {}  # open steps of optimizers
        self._lock = threading.Lock()
        self._is_labelling = False
        self._labelled_until = 0  # the position of the last labels

    # ---- places ------------------------------------------------------------------------------

    @staticmethod
    def _position() -> int:
        return _C.place_in_log(False)[0]

    def label(self) -> None:
        """Write down the addresses of parameters, gradients and optimizer state."""
        if self._is_labelling:
            return
        position = self._position()
        if position >= MAX_EVENTS or position == self._labelled_until:
            return
        self._labelled_until = position
        self._is_labelling = True
        try:
            labels: list[Label] = []
            addresses: list[int] = []
            for label, value in self._tensors():
                for address in storages_of(value):
                    labels.append(label)
                    addresses.append(address)
            for event, label in zip(_C.allocations_at(addresses), labels, strict=True):
                if event >= 0 and (event not in self.labels or label.is_trained):
                    self.labels[event] = label
            self._note_groups()
        finally:
            self._is_labelling = False

    def _tensors(self) -> Iterator[tuple[Label, Any]]:
        """Yield the label and the value of everything that has one."""
        names: dict[int, str] = {}
        for group, name, tensor in self._modules.tensors():
            names.setdefault(id(tensor), name)
            yield Label(group, name), tensor
        for ref in list(self._optimizers.values()):
            if (optimizer := ref()) is not None:
                yield from self._tensors_of(optimizer, names)

    @staticmethod
    def _tensors_of(
        optimizer: torch.optim.Optimizer, names: dict[int, str]
    ) -> Iterator[tuple[Label, Any]]:
        kind = type(optimizer).__name__
        for group in optimizer.param_groups:
            for index, parameter in enumerate(group["params"]):
                is_known = id(parameter) in names
                name = names.setdefault(id(parameter), f"{kind}.params.{index}")
                yield Label("parameters", name, is_trained=True), parameter
                if not is_known and parameter.is_leaf and parameter.grad is not None:
                    yield Label("gradients", name), parameter.grad
        for parameter, state in list(optimizer.state.items()):
            name = names.get(id(parameter), kind)
            for key, value in list(state.items()) if isinstance(state, dict) else [("", state)]:
                yield Label("optimizer state", f"{name} {key}".rstrip()), value

    def _note_groups(self) -> None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for group, (backend, _) in torch.distributed.distributed_c10d._world.pg_map.items():
                if "nccl" in backend or "occl" in backend or "undefined" in backend:
                    self.largest_group = max(self.largest_group, group.size())

    # ---- hooks -------------------------------------------------------------------------------

    def _open_calls(self) -> list[int]:
        if not hasattr(self._calls, "numbers"):
            self._calls.numbers = []
        return self._calls.numbers

    def begin_module(self, module: torch.nn.Module, arguments: Any) -> None:
        """Begin a call of a module."""
        if torch.compiler.is_compiling():
            return
        calls = self._open_calls()
        self._modules.add(module)
        position = self._position()
        if position >= MAX_EVENTS:
            return
        if not calls and self._modules.has_new_ones:
            self.label()
        span = Span(position, path=self._modules.path(module), outer=calls[-1] if calls else 0)
        with self._lock:
            number = len(self.module_calls)
            self.module_calls.append(span)
        calls.append(number)
        _C.set_module_call(number)

    def end_module(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        """End a call of a module, also after an exception."""
        if torch.compiler.is_compiling():
            return
        calls = self._open_calls()
        if calls:
            self.module_calls[calls.pop()].end = self._position()
            _C.set_module_call(calls[-1] if calls else 0)

    def add_parameter(self, module: torch.nn.Module, name: str, value: Any) -> None:
        """Remember a module that gets a parameter or a buffer."""
        if not torch.compiler.is_compiling():
            self._modules.add(module)

    def begin_step(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        """Begin an optimizer's step."""
        known = self._optimizers.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)
            self._labelled_until = -1  # the parameters may be new, too
        self.label()
        position, _, _, stack = _C.place_in_log(True)
        self._steps[id(optimizer)] = span = Span(position, stack=stack)
        if position < MAX_EVENTS:
            self.optimizer_steps.append((id(optimizer), span))

    def end_step(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        """End an optimizer's step."""
        self.label()
        if (span := self._steps.pop(id(optimizer), None)) is not None:
            span.end = self._position()

    def begin_backward(self) -> Span:
        """Begin a backward pass."""
        position, _, _, stack = _C.place_in_log(True)
        span = Span(position, stack=stack)
        if position < MAX_EVENTS:
            self.backwards.append(span)
        return span

    def end_backward(self, span: Span) -> None:
        """End a backward pass."""
        span.end = self._position()
        if not _in_backward():  # else it is part of another one
            self.label()

    def note_failure(self, device: int, tried: int, allowed: int, free: int) -> None:
        """Record a request that fails."""
        self.label()
        self.failures.append(Failure(self._position(), device, tried, allowed, free))

    def install(self) -> None:
        """Start the log and register the hooks."""
        _C.start_allocation_log(MAX_EVENTS)
        modules.register_module_forward_pre_hook(self.begin_module)
        modules.register_module_forward_hook(self.end_module, always_call=True)
        modules.register_module_parameter_registration_hook(self.add_parameter)
        modules.register_module_buffer_registration_hook(self.add_parameter)
        optimizers.register_optimizer_step_pre_hook(self.begin_step)
        optimizers.register_optimizer_step_post_hook(self.end_step)
        _C.attach_out_of_memory_observer(self.note_failure)
        self._install_engine()

        # Dynamo inlines the hooks, which return at once. The program may turn warnings into errors.
        warnings.filterwarnings("ignore", message="Using `torch.compile.*global hooks")

    def _install_engine(self) -> None:
        recorder = self
        Engine: Any = type(Variable._execution_engine)

        class RecordingEngine(Engine):
            def run_backward(self, *arguments: Any, **options: Any) -> Iterable[torch.Tensor]:
                span = recorder.begin_backward()
                try:
                    return super().run_backward(*arguments, **options)
                finally:
                    recorder.end_backward(span)

        Variable._execution_engine = RecordingEngine()
