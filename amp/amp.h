/* amp.h: the whole contract of the mixed-precision layer.
 *
 * Which operators autocast runs in which precision, as data, and the two kernels of the gradient
 * scaler. Of device.h it uses nothing but openreg_simd_chosen. All functions are pure or work on
 * the memory they are given, and may be called from any thread. Pointers are plain addressable
 * memory.
 */
#ifndef OPENREG_AMP_H
#define OPENREG_AMP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What autocast does with an operator's floating-point tensor arguments. Operators that the table
 * lacks are left alone. */
typedef enum openreg_amp_policy {
  OPENREG_AMP_LOWER_PRECISION,      /* cast to the autocast dtype */
  OPENREG_AMP_FLOAT32,              /* cast to float32 */
  OPENREG_AMP_FLOAT32_SET_DTYPE,    /* a dtype argument that was not given becomes float32 */
  OPENREG_AMP_FLOAT32_APPEND_DTYPE, /* call the overload with a dtype argument, with float32 */
  OPENREG_AMP_PROMOTE,              /* cast to the widest floating type among the arguments */
  OPENREG_AMP_BANNED,               /* refuse: unsafe to autocast */
} openreg_amp_policy;

typedef struct openreg_amp_entry {
  const char *operator_name; /* without namespace: "addmm" */
  const char *overload;      /* "" for the default overload */
  openreg_amp_policy policy;
  const char *replacement; /* FLOAT32_APPEND_DTYPE: the overload to call. NULL otherwise */
} openreg_amp_entry;

/* The whole table in the order of the policies; `*count` gets its length. Static storage. */
const openreg_amp_entry *openreg_amp_table(size_t *count);

/* "lower_precision", "float32", "float32_set_dtype", "float32_append_dtype", "promote", "banned";
 * NULL for a number that is not a policy. */
const char *openreg_amp_policy_name(openreg_amp_policy policy);

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
