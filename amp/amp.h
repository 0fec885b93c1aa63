/* amp.h: the public interface of the mixed-precision layer, which has the two kernels of the
 * gradient scaler.
 *
 * All functions work on the plain addressable memory that they are given. Any thread may call them.
 * PyTorch decides which operators autocast converts; the bridge asks it.
 */
#ifndef OPENREG_AMP_H
#define OPENREG_AMP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Multiply `count` gradients by `inverse_scale` in place. They compute in float (double for f64)
 * and round the product to nearest even. If any gradient was infinite or NaN before the
 * multiplication, they set *found_inf to 1, else they leave it. With inverse_scale == 1 they only
 * check. `gradients` holds IEEE binary16, bfloat16, binary32 or binary64 values, naturally aligned.
 * Results are the same with every instruction set that openreg_simd_chosen returns. */
void openreg_amp_unscale_f16(uint16_t *gradients, size_t count, float inverse_scale,
                             float *found_inf);
void openreg_amp_unscale_bf16(uint16_t *gradients, size_t count, float inverse_scale,
                              float *found_inf);
void openreg_amp_unscale_f32(float *gradients, size_t count, float inverse_scale, float *found_inf);
void openreg_amp_unscale_f64(double *gradients, size_t count, float inverse_scale,
                             float *found_inf);

/* Updates the scale, as CUDA does. If found_inf is not 0, it multiplies the scale by backoff_factor
 * and sets the tracker to 0. Otherwise it increments the tracker. When that reaches
 * growth_interval, it multiplies the scale by growth_factor, unless that overflows float32, and
 * sets the tracker to 0. */
void openreg_amp_update_scale(float *scale, int32_t *growth_tracker, float found_inf,
                              double growth_factor, double backoff_factor, int growth_interval);

#ifdef __cplusplus
}
#endif
#endif
