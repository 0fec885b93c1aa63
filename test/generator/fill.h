/* fill.h: fills tensors of every shape with an operator on the grid, and checks each element.
 *
 * A test defines what element i must be. These functions run the operator on a contiguous,
 * transposed or gappy tensor in a buffer full of PATTERN, and check every element and every gap.
 */
#ifndef OPENREG_TEST_GENERATOR_FILL_H
#define OPENREG_TEST_GENERATOR_FILL_H

#include "check.h"

typedef struct operation operation;

struct operation {
  openreg_type type;
  openreg_philox philox;
  openreg_grid grid;
  int results_per_call;
  double a, b;      /* the operator's parameters: bounds, moments, rate, probability */
  double tolerance; /* relative or absolute; 0 for bit-exact */
  openreg_random_form form;
  uint64_t range;
  int64_t base;
  uint64_t (*words)(const operation *, const openreg_output *);
  void (*run)(const operation *, const openreg_output *);
  double (*expected)(const operation *, const reference_draw *);
};

/* A contiguous tensor of n elements. Also checks the number of words. */
void fill_check_contiguous(const operation *operation, uint64_t n);

/* A tensor of `dimensions`; element `order` in memory order is compared. */
void fill_check_strided(const operation *operation, int dimensions, const int64_t *sizes,
                        const int64_t *strides);

/* The shapes that every operator is tested with: empty, one element, less and more than a wave,
 * several calls, transposed, channels-last, with gaps. */
void fill_check_all_shapes(const operation *operation);

#endif
