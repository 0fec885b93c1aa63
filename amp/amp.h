/* amp.h: the whole contract of the mixed-precision layer: the two kernels of the gradient scaler.
 *
 * All functions work on the memory they are given, plain addressable memory, and may be called from
 * any thread. Which operators autocast casts is PyTorch's to say: the bridge takes it from there.
 */
#ifndef OPENREG_AMP_H
#define OPENREG_AMP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Multiplies `count` gradients by `inverse_scale` in place, computing in float (double for f64)
 * and rounding the product to nearest even, and sets *found_inf to 1 when any gradient was infinite
 * or NaN before the multiplication; leaves *found_inf alone otherwise. With inverse_scale == 1 only
 * checks. `gradients` holds IEEE binary16, bfloat16, binary32 or binary64 values, naturally
 * aligned. Results are the same with every instruction set that openreg_simd_chosen chooses. */
void openreg_amp_unscale_f16(uint16_t *gradients, size_t count, float inverse_scale,
                             float *found_inf);
void openreg_amp_unscale_bf16(uint16_t *gradients, size_t count, float inverse_scale,
                              float *found_inf);
void openreg_amp_unscale_f32(float *gradients, size_t count, float inverse_scale, float *found_inf);
void openreg_amp_unscale_f64(double *gradients, size_t count, float inverse_scale,
                             float *found_inf);

/* The scaler's step: when found_inf is not 0, scale *= backoff_factor and the tracker becomes 0;
 * otherwise the tracker counts up and, on reaching growth_interval, scale *= growth_factor (kept
 * as it was if that would overflow float32) and the tracker becomes 0. As CUDA does it. */
void openreg_amp_update_scale(float *scale, int32_t *growth_tracker, float found_inf,
                              double growth_factor, double backoff_factor, int growth_interval);

#ifdef __cplusplus
}
#endif
#endif
