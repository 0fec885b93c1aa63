"""What of PyTorch's tests fails, with the reason."""


def expected(device_type, backend, ranks):
    """Return the reasons by the names of tests."""
    return {}
