/* sentences.h: how ranks, groups and calls are named to a person. */
#ifndef OPENREG_COLLECTIVES_SENTENCES_H
#define OPENREG_COLLECTIVES_SENTENCES_H

#include "collectives/segment_mapping.h"

#pragma GCC visibility push(hidden)

enum {
  OPENREG_RANK_TEXT_BYTES = 32,
  OPENREG_GROUP_TEXT_BYTES = OPENREG_COMM_NAME_BYTES + 16,
  OPENREG_CALL_TEXT_BYTES = 160,
  OPENREG_RANKS_TEXT_BYTES = 200,
  OPENREG_TIME_TEXT_BYTES = 32,
};

/* Each writes into `text`, and returns it. */

/* "rank 2" */
const char *openreg_rank_text(const openreg_attachment *attachment, int rank,
                              char text[OPENREG_RANK_TEXT_BYTES]);

/* " of group 'dp'"; nothing for one without a name. */
const char *openreg_group_text(const openreg_attachment *attachment,
                               char text[OPENREG_GROUP_TEXT_BYTES]);

/* "all_reduce #17 (sum, float32, 1024 elements)" */
const char *openreg_call_text(const openreg_attachment *attachment,
                              const struct openreg_signature *signature, uint64_t number,
                              char text[OPENREG_CALL_TEXT_BYTES]);

/* "rank 3 of 4", "ranks 1, 2, 5 of 8", "ranks 0, 1, 2, ... (240 of 256)": those that `is_one`
 * chooses, one at least. */
const char *openreg_ranks_text(const openreg_attachment *attachment,
                               bool (*is_one)(const void *context, int rank), const void *context,
                               char text[OPENREG_RANKS_TEXT_BYTES]);

/* "600 s" */
const char *openreg_time_text(uint64_t time_ns, char text[OPENREG_TIME_TEXT_BYTES]);

#pragma GCC visibility pop
#endif
