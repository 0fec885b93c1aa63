"""The tests of PyTorch that fail, and why. Remove a line when you fix its test."""

# The failing tests of each backend, with reasons.
EXPECTED: dict[tuple[str, ...], dict[str, str]] = {}


def expected(backend):
    """Return the reasons by the names of tests."""
    return {
        name: reason
        for backends, failures in EXPECTED.items()
        if backend in backends
        for name, reason in failures.items()
    }
