/* status.c: names and sentences of statuses, and each thread's last failure.
 *
 * The sentence is kept per thread, so that no lock is needed and no other thread can replace it
 * between a failure and the question what it was. It lies on the heap: what a library loaded late
 * may have as a thread's variables is a kilobyte and a half, all of its layers together.
 */
#include "base/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char *last_sentence; /* NULL before the thread's first failure */
static _Thread_local bool is_lost;        /* there was no room for it */
static pthread_key_t at_thread_end;       /* frees it */

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

static void free_sentence(void *sentence) {
  last_sentence = NULL;
  free(sentence);
}

static void prepare(void) {
  (void)pthread_key_create(&at_thread_end, free_sentence);
}

static void make_room(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prepare);
  last_sentence = malloc(OPENREG_SENTENCE_BYTES);
  pthread_setspecific(at_thread_end, last_sentence);
}

const char *openreg_last_error(void) {
  if (is_lost)
    return "openreg: something failed, and there is no host memory for the sentence that says what";
  return last_sentence != NULL ? last_sentence : "";
}

void openreg_error_clear(void) {
  is_lost = false;
  if (last_sentence != NULL)
    last_sentence[0] = '\0';
}

openreg_status openreg_fail(openreg_status status, const char *format, ...) {
  /* Written aside first: the arguments may contain the last sentence itself. */
  char sentence[OPENREG_SENTENCE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  if (last_sentence == NULL)
    make_room();
  is_lost = last_sentence == NULL;
  if (!is_lost)
    memcpy(last_sentence, sentence, sizeof sentence);
  return status;
}
