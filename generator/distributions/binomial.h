/* binomial.h: openreg_binomial with the size limit for splitting a tensor as a parameter.
 *
 * The limit is that of the GPU's 32-bit index; tests cannot allocate so much memory. All parts of a
 * split tensor start at the same position of the generator. Unlike parts on the grid, they do not
 * take words of their own.
 */
#ifndef OPENREG_GENERATOR_BINOMIAL_H
#define OPENREG_GENERATOR_BINOMIAL_H

#include "generator/generator.h"

/* Does what openreg_binomial does, with parts within `limit` (see layout.h). */
__attribute__((visibility("hidden"))) void
openreg_binomial_within(uint64_t limit, openreg_type type, uint64_t n, const void *count,
                        const void *p, void *result, openreg_share share, openreg_philox philox);

#endif
