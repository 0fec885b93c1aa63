"""PyTorch's own tests of torch.distributed, `distributed_test.py` of the wheel, on these devices.

PyTorch starts an interpreter for each rank of each test; here the ranks are forks of this process,
which has imported PyTorch and uses no device itself. `tools/test-distributed` sets the variables
that the tests read: BACKEND, WORLD_SIZE and OPENREG_DEVICE_TYPE.
"""

import os

import substitution
import torch

substitution.install(os.environ["OPENREG_DEVICE_TYPE"])

from torch.testing._internal.distributed import distributed_test  # noqa: E402


class TestDistributed(
    distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
