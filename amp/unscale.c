/* unscale.c: divides gradients by the loss scale and looks for infinities and NaN among them.
 *
 * The work is done by the loops for the widest instruction set that this machine has, or for the
 * one that the environment variable OPENREG_SIMD names. The choice is made by the first caller and
 * does not change. Threads that come first together all work it out, and store the same.
 */
#include "amp.h"

#include "unscale_loops.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct variant {
  const char *name; /* in OPENREG_SIMD */
  const unscale_loops *loops;
  bool is_there; /* on this machine */
} variant;

enum { VARIANTS = 3 };

/* Narrowest first. The instructions are those that the build gives to the compiler. */
static void list_variants(variant variants[VARIANTS]) {
  variants[0] = (variant){"c", &unscale_loops_c, true};
#ifdef OPENREG_X86_64
  variants[1] = (variant){"avx2", &unscale_loops_avx2,
                          __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")};
  variants[2] =
      (variant){"avx512", &unscale_loops_avx512,
                variants[1].is_there && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl")};
#else
  variants[1] = (variant){"avx2", NULL, false};
  variants[2] = (variant){"avx512", NULL, false};
#endif
}

static const unscale_loops *choose(void) {
  variant variants[VARIANTS];
  list_variants(variants);
  const char *wanted = getenv("OPENREG_SIMD");
  const unscale_loops *widest = NULL;
  for (int v = 0; v < VARIANTS; v++) {
    if (!variants[v].is_there)
      continue;
    widest = variants[v].loops;
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

static const unscale_loops *chosen(void) {
  static _Atomic(const unscale_loops *) table;
  const unscale_loops *loops = atomic_load_explicit(&table, memory_order_relaxed);
  if (!loops) {
    loops = choose();
    atomic_store_explicit(&table, loops, memory_order_relaxed);
  }
  return loops;
}

#define DEFINE_UNSCALE(suffix, element)                                                            \
  void openreg_amp_unscale_##suffix(element *gradients, size_t count, float inverse_scale,         \
                                    float *found_inf) {                                            \
    if (chosen()->suffix(gradients, count, inverse_scale))                                         \
      *found_inf = 1;                                                                              \
  }

DEFINE_UNSCALE(f16, uint16_t)
DEFINE_UNSCALE(bf16, uint16_t)
DEFINE_UNSCALE(f32, float)
DEFINE_UNSCALE(f64, double)
