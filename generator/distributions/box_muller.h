/* box_muller.h: pairs of standard normal numbers by the Box-Muller method, paired as in cuRAND.
 *
 * A pair of uniforms gives a radius and an angle. The first result is the sine, the second the
 * cosine. The GPU computes the sine and cosine of a float with approximating hardware (absolute
 * error about 2^-20), for which no table exists. Here accurate functions are used instead (for
 * floats those of elementary.h). So floats agree with the GPU within rounding, about 1e-6, and
 * doubles within their last places.
 */
#ifndef OPENREG_GENERATOR_BOX_MULLER_H
#define OPENREG_GENERATOR_BOX_MULLER_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Computes fma(z, deviation, mean) of standard normal numbers z. Element j of the sines
 * (`sine_count` <= PHILOX_BATCH are wanted) and of the cosines (at most as many) comes from words
 * first[j] and second[j]. */
void openreg_box_muller_floats(const uint32_t *first, const uint32_t *second, unsigned sine_count,
                               unsigned cosine_count, float deviation, float mean, float *sines,
                               float *cosines);

/* Computes one pair from the four words of a block. */
void openreg_box_muller_double(const uint32_t words[4], double *sine, double *cosine);

#pragma GCC visibility pop
#endif
