#include "sanitizer/tables.h"

#include <pthread.h>

namespace openreg {

std::mutex &tables_mutex() {
  static auto &mutex = *[] {
    static std::mutex made; // trivially destructible, as is fit for threads that outlive others
    pthread_atfork([] { made.lock(); }, [] { made.unlock(); }, [] { made.unlock(); });
    return &made;
  }();
  return mutex;
}

} // namespace openreg
