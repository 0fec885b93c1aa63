"""Asks the sources of plans (`plan`), and reports their answers (`report`).

The sources are the planner of this process, and the built-in plans.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch_openreg import _C

from . import builds, builtin
from .client import Client, Plan, PlannedOutput
from .libraries import ESTIMATED, workspaces
from .signature import Unsupported, current_settings, describe

__all__ = ["SOURCES", "Plan", "PlannedOutput", "count_estimates", "plan", "report"]

SOURCES = ("planner", "builtin", "auto")

# Built-in plans can estimate the workspaces of cuDNN. In the planner all calls take the same.
_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward", "aten::_convolution")

_lock = threading.Lock()
_client: Client | None = None
_answered: Counter[str] = Counter()  # by source
_estimates = 0
_has_build: bool | None = None


def _profile(device: int) -> str:
    return _C.get_device_properties(device).profile


def builtin_device(profile: str) -> builtin.Device | None:
    """Return what built-in plans depend on, for a GPU of this process."""
    for device in range(_C.device_count()):
        properties = _C.get_device_properties(device)
        if properties.profile == profile:
            return builtin.Device(
                properties.multi_processor_count,
                properties.max_threads_per_multi_processor,
                10 * properties.major + properties.minor,
                workspaces().get("cudnn"),
            )
    return None


def _can_start_planner() -> bool:
    global _has_build
    with _lock:
        if _has_build is None:
            try:
                builds.find()
                _has_build = True
            except builds.NoBuild:
                _has_build = False
        return _has_build


def _get_client() -> Client:
    global _client
    with _lock:
        if _client is None:
            _client = Client([_profile(device) for device in range(_C.device_count())])
        return _client


def _order(source: str, is_estimated: bool) -> tuple[str, ...]:
    """Return the sources to ask, in this order."""
    if source != "auto":
        return (source,)
    if not _can_start_planner():
        return ("builtin",)
    return ("builtin", "planner") if is_estimated else ("planner", "builtin")


def _answered_by(source: str, found: Plan) -> Plan:
    with _lock:
        _answered[source] += 1
    return found._replace(source=source)


def plan(
    operator: str,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    settings: tuple[Any, ...] | None = None,
    profile: str | None = None,
    source: str = "planner",
) -> Plan | None:
    """Ask what an operator does on CUDA.

    Nothing is remembered here: ask once for each signature.

    Parameters
    ----------
    operator
        The name of the operator and its overload, such as ``aten::sort`` or ``aten::sort.stable``.
    arguments, keywords
        The arguments of the call. Tensors on the host are tensors on the host there; all others are
        on the device. A number in place of a tensor is a wrapped number. Values are not looked at.
    settings
        What `current_settings` returned, by default now.
    profile
        The GPU, by default the current device's.
    source
        ``planner``; ``builtin``: built-in plans, whose outputs are the fresh tensors without
        strides; or ``auto``: the planner if there is a CUDA build for it, and the built-in plan
        where it has none.

    Returns
    -------
    Plan or None
        None if there is no plan; `report` says why.
    """
    global _estimates
    client = _get_client()
    try:
        given, named = describe(arguments, keywords or {})
    except Unsupported as error:
        client.refuse("signature", str(error))
        return None
    settings = settings or current_settings()
    profile = profile or _profile(_C.current_device())
    uses_cudnn = settings[-1] and operator in _CONVOLUTIONS
    is_estimated = uses_cudnn and workspaces().get("cudnn") == ESTIMATED
    for each in _order(source, is_estimated):
        found = None
        if each == "planner":
            found = client.ask((operator, given, named, settings, profile))
        elif (device := builtin_device(profile)) is not None:
            found = builtin.plan(operator, given, named, settings, device)
        if found is not None:
            _estimates += is_estimated and each == "builtin"
            return _answered_by(each, found)
    return None


def count_estimates() -> int:
    """Return how many signatures of convolutions have an estimated workspace of cuDNN."""
    return _estimates


def report() -> dict[str, Any]:
    """Return how many questions had which answer, and the first sentence of each refusal.

    ``counts`` and ``sentences`` are those of the planner. ``sources`` says how many questions each
    source answered: ``planner`` and ``builtin``. ``launches`` says how many launches of operators
    each source gave a plan, on all devices, since the process began: ``planner`` and ``builtin``;
    ``elementwise``: of operators that take their results only, so they need no plan; ``none``: of
    other operators without a plan.

    The causes of the planner's refusals: ``values`` (values of tensors decide), ``signature`` (a
    signature cannot describe an argument or a result), ``operator`` (the build lacks it),
    ``library`` (a stand-in cannot answer), ``planner`` (there is no planner, or it died).
    """
    client = _get_client()
    launches: Counter[str] = Counter()
    for device in range(_C.device_count()):
        launches.update(_C.planned_launches(device))
    return {
        "counts": dict(client.counts),
        "sentences": dict(client.sentences),
        "sources": dict(_answered),
        "launches": dict(launches),
    }
