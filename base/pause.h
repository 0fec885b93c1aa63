/* pause.h: the processor's instruction for a pause between two checks of a word.
 *
 * It leaves the core to its other hardware thread and saves power. It takes 10 to 140 cycles on x86
 * (Intel's optimization manual). On aarch64 `yield` does nothing on most cores, and `isb` waits for
 * the pipeline, which takes about as long as x86's pause.
 */
#ifndef OPENREG_BASE_PAUSE_H
#define OPENREG_BASE_PAUSE_H

static inline void openreg_cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
