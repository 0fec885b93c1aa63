/* randperm.h: a function for tests of random permutations. */
#ifndef OPENREG_GENERATOR_RANDPERM_H
#define OPENREG_GENERATOR_RANDPERM_H

#include "generator/generator.h"

/* Does what openreg_randperm does, and stores at most `most_bits` >= 1 bits of a key in an entry.
 * The result is the same. So a small permutation can exercise the code for large ones. */
__attribute__((visibility("hidden"))) bool
openreg_randperm_with_key_bits(int most_bits, int64_t *output, uint64_t n, openreg_philox philox,
                               openreg_grid grid);

#endif
