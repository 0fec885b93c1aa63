"""Compiles generated kernels and launches them. Generated Python calls this module.

A kernel is compiled as for the CPU, with a second function that takes all arguments in one array of
words. `torch_openreg._C.CompiledKernel` launches that function.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor import codecache
from torch._inductor.async_compile import AsyncCompile, get_compile_threads

from torch_openreg import _C

_ENTRY = "openreg_launch"


@codecache.clear_on_fresh_cache
class _Libraries(codecache.CppCodeCache):
    """The code cache for kernels, which need neither Python nor PyTorch."""

    cache: dict[str, Callable[[], Any]] = {}
    cache_clear = staticmethod(cache.clear)
    cpp_compile_command_flags = {"include_pytorch": False, "shared": True}

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return codecache._get_cpp_prefix_header(device)


def _letter(argument_type: str) -> str:
    """Return the letter of `CompiledKernel` for an argument of a C++ type."""
    if argument_type.endswith("*"):
        return "r" if argument_type.startswith("const ") else "w"
    return "f" if argument_type.removeprefix("const ") == "float" else "i"


def _entry(argument_types: Sequence[str]) -> str:
    """Return the C++ function that calls ``kernel`` with the words of an array."""

    def argument(place: int, argument_type: str) -> str:
        word = f"words[{place}]"
        if argument_type.endswith("*"):
            return f"reinterpret_cast<{argument_type}>({word})"
        if _letter(argument_type) == "f":
            return f"c10::bit_cast<float>(static_cast<uint32_t>({word}))"
        return f"static_cast<{argument_type}>({word})"

    arguments = ", ".join(argument(*each) for each in enumerate(argument_types))
    return f'\nextern "C" void {_ENTRY}(const uintptr_t* words) {{\n    kernel({arguments});\n}}\n'


def launched_kernel(
    compiler: AsyncCompile, name: str, argument_types: list[str], source: str
) -> Any:
    """Compile a kernel; return a `CompiledKernel` or a future of it.

    Parameters
    ----------
    compiler : AsyncCompile
        The compiler. It may compile in another process.
    name : str
        The name of the kernel in profiles and errors.
    argument_types : list of str
        The C++ types of the arguments of the function ``kernel``.
    source : str
        The C++ source that defines the function ``kernel``.
    """
    in_this_process = get_compile_threads() <= 1
    library = _Libraries.load_async(
        source + _entry(argument_types),
        submit_fn=None if in_this_process else compiler.submit,
    )
    kinds = "".join(map(_letter, argument_types))

    def load() -> _C.CompiledKernel:
        address = ctypes.cast(getattr(library(), _ENTRY), ctypes.c_void_p).value
        assert address is not None
        return _C.CompiledKernel(address, kinds, name)

    return load() if in_this_process else codecache.LambdaFuture(load)


def current_raw_stream(device: int) -> int:
    """Return the native handle of the current stream of a device."""
    return _C.stream_handle(device, _C.current_stream(device))
