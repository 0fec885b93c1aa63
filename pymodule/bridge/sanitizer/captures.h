// What streams that capture are given: nothing is done then, and it is told of when the graph is
// replayed. The streams of a capture count as one, for that is how a replay runs them.
#pragma once

#include <cstdint>
#include <memory>

#include "sanitizer/accesses.h"
#include "streams/stream_observer.h"

namespace openreg {

// What is given to the streams of a capture from now on. Replays are told to whoever is told of
// launches then.
std::unique_ptr<Watcher::Captured> note_capture(uint64_t capture);

// A launch on a stream that captures. Of a capture that began before anyone watched nothing is
// kept.
void keep_launch(Queue queue, uint64_t place, Accesses accesses);

} // namespace openreg
