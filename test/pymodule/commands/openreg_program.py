"""How tests start the program `openreg`."""

import sys

# What the program `openreg` does, wherever it is installed: the working folder is not looked into.
PROGRAM = "import sys; del sys.path[0]; import _openreg_command as c; sys.exit(c.main())"
OPENREG = [sys.executable, "-c", PROGRAM]
