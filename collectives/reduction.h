/* reduction.h: the arithmetic of collectives, on memory that this process can read and write. */
#ifndef OPENREG_COLLECTIVES_REDUCTION_H
#define OPENREG_COLLECTIVES_REDUCTION_H

#include "collectives/collectives.h"

#pragma GCC visibility push(hidden)

typedef struct openreg_reduction_job {
  openreg_reduction reduction; /* defined for the dtype */
  openreg_dtype dtype;
  int source_count, destination_count; /* 1 or more each */
  const void *const *sources;          /* in the order in which they are reduced */
  void *const *destinations;           /* all get the same bits */
  const double *factors;               /* of PREMUL_SUM: one for each source; else NULL */
  size_t count;                        /* elements of each */
} openreg_reduction_job;

/* Reduces tile by tile: a tile of all sources is read before it is written to any destination, so a
 * destination may be a source, element for element; they must not overlap otherwise. All addresses
 * are multiples of the element's bytes. `is_ended` (NULL: never) is asked between tiles, and ends
 * the work when it holds; returns false then. */
bool openreg_reduce(const openreg_reduction_job *job, bool (*is_ended)(const void *),
                    const void *context);

#pragma GCC visibility pop
#endif
