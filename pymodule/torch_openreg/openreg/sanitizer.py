"""``torch.openreg.sanitizer``: another name of `torch_openreg.sanitizer`."""

import sys

from torch_openreg import sanitizer

sys.modules[__name__] = sanitizer
