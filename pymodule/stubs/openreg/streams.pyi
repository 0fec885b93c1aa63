from torch_openreg.openreg.streams import *  # noqa: F403
