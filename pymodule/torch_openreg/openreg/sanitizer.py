"""``torch.openreg.sanitizer``: `torch_openreg.sanitizer`, which is loaded when it is asked for."""

import sys

from torch_openreg import sanitizer

sys.modules[__name__] = sanitizer
