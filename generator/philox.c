/* philox.c: the function Philox4x32-10, for one block and for a batch. See rounds.h.
 *
 * It has no state: it cannot fail and can be evaluated in any order.
 */
#include "generator/philox.h"

#include "generator/lanes/lanes.h"
#include "generator/lanes/rounds.h"

#include <assert.h>

void openreg_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]) {
  quadruple c = {counter[0], counter[1], counter[2], counter[3]};
  c = rounds(c, key[0], key[1]);
  words[0] = c.x;
  words[1] = c.y;
  words[2] = c.z;
  words[3] = c.w;
}

void openreg_philox_block(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t words[4]) {
  const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)subsequence,
                               (uint32_t)(subsequence >> 32)};
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  openreg_philox4x32_10(counter, key, words);
}

void openreg_philox_fill(uint64_t seed, uint64_t first, uint64_t block, unsigned count,
                         philox_words *words) {
  assert(count <= PHILOX_BATCH);
  openreg_lanes_chosen()->fill(seed, first, block, count, words);
}
