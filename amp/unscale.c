/* unscale.c: divides gradients by the loss scale and detects infinities and NaN. It calls the loops
 * for the instruction set that the device layer selects. */
#include "amp/amp.h"

#include "base/base.h"
#include "amp/unscale_loops.h"

static const unscale_loops *chosen(void) {
#ifdef __x86_64__
  static const unscale_loops *const tables[OPENREG_SIMD_COUNT] = {
      &openreg_unscale_loops_c, &openreg_unscale_loops_avx2, &openreg_unscale_loops_avx512};
#else
  static const unscale_loops *const tables[OPENREG_SIMD_COUNT] = {&openreg_unscale_loops_c};
#endif
  return tables[openreg_simd_chosen()];
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
