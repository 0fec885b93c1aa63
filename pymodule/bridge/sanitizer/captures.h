// Reports launches. A launch on a stream that captures executes nothing; it is reported at each
// replay of the graph instead. All streams of a capture count as one stream, because a replay runs
// its nodes that way.
#pragma once

#include <cstdint>
#include <memory>

#include "sanitizer/accesses.h"
#include "sanitizer/session.h"

namespace openreg {

// Collects the launches of a capture from now on. At each replay, reports them to the session that
// is active then.
std::unique_ptr<Observer::CaptureObserver> observe_capture(uint64_t capture);

// Reports a launch now, or adds it to its capture. If the capture began before the sanitizer, the
// launch is ignored.
void report_launch(SanitizerSession &session, StreamKey stream, uint64_t call_site,
                   Accesses accesses);

} // namespace openreg
