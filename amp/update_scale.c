/* update_scale.c: updates the loss scale after a step, depending on whether gradients overflowed.
 *
 * The arithmetic is bit-exact with CUDA's: float32 scale times float64 factor, rounded once. CUDA
 * tests whether the tracker equals the growth interval, so a tracker that starts beyond it
 * continues to count.
 */
#include "amp/amp.h"

#include <math.h>

void openreg_amp_update_scale(float *scale, int32_t *growth_tracker, float found_inf,
                              double growth_factor, double backoff_factor, int growth_interval) {
  if (found_inf != 0) {
    *scale = (float)(*scale * backoff_factor);
    *growth_tracker = 0;
    return;
  }
  int64_t good_steps = (int64_t)*growth_tracker + 1;
  if (good_steps != growth_interval) {
    *growth_tracker = (int32_t)good_steps;
    return;
  }
  float grown = (float)(*scale * growth_factor);
  if (isfinite(grown))
    *scale = grown;
  *growth_tracker = 0;
}
