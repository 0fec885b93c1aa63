"""Support for ``torch.profiler``: the activity of the devices."""

import functools
from collections.abc import Iterable

import torch
from torch.profiler import ProfilerActivity

from . import _C


@functools.cache
def install(device_type: str) -> None:
    """Add the activity of the devices, and support turning it on and off in a profile.

    A second call does nothing.
    """
    activity = ProfilerActivity.CUDA if device_type == "cuda" else ProfilerActivity.PrivateUse1
    supported = torch.autograd._supported_activities

    def supported_activities() -> set[ProfilerActivity]:
        return supported() | {activity}

    torch.autograd._supported_activities = supported_activities
    torch.autograd.profiler._supported_activities = supported_activities

    toggle_of_others = torch.autograd.profiler._toggle_collection_dynamic

    def toggle_collection_dynamic(enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        activities = set(activities)
        if activity in activities:
            _C.collect_device_activity(enable)
        toggle_of_others(enable, activities - {activity})

    torch.autograd.profiler._toggle_collection_dynamic = toggle_collection_dynamic
