// A per-thread free list for objects that every launch creates and destroys: tensors and storages.
// Without it, malloc and free cost more than everything else that is done for such an object.
//
// A class derives from Recycled<itself>, must be final, and must be created with new. The thread
// that destroys an object keeps its memory, whichever thread created it, and frees what it keeps
// when the thread ends. Under the address and thread sanitizers nothing is kept, so that they see
// each object.
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
    if (auto *object = kept.first) [[likely]] {
      kept.first = object->next;
      ++kept.vacancies;
      return object;
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
    kept.first = new (address) FreeObject{kept.first};
    --kept.vacancies;
  }

private:
  static constexpr unsigned kMaxKept = 32;

  struct FreeObject {
    FreeObject *next;
  };

  struct Kept {
    FreeObject *first;
    unsigned vacancies; // how many more fit; 0 before open() and after the thread's end
    bool is_open;
  };

  struct AtThreadExit {
    ~AtThreadExit() {
      kept_.vacancies = 0;
      while (auto *object = kept_.first) {
        kept_.first = object->next;
        ::operator delete(object);
      }
    }
  };

  // Opens this thread's list. Returns false if it is open already, which means that it is full.
  __attribute__((noinline)) static bool open() {
    if (!kRecycles || kept_.is_open) {
      return false;
    }
    static_assert(sizeof(T) >= sizeof(FreeObject));
    static thread_local AtThreadExit at_thread_exit;
    (void)&at_thread_exit;
    kept_.is_open = true;
    kept_.vacancies = kMaxKept;
    return true;
  }

  static constinit inline thread_local Kept kept_
      __attribute__((tls_model("initial-exec"))) = {nullptr, 0, false};
};

} // namespace openreg
