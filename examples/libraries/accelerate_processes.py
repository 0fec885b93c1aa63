# openreg run --devices 2
"""accelerate in two processes with one device each: its own test scripts."""

import subprocess
import sys

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

for name in "test_ops", "test_sync", "test_script":
    subprocess.run([*LAUNCH, "-m", f"accelerate.test_utils.scripts.{name}"], check=True)
