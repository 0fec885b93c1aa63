// Reports the blocks that the caching allocator allocates and frees.
#pragma once

namespace openreg {

// Begins or stops to observe the allocator, and reports to the active session.
void observe_blocks(bool observe);

// Remembers where in the program the calling thread frees the next block. Finding that needs the
// GIL, and the allocator must not wait for the GIL. So call this before entering the allocator.
void set_free_call_site();

} // namespace openreg
