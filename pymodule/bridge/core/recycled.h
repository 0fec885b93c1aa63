// Objects that come and go with every launch: tensors and their storages. A thread keeps the room
// of a few that it destroyed for those that it makes next, for to ask the host's allocator for room
// and to give it back costs more than anything else that is done for them.
//
// A class derives from Recycled<itself>, is final, and is made by new alone. Whoever destroys an
// object keeps its room, whichever thread made it. A thread gives back what it keeps when it ends.
// Sanitizers see each object as it is: nothing is kept under them.
#pragma once

#include <cstddef>
#include <new>

namespace openreg {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kRecycles = false;
#else
constexpr bool kRecycles = true;
#endif

template <class T> class Recycled {
public:
  static void *operator new(size_t bytes) {
    auto &kept = kept_;
    if (auto *room = kept.first) [[likely]] {
      kept.first = room->next;
      ++kept.vacancies;
      return room;
    }
    return ::operator new(bytes);
  }

  static void *operator new(size_t, void *place) { return place; }

  static void operator delete(void *address) {
    if (kept_.vacancies == 0 && !open()) [[unlikely]] {
      ::operator delete(address);
      return;
    }
    auto &kept = kept_;
    kept.first = new (address) Room{kept.first};
    --kept.vacancies;
  }

private:
  static constexpr unsigned kMost = 32;

  struct Room {
    Room *next;
  };

  struct Kept {
    Room *first;
    unsigned vacancies; // for rooms; 0 before the first one as well, and when the thread ends
    bool is_open;
  };

  struct AtThreadExit {
    ~AtThreadExit() {
      kept_.vacancies = 0;
      while (auto *room = kept_.first) {
        kept_.first = room->next;
        ::operator delete(room);
      }
    }
  };

  // Once for each thread; false when it has no more vacancies.
  __attribute__((noinline)) static bool open() {
    if (!kRecycles || kept_.is_open) {
      return false;
    }
    static_assert(sizeof(T) >= sizeof(Room));
    static thread_local AtThreadExit at_thread_exit;
    (void)&at_thread_exit;
    kept_.is_open = true;
    kept_.vacancies = kMost;
    return true;
  }

  static constinit inline thread_local Kept kept_
      __attribute__((tls_model("initial-exec"))) = {nullptr, 0, false};
};

} // namespace openreg
