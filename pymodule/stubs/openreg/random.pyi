from torch_openreg.openreg.random import *  # noqa: F403
