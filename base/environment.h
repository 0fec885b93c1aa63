/* environment.h: reads environment variables. All rejected values produce the same kind of message:
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

/* The variable's value, or NULL if it is not set. `lookup` NULL: use the process environment. */
const char *openreg_environment_value(openreg_getenv lookup, const char *name);

/* Returns INVALID_CONFIGURATION with a message that names the variable, its value and what is
 * allowed (printf style). */
openreg_status openreg_environment_reject(const char *name, const char *value, const char *allowed,
                                          ...) __attribute__((format(printf, 3, 4)));

/* Reads 0 or 1. Does not change `on` if the variable is not set. Errors: INVALID_CONFIGURATION. */
openreg_status openreg_environment_switch(openreg_getenv lookup, const char *name, bool *on);

/* ---- parsing values -------------------------------------------------------------------------- */

typedef struct openreg_span {
  const char *text;
  size_t length;
} openreg_span;

/* Reads decimal digits at the start of `text` and returns how many there are. Returns 0 if there
 * are none or if the number overflows. */
size_t openreg_parse_digits(openreg_span text, uint64_t *number);

/* Parses a size such as 8G, 512M, 64KiB or 100. Returns false if it is malformed or exceeds
 * `limit`. */
bool openreg_parse_bytes(openreg_span text, uint64_t limit, uint64_t *bytes);

#pragma GCC visibility pop
#endif
