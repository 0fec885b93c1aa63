"""Acts when a program imports one of PyTorch's modules, and imports nothing before."""

import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["Load", "Step", "after_loading", "at_import"]

# Load executes a module. Step is called instead of it, with the module and its Load.
Load = Callable[[ModuleType], None]
Step = Callable[[ModuleType, Load], None]


def after_loading(act: Callable[[], None]) -> Step:
    """Return a step that calls a function as soon as the module is loaded."""

    def step(module: ModuleType, load: Load) -> None:
        load(module)
        act()

    return step


def at_import(steps: dict[str, Step]) -> None:
    """Let each step load the module of its name. Steps of modules that are loaded run at once."""
    for name in [name for name in steps if name in sys.modules]:
        steps.pop(name)(sys.modules[name], lambda module: None)
    if steps:
        sys.meta_path.insert(0, _AtImport(steps))


class _AtImport:
    """An import hook that lets a step load each of some modules."""

    def __init__(self, steps: dict[str, Step]) -> None:
        self._steps = steps

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._steps:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_with_step(module: ModuleType) -> None:
                # Only now: a program may look for a module without loading it.
                step = self._steps.pop(name, None)
                if not self._steps and self in sys.meta_path:
                    sys.meta_path.remove(self)
                if step is None:
                    load(module)
                else:
                    step(module, load)

            spec.loader.exec_module = load_with_step  # type: ignore[method-assign]
        return spec
