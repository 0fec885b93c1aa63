/* environment.h: reading environment variables, with one sentence for what is not allowed:
 *
 *     openreg: OPENREG_DEVICE_COUNT=0: expected 1 to 64
 *
 * A variable that is set to "" counts as not set.
 */
#ifndef OPENREG_BASE_ENVIRONMENT_H
#define OPENREG_BASE_ENVIRONMENT_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The variable's value; NULL when it is not set. `lookup` NULL: the process environment. */
const char *openreg_environment_value(openreg_getenv lookup, const char *name);

/* Returns INVALID_CONFIGURATION, with variable, value and what is allowed, printf style. */
openreg_status openreg_environment_reject(const char *name, const char *value, const char *allowed,
                                          ...) __attribute__((format(printf, 3, 4)));

/* Reads 0 or 1; leaves `on` alone when the variable is not set. Errors: INVALID_CONFIGURATION. */
openreg_status openreg_environment_switch(openreg_getenv lookup, const char *name, bool *on);

/* ---- pieces of values ------------------------------------------------------------------------ */

typedef struct openreg_span {
  const char *text;
  size_t length;
} openreg_span;

/* Reads decimal digits from the front of `text` and returns how many; 0 when there are none or the
 * number does not fit. */
size_t openreg_parse_digits(openreg_span text, uint64_t *number);

/* A size such as 8G, 512M, 64KiB or 100. False when it is malformed or above `limit`. */
bool openreg_parse_bytes(openreg_span text, uint64_t limit, uint64_t *bytes);

#pragma GCC visibility pop
#endif
