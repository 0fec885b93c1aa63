/* denormals.h: whether the calling thread's arithmetic flushes denormal numbers to zero.
 *
 * A mode is the processor's bits for it. 0 is the default: denormal numbers are computed. Also for
 * C++.
 */
#ifndef OPENREG_BASE_DENORMALS_H
#define OPENREG_BASE_DENORMALS_H

#include <stdint.h>

#if defined(__SSE__)
#include <xmmintrin.h>

/* Of MXCSR: denormal results (FTZ) and operands (DAZ) become zero. */
#define OPENREG_FLUSH_DENORMALS 0x8040u

static inline unsigned openreg_denormal_mode(void) {
  return _mm_getcsr() & OPENREG_FLUSH_DENORMALS;
}

/* Does not write an unchanged mode, because writing the register stalls the pipeline. */
static inline void openreg_set_denormal_mode(unsigned mode) {
  unsigned control = _mm_getcsr();
  if ((control & OPENREG_FLUSH_DENORMALS) != mode)
    _mm_setcsr((control & ~OPENREG_FLUSH_DENORMALS) | mode);
}

#elif defined(__aarch64__)

/* Of FPCR: FZ, and FZ16 for float16 arithmetic. */
#define OPENREG_FLUSH_DENORMALS 0x1080000u

static inline uint64_t openreg_fpcr(void) {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}

static inline unsigned openreg_denormal_mode(void) {
  return (unsigned)openreg_fpcr() & OPENREG_FLUSH_DENORMALS;
}

/* Does not write an unchanged mode, because writing the register stalls the pipeline. */
static inline void openreg_set_denormal_mode(unsigned mode) {
  uint64_t control = openreg_fpcr();
  if ((control & OPENREG_FLUSH_DENORMALS) != mode) {
    control = (control & ~(uint64_t)OPENREG_FLUSH_DENORMALS) | mode;
    __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
  }
}

#else

/* There is no such mode here, or openreg does not know it. */
#define OPENREG_FLUSH_DENORMALS 0u

static inline unsigned openreg_denormal_mode(void) {
  return 0;
}

static inline void openreg_set_denormal_mode(unsigned mode) {
  (void)mode;
}

#endif
#endif
