#include "sanitizer/tables.h"

#include <pthread.h>

namespace openreg {

std::mutex &tables_mutex() {
  static auto &mutex = *[] {
    static std::mutex made; // trivially destructible, because threads may outlive static objects
    pthread_atfork([] { made.lock(); }, [] { made.unlock(); }, [] { made.unlock(); });
    return &made;
  }();
  return mutex;
}

} // namespace openreg
