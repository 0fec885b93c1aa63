from torch_openreg.sanitizer import *  # noqa: F403
