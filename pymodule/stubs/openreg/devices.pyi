from torch_openreg.openreg.devices import *  # noqa: F403
