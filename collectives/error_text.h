/* error_text.h: the text of ranks, groups and calls in error messages. */
#ifndef OPENREG_COLLECTIVES_ERROR_TEXT_H
#define OPENREG_COLLECTIVES_ERROR_TEXT_H

#include "collectives/segment_mapping.h"

#pragma GCC visibility push(hidden)

enum {
  OPENREG_RANK_TEXT_BYTES = 32,
  OPENREG_GROUP_TEXT_BYTES = OPENREG_COMM_NAME_BYTES + 16,
  OPENREG_CALL_TEXT_BYTES = 160,
  OPENREG_RANKS_TEXT_BYTES = 200,
  OPENREG_TIME_TEXT_BYTES = 32,
};

/* Each function writes into `text`, which the caller owns, and returns it. */

/* "rank 2" */
const char *openreg_rank_text(const openreg_segment_mapping *mapping, int rank,
                              char text[OPENREG_RANK_TEXT_BYTES]);

/* " of group 'dp'"; "" for a communicator without a name. */
const char *openreg_group_text(const openreg_segment_mapping *mapping,
                               char text[OPENREG_GROUP_TEXT_BYTES]);

/* "all_reduce #17 (sum, float32, 1024 elements)" */
const char *openreg_call_text(const openreg_segment_mapping *mapping,
                              const struct openreg_signature *signature, uint64_t number,
                              char text[OPENREG_CALL_TEXT_BYTES]);

/* "rank 3 of 4", "ranks 1, 2, 5 of 8", "ranks 0, 1, 2, ... (240 of 256)": the ranks for which
 * `is_listed` returns true, at least one. */
const char *openreg_ranks_text(const openreg_segment_mapping *mapping,
                               bool (*is_listed)(const void *context, int rank),
                               const void *context, char text[OPENREG_RANKS_TEXT_BYTES]);

/* "600 s" */
const char *openreg_time_text(uint64_t time_ns, char text[OPENREG_TIME_TEXT_BYTES]);

#pragma GCC visibility pop
#endif
