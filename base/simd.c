/* simd.c: selects the instruction set that the kernels of the other layers use.
 *
 * The first call decides, and the choice never changes. Threads that race here compute and store
 * the same value.
 */
#include "base/base.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[OPENREG_SIMD_COUNT] = {"c", "avx2", "avx512"};

/* The features must match the compiler flags of each variant in meson.build. */
static bool is_there(openreg_simd simd) {
#ifdef __x86_64__
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("f16c");
  switch (simd) {
  case OPENREG_SIMD_AVX2:
    return avx2;
  case OPENREG_SIMD_AVX512:
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  default:
    break;
  }
#endif
  return simd == OPENREG_SIMD_C;
}

static openreg_simd choose(void) {
  const char *wanted = getenv("OPENREG_SIMD");
  openreg_simd widest = OPENREG_SIMD_C;
  for (int simd = 0; simd < OPENREG_SIMD_COUNT; simd++) {
    if (!is_there((openreg_simd)simd))
      continue;
    widest = (openreg_simd)simd;
    if (wanted != NULL && strcmp(wanted, names[simd]) == 0)
      return widest;
  }
  if (wanted == NULL || wanted[0] == '\0')
    return widest;
  fprintf(stderr, "openreg: OPENREG_SIMD=%s: expected an instruction set of this machine:", wanted);
  for (int simd = 0; simd < OPENREG_SIMD_COUNT; simd++) {
    if (is_there((openreg_simd)simd))
      fprintf(stderr, " %s", names[simd]);
  }
  fprintf(stderr, "\n");
  abort();
}

openreg_simd openreg_simd_chosen(void) {
  static _Atomic int chosen = -1;
  int simd = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (simd < 0) {
    simd = (int)choose();
    atomic_store_explicit(&chosen, simd, memory_order_relaxed);
  }
  return (openreg_simd)simd;
}

const char *openreg_simd_name(openreg_simd simd) {
  return names[simd];
}
