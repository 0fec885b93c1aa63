"""The estimate of NCCL's memory, with OPENREG_GPU_OVERHEAD=1."""

import os

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, own_device, ranks_of

from device import module

pytestmark = pytest.mark.own_processes

MIB = 1 << 20


def set_variables(variables):
    os.environ.update(variables)


def ranks_with(folder, size, **variables):
    variables = {"OPENREG_GPU_OVERHEAD": "1", "OPENREG_DEVICE_MEMORY": "4G"} | variables
    return ranks_of(
        folder,
        size,
        devices=size,
        prepare=set_variables,
        places=[variables] * size,
        backend=BACKEND,
        bound=True,
    )


def taken_by(work):
    """Return the MiB of the device that work takes, besides memory of the allocator."""
    module.set_device(own_device())
    x = torch.ones(1, device=own_device())
    module.synchronize()
    before = module.mem_get_info()[0] + module.memory_reserved()
    kept = work(x)
    module.synchronize()
    after = module.mem_get_info()[0] + module.memory_reserved()
    del kept
    return (before - after) // MIB


def make_group():
    return taken_by(lambda x: dist.new_group(backend=BACKEND, device_id=x.device))


def make_and_destroy_group():
    def work(x):
        dist.destroy_process_group(dist.new_group(backend=BACKEND, device_id=x.device))

    return taken_by(work)


def split(shares):
    group = dist.distributed_c10d._get_default_group()
    options = group._get_backend(own_device()).options
    options.config.split_share = int(shares)
    everyone = [list(range(dist.get_world_size()))]
    return taken_by(lambda _: dist.split_group(split_ranks=everyone, pg_options=options))


@pytest.mark.parametrize(("size", "mib"), [(1, 388), (2, 544), (3, 688)])
def test_a_group_takes_the_documented_estimate(tmp_path, size, mib):
    with ranks_with(tmp_path, size) as ranks:
        assert ranks.call(make_group) == [mib] * size
        assert ranks.call(make_and_destroy_group) == [0] * size


def test_a_split_group_shares_only_if_it_is_asked_to(tmp_path):
    with ranks_with(tmp_path, 2) as ranks:
        assert ranks.call(split, False) == [544, 544]
        assert ranks.call(split, True) == [0, 0]


def test_the_variable_sets_the_size(tmp_path):
    with ranks_with(tmp_path, 2, OPENREG_NCCL_MEMORY="100") as ranks:
        assert ranks.call(make_group) == [100, 100]


def test_without_overhead_a_group_takes_nothing(tmp_path):
    with ranks_with(tmp_path, 2, OPENREG_GPU_OVERHEAD="0") as ranks:
        assert ranks.call(make_group) == [0, 0]


def failure_of_a_group():
    try:
        make_group()
    except dist.DistBackendError as error:
        return str(error)
    return None


def test_a_device_without_room_is_named(tmp_path):
    with ranks_with(tmp_path, 2, OPENREG_NCCL_MEMORY="1900") as ranks:
        sentences = ranks.call(failure_of_a_group)
        for rank, sentence in enumerate(sentences):
            assert f"device {rank} is out of memory" in sentence
            assert "takes an estimated 1900 MiB, which OPENREG_NCCL_MEMORY changes" in sentence
        ranks.has_failed = True


def suspend_and_resume():
    module.set_device(own_device())
    x = torch.ones(1, device=own_device())
    dist.all_reduce(x)
    backend = dist.group.WORLD._get_backend(own_device())
    before, stats = module.mem_get_info()[0], [backend.memory_stats()]
    backend.suspend()
    released = module.mem_get_info()[0] - before
    stats.append(backend.memory_stats())
    with pytest.raises(dist.DistBackendError, match=r"suspended; call resume\(\) first"):
        dist.all_reduce(x)
    backend.resume()
    stats.append(backend.memory_stats())
    dist.all_reduce(x)
    return released // MIB, module.mem_get_info()[0] - before, stats, x.item()


def test_a_suspended_group_has_released_its_memory(tmp_path):
    with ranks_with(tmp_path, 2) as ranks:
        for released, later, stats, value in ranks.call(suspend_and_resume):
            assert (released, later, value) == (544, 0, 4)
            assert [each["suspended"] for each in stats] == [0, 1, 0]
            for each in stats:
                assert each["total"] == each["suspend"] + each["persist"] == 544 * MIB
