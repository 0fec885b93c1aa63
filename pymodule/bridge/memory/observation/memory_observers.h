// Who is told of what the allocator does, of which it tells one: the history and the sanitizer.
#pragma once

#include "allocator/allocator.h"

namespace openreg {

enum class MemoryObserver { kHistory, kSanitizer, kCount };

// As openreg_memory_observe, for one of them; null: it is told of nothing any more.
void observe_memory(MemoryObserver which, void (*observe)(const openreg_memory_event &event));

} // namespace openreg
