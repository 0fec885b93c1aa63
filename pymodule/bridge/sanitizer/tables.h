// The lock of what this room keeps in tables, for the life of the process. Who forks holds it, so
// that no child gets it locked, or half of an entry.
#pragma once

#include <mutex>

namespace openreg {

std::mutex &tables_mutex();

} // namespace openreg
