/* integers.c: random integers, the three forms of random_, for every type.
 *
 * A form consists of a kind of word (32 or 64 bits), a modulus and a base. The rest is one formula
 * modulo 2^64: word mod modulus, plus base, read as a signed number and converted to the type. Half
 * and bfloat16 are converted through float, as c10's types are.
 */
#include "generator/grid.h"
#include "generator/lanes/lanes.h"
#include "generator/types.h"

#include <assert.h>

/* From this range on, PyTorch's CUDA kernel takes 64-bit words for every type. It accepts a bias of
 * the remainder of about 5 % below it. */
#define MIN_RANGE_64 (UINT64_C(1) << 28)

typedef struct recipe {
  openreg_type type;
  int results_per_call;
  uint64_t modulus; /* 0: the whole word */
  int64_t base;
  divisor divisor;       /* for words of 32 bits */
  divisor_64 divisor_64; /* for words of 64 bits */
} recipe;

/* Returns the number of different values of random_(): the non-negative ones of an integer type,
 * and for a floating type with d binary digits 0 to 2^d, which it holds exactly. CUDA has no
 * random_() for the three wide unsigned types; they get their whole range here. */
static uint64_t whole_type_modulus(openreg_type type) {
  switch (type) {
  case OPENREG_BOOL:
    return 2;
  case OPENREG_INT8:
    return UINT64_C(1) << 7;
  case OPENREG_UINT8:
    return UINT64_C(1) << 8;
  case OPENREG_INT16:
    return UINT64_C(1) << 15;
  case OPENREG_UINT16:
    return UINT64_C(1) << 16;
  case OPENREG_INT32:
    return UINT64_C(1) << 31;
  case OPENREG_UINT32:
    return UINT64_C(1) << 32;
  case OPENREG_INT64:
    return UINT64_C(1) << 63;
  case OPENREG_BFLOAT16:
    return (UINT64_C(1) << 8) + 1;
  case OPENREG_FLOAT16:
    return (UINT64_C(1) << 11) + 1;
  case OPENREG_FLOAT32:
    return (UINT64_C(1) << 24) + 1;
  case OPENREG_FLOAT64:
    return (UINT64_C(1) << 53) + 1;
  case OPENREG_UINT64:
    break;
  }
  return 0;
}

static recipe recipe_of(openreg_type type, openreg_random_form form, uint64_t range, int64_t base) {
  recipe recipe = {.type = type, .results_per_call = GRID_RESULTS_64};
  switch (form) {
  case OPENREG_RANDOM_FROM_TO:
    assert(range >= 1);
    recipe.results_per_call = range < MIN_RANGE_64 ? GRID_RESULTS_32 : GRID_RESULTS_64;
    recipe.modulus = range;
    recipe.base = base;
    break;
  case OPENREG_RANDOM_FULL_64:
    break;
  case OPENREG_RANDOM_WHOLE_TYPE:
    if (type != OPENREG_INT64 && type != OPENREG_UINT64 && type != OPENREG_FLOAT64)
      recipe.results_per_call = GRID_RESULTS_32;
    recipe.modulus = whole_type_modulus(type);
    break;
  }
  if (recipe.modulus > 0 && recipe.modulus <= UINT32_MAX)
    recipe.divisor = openreg_divisor_of((uint32_t)recipe.modulus);
  if (recipe.modulus > 0)
    recipe.divisor_64 = openreg_divisor_64_of(recipe.modulus);
  return recipe;
}

/* Whether the largest value fits in 32 bits. The smallest value, the base, must fit too. */
static bool is_narrow(const recipe *p) {
  return p->base >= INT32_MIN && p->base <= INT32_MAX && p->modulus <= INT32_MAX &&
         p->base + (int64_t)p->modulus <= INT32_MAX;
}

static void convert_words_32(const void *parameters, const grid_batch *batch) {
  const recipe *p = parameters;
  const bool narrow = is_narrow(p);
  for (int lane = 0; lane < 4; lane++) {
    uint32_t remainders[PHILOX_BATCH];
    const uint32_t *words = batch->words->lane[lane];
    const unsigned count = batch->counts[lane];
    if (p->modulus <= UINT32_MAX) {
      const uint32_t base = narrow ? (uint32_t)p->base : 0;
      openreg_lanes_chosen()->remainders(words, count, p->divisor, base, remainders);
      words = remainders;
    }
    if (narrow) {
      openreg_type_store_int32s(p->type, (const int32_t *)words, count, batch->values[lane]);
    } else {
      int64_t values[PHILOX_BATCH];
      for (unsigned j = 0; j < count; j++)
        values[j] = (int64_t)(words[j] + (uint64_t)p->base);
      openreg_type_store_int64s(p->type, values, count, batch->values[lane]);
    }
  }
}

static void convert_words_64(const void *parameters, const grid_batch *batch) {
  const recipe *p = parameters;
  for (int lane = 0; lane < 2; lane++) {
    int64_t values[PHILOX_BATCH];
    const uint32_t *a = batch->words->lane[2 * lane], *b = batch->words->lane[2 * lane + 1];
    const unsigned count = batch->counts[lane];
    if (p->modulus)
      openreg_lanes_chosen()->remainders_64(a, b, count, p->divisor_64, (uint64_t)p->base, values);
    else
      openreg_lanes_chosen()->words_64(a, b, count, (uint64_t)p->base, values);
    openreg_type_store_int64s(p->type, values, count, batch->values[lane]);
  }
}

uint64_t openreg_random_words(const openreg_output *output, openreg_grid grid,
                              openreg_random_form form, uint64_t range) {
  recipe recipe = recipe_of(output->type, form, range, 0);
  return openreg_grid_words(output, grid, recipe.results_per_call);
}

void openreg_random(const openreg_output *output, openreg_share share, openreg_philox philox,
                    openreg_grid grid, openreg_random_form form, uint64_t range, int64_t base) {
  recipe recipe = recipe_of(output->type, form, range, base);
  openreg_grid_fill(
      output, share, philox, grid, recipe.results_per_call,
      recipe.results_per_call == GRID_RESULTS_32 ? convert_words_32 : convert_words_64, &recipe);
}
