"""``openreg plans``: memory plans from PyTorch's CUDA build (``torch_openreg.plans``).

``openreg plans`` shows whether there is a build that the planner can run. ``install`` unpacks one.
``show`` asks the planner one question, or shows a built-in plan.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from ..plans import builds, builtin
from ..plans.client import DEFAULT_SETTINGS, Client
from ..plans.libraries import workspaces
from ..plans.text import describe_plan, parse_call
from .cli import USAGE_STATUS, make_parser


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    made = make_parser(
        "openreg plans",
        "Memory plans say which blocks of memory CUDA's operators take. They come from a CUDA "
        "build of PyTorch that runs without a GPU. Without a COMMAND: shows whether there is such "
        "a build.",
        (
            (0, "success"),
            (1, "there is no build, the installation failed, or there is no plan"),
            USAGE_STATUS,
        ),
        examples=(
            "openreg plans",
            "openreg plans install",
            "openreg plans show aten::sort 'float32[65536]'",
            "openreg plans --source builtin show aten::sort 'float32[65536]'",
            "openreg plans show aten::_foreach_norm.Scalar '4*float32[1000]'",
        ),
        more="`install` downloads half a gigabyte with pip, and unpacks it in the cache folder.",
    )
    made.add_argument("--profile", default="h100", help="GPU of `show` (default h100)")
    made.add_argument(
        "--source",
        choices=("planner", "builtin"),
        default="planner",
        help="what `show` asks: the CUDA build, or openreg's formulas (default planner)",
    )
    commands = made.add_subparsers(metavar="COMMAND", dest="command")
    install = commands.add_parser(
        "install", help="unpack a CUDA build of the PyTorch release that runs here"
    )
    install.add_argument("file", nargs="?", help="a wheel (default: pip downloads it)")
    show = commands.add_parser("show", help="show the plan of one call")
    show.add_argument("operator", help="such as aten::sort or aten::sort.stable")
    show.add_argument(
        "arguments",
        nargs="*",
        help="tensors such as float32[64,768] or float32[64,768;1,64] (with strides), lists of "
        "them such as 4*float32[1000], numbers, True, False, None; NAME=VALUE for keywords",
    )
    return made


# Prints what built-in plans depend on of a GPU, in a process with devices, which this one has not.
_DEVICE_PROGRAM = """
import sys
del sys.path[0]
import torch
from torch_openreg.plans import ask
try:
    print(*ask.builtin_device(sys.argv[1])[:3])
except RuntimeError as error:
    sys.exit(str(error).splitlines()[0])
"""


def _device_of(profile: str) -> builtin.Device | None:
    """Return a GPU, or None if there is no such GPU, after its sentence on stderr."""
    own = {
        "OPENREG_PROFILE": profile,
        "OPENREG_DEVICE_COUNT": "1",
        "OPENREG_DEVICE_TYPE": "cuda",  # PyTorch can be imported without NVIDIA's packages then
        "OPENREG_GROUP": f"planner-{os.getpid()}",  # other devices than those of running programs
    }
    result = subprocess.run(
        [sys.executable, "-c", _DEVICE_PROGRAM, profile],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        text=True,
    )
    if result.returncode != 0:
        return None
    found = builtin.Device(*map(int, result.stdout.split()))
    return found._replace(cudnn_workspace=workspaces().get("cudnn"))


def _show(operator: str, arguments: Sequence[str], profile: str, source: str) -> int:
    try:
        workspaces()
        given, named = parse_call(arguments)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if source == "builtin":
        if (device := _device_of(profile)) is None:
            return 1
        plan = builtin.plan(operator, given, named, DEFAULT_SETTINGS, device)
        if plan is None:
            print(f"openreg: this call of {operator} has no built-in plan", file=sys.stderr)
            return 1
        print("\n".join(describe_plan(plan)))
        return 0
    client = Client([profile])
    plan = client.ask((operator, given, named, DEFAULT_SETTINGS, profile))
    client.end()
    if plan is None:
        if "planner" not in client.sentences:  # the client printed that one
            print(f"openreg: no plan: {next(iter(client.sentences.values()))}", file=sys.stderr)
        return 1
    print("\n".join(describe_plan(plan)))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    arguments
        The arguments after ``openreg plans``.

    Returns
    -------
    int
        The exit status.
    """
    chosen = parser().parse_args(arguments)
    if chosen.command == "show":
        return _show(chosen.operator, chosen.arguments, chosen.profile, chosen.source)
    try:
        build = builds.install(chosen.file) if chosen.command == "install" else builds.find()
    except builds.NoBuild as error:
        print(error, file=sys.stderr)
        return 1
    print(f"PyTorch {build.release} for CUDA {build.cuda} in {build.folder}")
    return 0
