// A thread's denormal mode, as torch.set_flush_denormal() sets it. A queued kernel runs with the
// mode of the thread that launched it.
#pragma once

#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace openreg {

#ifdef __SSE__
inline constexpr unsigned kFlushDenormals =
    _MM_FLUSH_ZERO_MASK | 0x40; // FTZ (results) and DAZ (operands)

// The calling thread's FTZ and DAZ bits of MXCSR; 0 where the CPU has none.
inline unsigned denormal_mode() {
  return _mm_getcsr() & kFlushDenormals;
}

// Skips the write if nothing changes: writing MXCSR stalls the pipeline.
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
