"""The build backend (PEP 517): meson-python, with the release of PyTorch in a wheel's metadata.

A wheel works with the release of PyTorch that it was built for. So its metadata require this
release, and its version names it: ``0.1.0+torch2.13``. meson-python takes both from pyproject.toml,
which is the same for all releases. This backend lets it build the wheel, and then replaces the two
fields by what the build wrote into ``torch_openreg/_version.py``.

An editable install and the sdist keep the metadata of pyproject.toml.
"""

import base64
import email
import email.policy
import hashlib
import os
import re
import runpy
import tempfile
import zipfile
from collections.abc import Mapping

import mesonpy
from mesonpy import (  # noqa: F401 - hooks that pip calls
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

_VERSION_FILE = "torch_openreg/_version.py"


def _built_for(wheel: zipfile.ZipFile) -> tuple[str, str]:
    """Return the version of the package in a wheel, and the requirement of PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        facts = runpy.run_path(wheel.extract(_VERSION_FILE, folder))
    major, minor = facts["TORCH_VERSION"].split(".")[:2]
    return facts["__version__"], f"torch=={major}.{minor}.*"


def _with_release(metadata: bytes, version: str, torch: str) -> bytes:
    """Return the content of METADATA with another version and requirement of PyTorch."""
    policy = email.policy.compat32.clone(max_line_length=None)
    message = email.message_from_bytes(metadata, policy=policy)
    message.replace_header("Version", version)
    requirements = message.get_all("Requires-Dist", [])
    del message["Requires-Dist"]
    for requirement in requirements:
        is_torch = re.match(r"torch\b(?![-_.])", requirement)
        message["Requires-Dist"] = torch if is_torch else requirement
    return message.as_bytes()


def _record(content: Mapping[str, bytes], record: str) -> bytes:
    """Return the content of RECORD for the files of a wheel."""
    lines = []
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{record},,", ""]).encode()


def _name_release(folder: str, name: str) -> str:
    """Rewrite a wheel in a folder for the release that it was built for; return its new name."""
    path = os.path.join(folder, name)
    with zipfile.ZipFile(path) as wheel:
        version, torch = _built_for(wheel)
        entries = {entry.filename: (entry, wheel.read(entry)) for entry in wheel.infolist()}
    distribution, old_version, tags = name.split("-", 2)
    old, new = (f"{distribution}-{v}.dist-info/" for v in (old_version, version))

    content = {}
    for file, (_, data) in entries.items():
        if file == f"{old}METADATA":
            data = _with_release(data, version, torch)
        if file != f"{old}RECORD":
            content[file.replace(old, new, 1) if file.startswith(old) else file] = data
    content[f"{new}RECORD"] = _record(content, f"{new}RECORD")

    new_name = f"{distribution}-{version}-{tags}"
    with zipfile.ZipFile(os.path.join(folder, new_name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for (old_entry, _), (file, data) in zip(
            sorted(entries.values(), key=lambda one: one[0].filename == f"{old}RECORD"),
            content.items(),
            strict=True,
        ):
            entry = zipfile.ZipInfo(file, old_entry.date_time)
            entry.external_attr = old_entry.external_attr  # the mode, such as that of nvidia-smi
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    os.remove(path)
    return new_name


def build_wheel(
    wheel_directory: str,
    config_settings: dict | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel for the installed PyTorch. Returns the name of the file."""
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _name_release(wheel_directory, name)
