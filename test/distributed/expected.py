"""What of PyTorch's tests fails, and why. Whoever mends one removes its line."""

PROFILER = "the profiler is not told the shape of what is received"

EXPECTED = {
    ("nccl", "occl"): {
        "test_send_recv_nccl_autograd_profiler": PROFILER,
        "test_send_recv_nccl_torch_profiler": PROFILER,
    },
}


def expected(backend):
    """Return the reasons by the names of tests."""
    return {
        name: reason
        for backends, failures in EXPECTED.items()
        if backend in backends
        for name, reason in failures.items()
    }
