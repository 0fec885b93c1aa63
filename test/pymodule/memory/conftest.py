import gc

import pytest

from device import memory, module

DEFAULTS = (
    "expandable_segments:False,large_segment_size_mb:20,throw_on_cudamalloc_oom:False,"
    "per_process_memory_fraction:1.0"
)


@pytest.fixture
def fresh_memory():
    """Start with an empty cache; leave no limit, settings or recording behind."""
    gc.collect()
    module.init()
    module.empty_cache()
    yield
    memory._record_memory_history(None)
    gc.collect()
    module.set_per_process_memory_fraction(1.0)
    memory._set_allocator_settings(DEFAULTS)
    module.empty_cache()
