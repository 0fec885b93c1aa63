from torch_openreg.openreg.memory import *  # noqa: F403
from torch_openreg.openreg.memory import _dump_snapshot as _dump_snapshot
from torch_openreg.openreg.memory import _record_memory_history as _record_memory_history
from torch_openreg.openreg.memory import _snapshot as _snapshot
