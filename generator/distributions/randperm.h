/* randperm.h: what tests of random permutations need beside the public functions. */
#ifndef OPENREG_GENERATOR_RANDPERM_H
#define OPENREG_GENERATOR_RANDPERM_H

#include "generator/generator.h"

/* As openreg_randperm, with at most `most_bits` >= 1 bits of a key in what is sorted: the result is
 * the same, and so small permutations can be brought to what happens to large ones. */
__attribute__((visibility("hidden"))) bool openreg_randperm_showing(int most_bits, int64_t *output,
                                                                    uint64_t n,
                                                                    openreg_philox philox,
                                                                    openreg_grid grid);

#endif
