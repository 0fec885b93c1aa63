/* status.c: names and sentences of statuses, and each thread's last failure.
 *
 * The sentence is kept per thread, so that no lock is needed and no other thread can replace it
 * between a failure and the question what it was.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_sentence[OPENREG_SENTENCE_BYTES];

static const char *const names[] = {
#define X(name, sentence) #name,
    OPENREG_STATUS_LIST(X)
#undef X
};

static const char *const sentences[] = {
#define X(name, sentence) sentence,
    OPENREG_STATUS_LIST(X)
#undef X
};

static bool is_known(openreg_status status) {
  return (size_t)status < sizeof names / sizeof names[0];
}

const char *openreg_status_name(openreg_status status) {
  return is_known(status) ? names[status] : "UNKNOWN";
}

const char *openreg_status_sentence(openreg_status status) {
  return is_known(status) ? sentences[status] : "unknown status";
}

const char *openreg_last_error(void) {
  return last_sentence;
}

void openreg_error_clear(void) {
  last_sentence[0] = '\0';
}

openreg_status openreg_fail(openreg_status status, const char *format, ...) {
  /* Written aside first: the arguments may contain the last sentence itself. */
  char sentence[OPENREG_SENTENCE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  memcpy(last_sentence, sentence, sizeof sentence);
  return status;
}
