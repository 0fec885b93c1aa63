"""What ``torch.profiler`` asks a build with CUDA, or of a device that it has no question for."""

import functools
from collections.abc import Iterable

import torch
from torch.profiler import ProfilerActivity

from . import _C


@functools.cache
def install(device_type: str) -> None:
    """Have the devices' activity be supported, and left out of profiles that say so.

    Once is enough: called again, it does nothing.
    """
    activity = ProfilerActivity.CUDA if device_type == "cuda" else ProfilerActivity.PrivateUse1
    supported = torch.autograd._supported_activities

    def supported_activities() -> set[ProfilerActivity]:
        return supported() | {activity}

    torch.autograd._supported_activities = supported_activities
    torch.autograd.profiler._supported_activities = supported_activities

    toggle_of_host = torch.autograd.profiler._toggle_collection_dynamic

    def toggle_collection_dynamic(enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        activities = set(activities)
        if activity in activities:
            _C.collect_device_activity(enable)
        toggle_of_host(enable, activities - {activity})

    torch.autograd.profiler._toggle_collection_dynamic = toggle_collection_dynamic
