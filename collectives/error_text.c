/* error_text.c: see error_text.h. */
#include "collectives/error_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int shown_rank(const openreg_segment_mapping *mapping, int rank) {
  return mapping->rank_names == NULL ? rank : mapping->rank_names[rank];
}

const char *openreg_rank_text(const openreg_segment_mapping *mapping, int rank,
                              char text[OPENREG_RANK_TEXT_BYTES]) {
  snprintf(text, OPENREG_RANK_TEXT_BYTES, "rank %d", shown_rank(mapping, rank));
  return text;
}

const char *openreg_group_text(const openreg_segment_mapping *mapping,
                               char text[OPENREG_GROUP_TEXT_BYTES]) {
  text[0] = '\0';
  if (mapping->name[0] != '\0')
    snprintf(text, OPENREG_GROUP_TEXT_BYTES, " of group '%s'", mapping->name);
  return text;
}

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t room,
                                                         const char *format, ...) {
  size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + length, room - length, format, arguments);
  va_end(arguments);
}

const char *openreg_call_text(const openreg_segment_mapping *mapping,
                              const struct openreg_signature *signature, uint64_t number,
                              char text[OPENREG_CALL_TEXT_BYTES]) {
  const openreg_collective_traits *traits =
      openreg_collective_traits_of((openreg_collective_kind)signature->kind);
  snprintf(text, OPENREG_CALL_TEXT_BYTES, "%s #%" PRIu64, traits->name, number);
  if (traits->lengths == OPENREG_LENGTHS_NONE)
    return text;
  append(text, OPENREG_CALL_TEXT_BYTES, " (");
  if (traits->reduces)
    append(text, OPENREG_CALL_TEXT_BYTES, "%s, ",
           openreg_reduction_name((openreg_reduction)signature->reduction));
  append(text, OPENREG_CALL_TEXT_BYTES, "%s, %" PRIu64 " element%s",
         openreg_dtype_name((openreg_dtype)signature->dtype), signature->elements,
         signature->elements == 1 ? "" : "s");
  if (traits->has_root)
    append(text, OPENREG_CALL_TEXT_BYTES, ", root %d", shown_rank(mapping, (int)signature->root));
  append(text, OPENREG_CALL_TEXT_BYTES, ")");
  return text;
}

const char *openreg_ranks_text(const openreg_segment_mapping *mapping,
                               bool (*is_listed)(const void *context, int rank),
                               const void *context, char text[OPENREG_RANKS_TEXT_BYTES]) {
  enum { MAX_LISTED = 12 };
  int found = 0;
  char list[OPENREG_RANKS_TEXT_BYTES - 40] = "";
  for (int rank = 0; rank < mapping->size; rank++) {
    if (!is_listed(context, rank))
      continue;
    if (found < MAX_LISTED)
      append(list, sizeof list, "%s%d", found == 0 ? "" : ", ", shown_rank(mapping, rank));
    found++;
  }
  const char *noun = found == 1 ? "rank" : "ranks";
  if (found > MAX_LISTED)
    snprintf(text, OPENREG_RANKS_TEXT_BYTES, "%s %s, ... (%d of %d)", noun, list, found,
             mapping->size);
  else if (mapping->rank_names == NULL)
    snprintf(text, OPENREG_RANKS_TEXT_BYTES, "%s %s of %d", noun, list, mapping->size);
  else
    snprintf(text, OPENREG_RANKS_TEXT_BYTES, "%s %s", noun, list);
  return text;
}

const char *openreg_time_text(uint64_t time_ns, char text[OPENREG_TIME_TEXT_BYTES]) {
  snprintf(text, OPENREG_TIME_TEXT_BYTES, "%.12g s", (double)time_ns / 1e9);
  return text;
}
