/* sentences.c: see sentences.h. */
#include "collectives/error_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int shown_rank(const openreg_attachment *attachment, int rank) {
  return attachment->rank_names == NULL ? rank : attachment->rank_names[rank];
}

const char *openreg_rank_text(const openreg_attachment *attachment, int rank,
                              char text[OPENREG_RANK_TEXT_BYTES]) {
  snprintf(text, OPENREG_RANK_TEXT_BYTES, "rank %d", shown_rank(attachment, rank));
  return text;
}

const char *openreg_group_text(const openreg_attachment *attachment,
                               char text[OPENREG_GROUP_TEXT_BYTES]) {
  text[0] = '\0';
  if (attachment->name[0] != '\0')
    snprintf(text, OPENREG_GROUP_TEXT_BYTES, " of group '%s'", attachment->name);
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

static bool has_root(uint32_t kind) {
  return kind == OPENREG_COLLECTIVE_REDUCE || kind == OPENREG_COLLECTIVE_BROADCAST ||
         kind == OPENREG_COLLECTIVE_GATHER || kind == OPENREG_COLLECTIVE_SCATTER;
}

static bool reduces(uint32_t kind) {
  return kind == OPENREG_COLLECTIVE_ALL_REDUCE || kind == OPENREG_COLLECTIVE_REDUCE ||
         kind == OPENREG_COLLECTIVE_REDUCE_SCATTER;
}

const char *openreg_call_text(const openreg_attachment *attachment,
                              const struct openreg_signature *signature, uint64_t number,
                              char text[OPENREG_CALL_TEXT_BYTES]) {
  snprintf(text, OPENREG_CALL_TEXT_BYTES, "%s #%" PRIu64,
           openreg_collective_name((openreg_collective_kind)signature->kind), number);
  if (signature->kind == OPENREG_COLLECTIVE_BARRIER)
    return text;
  append(text, OPENREG_CALL_TEXT_BYTES, " (");
  if (reduces(signature->kind))
    append(text, OPENREG_CALL_TEXT_BYTES, "%s, ",
           openreg_reduction_name((openreg_reduction)signature->reduction));
  append(text, OPENREG_CALL_TEXT_BYTES, "%s, %" PRIu64 " element%s",
         openreg_dtype_name((openreg_dtype)signature->dtype), signature->elements,
         signature->elements == 1 ? "" : "s");
  if (has_root(signature->kind))
    append(text, OPENREG_CALL_TEXT_BYTES, ", root %d",
           shown_rank(attachment, (int)signature->root));
  append(text, OPENREG_CALL_TEXT_BYTES, ")");
  return text;
}

const char *openreg_ranks_text(const openreg_attachment *attachment,
                               bool (*is_one)(const void *context, int rank), const void *context,
                               char text[OPENREG_RANKS_TEXT_BYTES]) {
  enum { MOST = 12 };
  int found = 0;
  char list[OPENREG_RANKS_TEXT_BYTES - 40] = "";
  for (int rank = 0; rank < attachment->size; rank++) {
    if (!is_one(context, rank))
      continue;
    if (found < MOST)
      append(list, sizeof list, "%s%d", found == 0 ? "" : ", ", shown_rank(attachment, rank));
    found++;
  }
  const char *noun = found == 1 ? "rank" : "ranks";
  if (found > MOST)
    snprintf(text, OPENREG_RANKS_TEXT_BYTES, "%s %s, ... (%d of %d)", noun, list, found,
             attachment->size);
  else if (attachment->rank_names == NULL)
    snprintf(text, OPENREG_RANKS_TEXT_BYTES, "%s %s of %d", noun, list, attachment->size);
  else
    snprintf(text, OPENREG_RANKS_TEXT_BYTES, "%s %s", noun, list);
  return text;
}

const char *openreg_time_text(uint64_t time_ns, char text[OPENREG_TIME_TEXT_BYTES]) {
  snprintf(text, OPENREG_TIME_TEXT_BYTES, "%.12g s", (double)time_ns / 1e9);
  return text;
}
