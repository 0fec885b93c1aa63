"""Writes PyTorch's stubs with openreg's additions: ``overlay.py TORCH_FOLDER FOLDER``.

A stub package cannot add a method to a class of another package. It must replace the whole file
that defines the class. This script generates these files from the stubs of the PyTorch that openreg
is built with, which is the only one that it supports. If a stub is not as expected, the build
fails. The script also installs PyTorch's license.

It prints a line for each file to install: the path, a tab, the name in the package.
"""

import sys
from pathlib import Path

# torch/__init__.py imports all names of torch._C.
_MODULE = "from torch import openreg as openreg\n"

_TENSOR = '''\
    @property
    def is_openreg(self) -> _bool:
        """Whether the tensor is on a simulated device."""

    def openreg(
        self,
        device: _device | _int | str | None = None,
        non_blocking: _bool = False,
        *,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> Tensor:
        """Return the tensor on a simulated device: itself if it is there, else a copy.

        Parameters
        ----------
        device : torch.device, str, int or None
            The device; None means the current one.
        non_blocking : bool
            Whether a copy from pinned memory may be unfinished on return.
        memory_format : torch.memory_format
            The order of the elements in memory.
        """

'''

_NETWORK = '''\
    def openreg(self, device: int | device | None = None) -> Self:
        """Move all parameters and buffers to a simulated device, and return the module.

        Parameters
        ----------
        device : torch.device, int or None
            The device; None means the current one.
        """

'''

# For each file: (text that occurs once, text to insert before it).
_ADDITIONS = {
    "_C/__init__.pyi": (
        ("from torch.cuda import _POOL_HANDLE\n", _MODULE),
        (
            "    def cuda(\n        self,\n        device: _device | _int | str | None = None,\n",
            _TENSOR,
        ),
    ),
    "nn/modules/module.py": (("    def cuda(self, device: int | device | None = None)", _NETWORK),),
}


def _with_additions(torch: Path, name: str) -> str:
    text = (torch / name).read_text(encoding="utf-8")
    for place, addition in _ADDITIONS[name]:
        if text.count(place) != 1:
            raise SystemExit(f"{torch / name}: expected this text exactly once: {place!r}")
        text = text.replace(place, addition + place)
    return text


def _licence(torch: Path) -> Path:
    found = sorted(
        torch.parent.glob("torch-*.dist-info/**/LICENSE"), key=lambda path: len(path.parts)
    )
    if not found:
        raise SystemExit(f"{torch.parent}: no LICENSE of PyTorch found")
    return found[0]


def main() -> None:
    torch, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    files = {"LICENSE": _licence(torch)}
    for room in "_C", "nn":
        for stub in sorted((torch / room).rglob("*.pyi")):
            files[str(stub.relative_to(torch))] = stub
    for name in _ADDITIONS:
        stub = str(Path(name).with_suffix(".pyi"))
        files[stub] = folder / stub
        files[stub].parent.mkdir(parents=True, exist_ok=True)
        files[stub].write_text(_with_additions(torch, name), encoding="utf-8")
    for name, file in files.items():
        print(file, name, sep="\t")


if __name__ == "__main__":
    main()
