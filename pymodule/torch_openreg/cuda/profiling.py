"""What ``torch.profiler`` asks a build with CUDA: which activities it can record."""

import torch


def _with_cuda(supported: set[torch.profiler.ProfilerActivity]) -> set[object]:
    return supported | {torch.profiler.ProfilerActivity.CUDA}


def install() -> None:
    """Have ``ProfilerActivity.CUDA`` be supported."""
    supported = torch.autograd._supported_activities

    def supported_activities() -> set[object]:
        return _with_cuda(supported())

    torch.autograd._supported_activities = supported_activities
    torch.autograd.profiler._supported_activities = supported_activities
