/* binomial.h: binomial, with the limit beyond which a tensor is cut as a parameter.
 *
 * The limit is a GPU's 32-bit index, of which tests cannot have the memory. All parts of a cut
 * tensor start from the same place of the generator: unlike the grid's, they do not draw for
 * themselves.
 */
#ifndef OPENREG_GENERATOR_BINOMIAL_H
#define OPENREG_GENERATOR_BINOMIAL_H

#include "generator/generator.h"

/* openreg_binomial, cut into parts that are within `limit` (see layout.h). */
__attribute__((visibility("hidden"))) void
openreg_binomial_within(uint64_t limit, openreg_type type, uint64_t n, const void *count,
                        const void *p, void *result, openreg_share share, openreg_philox philox);

#endif
