// Whether a thread takes denormal numbers for zero, as torch.set_flush_denormal has it: a kernel
// does what the thread that launched it does.
#pragma once

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace openreg {

#ifdef __SSE__
inline constexpr unsigned kFlushDenormals = _MM_FLUSH_ZERO_MASK | 0x40; // results, and operands

inline unsigned denormal_mode() {
  return _mm_getcsr() & kFlushDenormals;
}

inline void set_denormal_mode(unsigned mode) {
  if (const auto control = _mm_getcsr(); (control & kFlushDenormals) != mode) {
    _mm_setcsr((control & ~kFlushDenormals) | mode);
  }
}
#else
inline unsigned denormal_mode() {
  return 0;
}

inline void set_denormal_mode(unsigned) {}
#endif

} // namespace openreg
