/* status.c: names and messages of status codes, and each thread's last failure.
 *
 * Each thread has its own message buffer, so no lock is needed and no other thread can replace the
 * message before it is read. The buffer lies on the heap because a library that is loaded late has
 * only about 1.5 KiB of static thread-local storage for all its layers.
 */
#include "base/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char *last_message; /* NULL before the thread's first failure */
static _Thread_local bool is_lost;       /* no memory for the buffer */
static pthread_key_t at_thread_end;      /* key whose destructor frees the buffer */

static const char *const names[] = {
#define X(name, message) #name,
    OPENREG_STATUS_LIST(X)
#undef X
};

static const char *const messages[] = {
#define X(name, message) message,
    OPENREG_STATUS_LIST(X)
#undef X
};

static bool is_known(openreg_status status) {
  return (size_t)status < sizeof names / sizeof names[0];
}

const char *openreg_status_name(openreg_status status) {
  return is_known(status) ? names[status] : "UNKNOWN";
}

const char *openreg_status_message(openreg_status status) {
  return is_known(status) ? messages[status] : "unknown status";
}

static void free_message(void *message) {
  last_message = NULL;
  free(message);
}

static void prepare(void) {
  (void)pthread_key_create(&at_thread_end, free_message);
}

static void make_room(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prepare);
  last_message = malloc(OPENREG_MESSAGE_BYTES);
  pthread_setspecific(at_thread_end, last_message);
}

const char *openreg_last_error(void) {
  if (is_lost)
    return "openreg: out of host memory while reporting an earlier error";
  return last_message != NULL ? last_message : "";
}

void openreg_error_clear(void) {
  is_lost = false;
  if (last_message != NULL)
    last_message[0] = '\0';
}

openreg_status openreg_fail(openreg_status status, const char *format, ...) {
  /* Formatted into a local buffer first, because the arguments may refer to the last message
   * itself. */
  char message[OPENREG_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (last_message == NULL)
    make_room();
  is_lost = last_message == NULL;
  if (!is_lost)
    memcpy(last_message, message, sizeof message);
  return status;
}
