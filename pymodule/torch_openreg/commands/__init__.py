"""The commands of ``openreg``, one a module."""
