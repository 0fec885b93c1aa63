/* lanes_chosen.c: selects the table of lanes.h for this machine; and computes divisors, which are
 * the same for all tables. */
#include "generator/lanes/lanes.h"

#include "base/base.h"

#include <assert.h>

const lanes *openreg_lanes_chosen(void) {
#ifdef __x86_64__
  static const lanes *const tables[OPENREG_SIMD_COUNT] = {&openreg_lanes_c, &openreg_lanes_avx2,
                                                          &openreg_lanes_avx512};
#else
  static const lanes *const tables[OPENREG_SIMD_COUNT] = {&openreg_lanes_c};
#endif
  return tables[openreg_simd_chosen()];
}

/* multiplier = floor(2^32 (2^l - value) / value) + 1 with l = ceil(log2(value)). */
divisor openreg_divisor_of(uint32_t value) {
  assert(value > 0);
  const int l = value > 1 ? 32 - __builtin_clz(value - 1) : 0;
  const uint64_t excess = (UINT64_C(1) << l) - value;
  return (divisor){.value = value,
                   .multiplier = (uint32_t)((excess << 32) / value + 1),
                   .first_shift = l > 0,
                   .second_shift = l > 0 ? l - 1 : 0};
}

divisor_64 openreg_divisor_64_of(uint64_t value) {
  assert(value > 0);
  const int l = value > 1 ? 64 - __builtin_clzll(value - 1) : 0;
  const unsigned __int128 excess = ((unsigned __int128)1 << l) - value;
  return (divisor_64){.value = value,
                      .multiplier = (uint64_t)((excess << 64) / value + 1),
                      .first_shift = l > 0,
                      .second_shift = l > 0 ? l - 1 : 0};
}
