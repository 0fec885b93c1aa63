/* lanes_chosen.c: which of the tables of lanes.h runs on this machine.
 *
 * The choice is made by the first caller and does not change. Threads that come first together all
 * work it out, and store the same.
 */
#include "lanes.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct variant {
  const char *name; /* in OPENREG_SIMD */
  const lanes *lanes;
  bool is_there; /* on this machine */
} variant;

enum { VARIANTS = 3 };

/* Narrowest first. The instructions are those that the build gives to the compiler. */
static void list_variants(variant variants[VARIANTS]) {
  variants[0] = (variant){"c", &lanes_c, true};
#ifdef OPENREG_X86_64
  variants[1] = (variant){"avx2", &lanes_avx2,
                          __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")};
  variants[2] =
      (variant){"avx512", &lanes_avx512,
                variants[1].is_there && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl")};
#else
  variants[1] = (variant){"avx2", NULL, false};
  variants[2] = (variant){"avx512", NULL, false};
#endif
}

static const lanes *choose(void) {
  variant variants[VARIANTS];
  list_variants(variants);
  const char *wanted = getenv("OPENREG_SIMD");
  const lanes *widest = NULL;
  for (int v = 0; v < VARIANTS; v++) {
    if (!variants[v].is_there)
      continue;
    widest = variants[v].lanes;
    if (wanted && strcmp(wanted, variants[v].name) == 0)
      return widest;
  }
  if (!wanted || wanted[0] == '\0')
    return widest;
  fprintf(stderr, "openreg: OPENREG_SIMD=%s: expected an instruction set of this machine:", wanted);
  for (int v = 0; v < VARIANTS; v++) {
    if (variants[v].is_there)
      fprintf(stderr, " %s", variants[v].name);
  }
  fprintf(stderr, "\n");
  abort();
}

const lanes *lanes_chosen(void) {
  static _Atomic(const lanes *) chosen;
  const lanes *lanes = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (!lanes) {
    lanes = choose();
    atomic_store_explicit(&chosen, lanes, memory_order_relaxed);
  }
  return lanes;
}

const char *openreg_generator_simd(void) {
  return lanes_chosen()->name + strlen("lanes_");
}

/* multiplier = floor(2^32 (2^l - value) / value) + 1 with l = ceil(log2(value)). */
divisor divisor_of(uint32_t value) {
  assert(value > 0);
  const int l = value > 1 ? 32 - __builtin_clz(value - 1) : 0;
  const uint64_t excess = (UINT64_C(1) << l) - value;
  return (divisor){.value = value,
                   .multiplier = (uint32_t)((excess << 32) / value + 1),
                   .first_shift = l > 0,
                   .second_shift = l > 0 ? l - 1 : 0};
}

divisor_64 divisor_64_of(uint64_t value) {
  assert(value > 0);
  const int l = value > 1 ? 64 - __builtin_clzll(value - 1) : 0;
  const unsigned __int128 excess = ((unsigned __int128)1 << l) - value;
  return (divisor_64){.value = value,
                      .multiplier = (uint64_t)((excess << 64) / value + 1),
                      .first_shift = l > 0,
                      .second_shift = l > 0 ? l - 1 : 0};
}
