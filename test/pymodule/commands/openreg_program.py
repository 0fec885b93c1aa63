"""The command line with which tests start the program `openreg`."""

import sys

# The same as the installed program `openreg`, which does not import from the working folder.
PROGRAM = "import sys; del sys.path[0]; import _openreg_command as c; sys.exit(c.main())"
OPENREG = [sys.executable, "-c", PROGRAM]
