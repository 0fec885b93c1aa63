// The lock of this folder's tables, which live as long as the process. fork() holds it, so a child
// gets neither a locked mutex nor a half-written entry.
#pragma once

#include <mutex>

namespace openreg {

std::mutex &tables_mutex();

} // namespace openreg
