#include "streams/stream_observer.h"

namespace openreg {

std::atomic<Watcher *> installed_watcher{nullptr};
constinit thread_local int Unwatched::depth_ = 0;

} // namespace openreg
