"""What of PyTorch's tests fails, and why. Whoever mends one removes its line."""

# Backends, and what fails on them: a reason for each test.
EXPECTED: dict[tuple[str, ...], dict[str, str]] = {}


def expected(backend):
    """Return the reasons by the names of tests."""
    return {
        name: reason
        for backends, failures in EXPECTED.items()
        if backend in backends
        for name, reason in failures.items()
    }
