from torch_openreg import sanitizer as sanitizer
from torch_openreg.openreg import *  # noqa: F403

from . import amp as amp
from . import devices as devices
from . import memory as memory
from . import random as random
from . import streams as streams
