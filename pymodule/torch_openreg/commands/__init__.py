"""The commands of ``openreg``, one module each."""
