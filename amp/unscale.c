/* unscale.c: divides gradients by the loss scale and looks for infinities and NaN among them.
 *
 * One pass over the memory does both. The loops keep what they found in a local variable, for a
 * store to *found_inf in each turn would keep them from vectorising. A scale of 1 is left out, as
 * CUDA does: the values then keep their bits, those of a signalling NaN too.
 */
#include "amp.h"

#include "half.h"

static inline uint32_t is_bad_f16(uint16_t gradient) {
  return (gradient & F16_INFINITY) == F16_INFINITY;
}
static inline uint32_t is_bad_bf16(uint16_t gradient) {
  return (gradient & BF16_INFINITY) == BF16_INFINITY;
}
static inline uint32_t is_bad_f32(float gradient) {
  return (bits_of_f32(gradient) & F32_INFINITY) == F32_INFINITY;
}
static inline uint32_t is_bad_f64(double gradient) {
  const uint64_t infinity = UINT64_C(0x7ff0000000000000);
  uint64_t bits;
  memcpy(&bits, &gradient, sizeof bits);
  return (bits & infinity) == infinity;
}

static inline uint16_t scaled_f16(uint16_t gradient, float factor) {
  return f16_from_f32(f32_from_f16(gradient) * factor);
}
static inline uint16_t scaled_bf16(uint16_t gradient, float factor) {
  return bf16_from_f32(f32_from_bf16(gradient) * factor);
}
static inline float scaled_f32(float gradient, float factor) {
  return gradient * factor;
}
static inline double scaled_f64(double gradient, float factor) {
  return gradient * factor;
}

#define DEFINE_UNSCALE(suffix, element)                                                            \
  void openreg_amp_unscale_##suffix(element *gradients, size_t count, float inverse_scale,         \
                                    float *found_inf) {                                            \
    uint32_t bad = 0;                                                                              \
    if (inverse_scale == 1) {                                                                      \
      for (size_t i = 0; i < count; i++)                                                           \
        bad |= is_bad_##suffix(gradients[i]);                                                      \
    } else {                                                                                       \
      for (size_t i = 0; i < count; i++) {                                                         \
        bad |= is_bad_##suffix(gradients[i]);                                                      \
        gradients[i] = scaled_##suffix(gradients[i], inverse_scale);                               \
      }                                                                                            \
    }                                                                                              \
    if (bad)                                                                                       \
      *found_inf = 1;                                                                              \
  }

DEFINE_UNSCALE(f16, uint16_t)
DEFINE_UNSCALE(bf16, uint16_t)
DEFINE_UNSCALE(f32, float)
DEFINE_UNSCALE(f64, double)
