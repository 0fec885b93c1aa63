"""Asks the planner of this process (`plan`), and reports its answers (`report`)."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from torch_openreg import _C

from .client import Client, Plan, PlannedOutput
from .signature import Unsupported, current_settings, describe

__all__ = ["Plan", "PlannedOutput", "plan", "report"]

_lock = threading.Lock()
_client: Client | None = None


def _profile(device: int) -> str:
    return _C.get_device_properties(device).profile


def _get_client() -> Client:
    global _client
    with _lock:
        if _client is None:
            _client = Client([_profile(device) for device in range(_C.device_count())])
        return _client


def plan(
    operator: str,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    settings: tuple[Any, ...] | None = None,
    profile: str | None = None,
) -> Plan | None:
    """Ask the planner what an operator does on CUDA.

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

    Returns
    -------
    Plan or None
        None if there is no plan; `report` says why.
    """
    client = _get_client()
    try:
        given, named = describe(arguments, keywords or {})
    except Unsupported as error:
        client.refuse("signature", str(error))
        return None
    return client.ask(
        (
            operator,
            given,
            named,
            settings or current_settings(),
            profile or _profile(_C.current_device()),
        )
    )


def report() -> dict[str, Any]:
    """Return how many questions had which answer, and the first sentence of each refusal.

    The causes of refusals: ``values`` (values of tensors decide), ``signature`` (a signature cannot
    describe an argument or a result), ``operator`` (the build lacks it), ``library`` (a stand-in
    cannot answer), ``planner`` (there is no planner, or it died).
    """
    client = _get_client()
    return {"counts": dict(client.counts), "sentences": dict(client.sentences)}
