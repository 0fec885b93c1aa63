"""What ``torch.profiler`` asks a build with CUDA: which activities it can record."""

import torch
from torch.profiler import ProfilerActivity


def install() -> None:
    """Have ``ProfilerActivity.CUDA`` be supported."""
    supported = torch.autograd._supported_activities

    def supported_activities() -> set[ProfilerActivity]:
        return supported() | {ProfilerActivity.CUDA}

    torch.autograd._supported_activities = supported_activities
    torch.autograd.profiler._supported_activities = supported_activities
