from torch_openreg.openreg.amp import *  # noqa: F403
