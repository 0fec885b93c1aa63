/* environment.c: see environment.h. */
#include "base/environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"

/* Longest part of a value that messages quote. */
#define SHOWN_VALUE "%.100s"

const char *openreg_environment_value(openreg_getenv lookup, const char *name) {
  const char *value = lookup != NULL ? lookup(name) : getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

openreg_status openreg_environment_reject(const char *name, const char *value, const char *allowed,
                                          ...) {
  char expected[OPENREG_MESSAGE_BYTES / 2];
  va_list arguments;
  va_start(arguments, allowed);
  vsnprintf(expected, sizeof expected, allowed, arguments);
  va_end(arguments);
  return openreg_fail(OPENREG_INVALID_CONFIGURATION, "openreg: %s=" SHOWN_VALUE ": expected %s",
                      name, value, expected);
}

openreg_status openreg_environment_switch(openreg_getenv lookup, const char *name, bool *on) {
  const char *value = openreg_environment_value(lookup, name);
  if (value == NULL)
    return OPENREG_OK;
  if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
    return openreg_environment_reject(name, value, "0 or 1");
  *on = value[0] == '1';
  return OPENREG_OK;
}

size_t openreg_parse_digits(openreg_span text, uint64_t *number) {
  uint64_t result = 0;
  size_t count = 0;
  for (; count < text.length && text.text[count] >= '0' && text.text[count] <= '9'; count++) {
    if (__builtin_mul_overflow(result, (uint64_t)10, &result) ||
        __builtin_add_overflow(result, (uint64_t)(text.text[count] - '0'), &result))
      return 0;
  }
  *number = result;
  return count;
}

/* Number of bits that the unit of a size shifts by. Units: "", "B", "K", "KB", "KiB", "M", ... -1:
 * not a unit. */
static int parse_unit(openreg_span text) {
  static const char units[] = "KMGT";
  int shift = 0;
  if (text.length > 0) {
    for (int i = 0; units[i] != '\0'; i++) {
      if ((text.text[0] & ~0x20) == units[i])
        shift = 10 * (i + 1);
    }
  }
  openreg_span rest = text;
  if (shift > 0)
    rest = (openreg_span){text.text + 1, text.length - 1};
  bool bare = rest.length == 0;
  bool bytes = rest.length == 1 && strncasecmp(rest.text, "B", 1) == 0;
  bool binary_bytes = shift > 0 && rest.length == 2 && strncasecmp(rest.text, "iB", 2) == 0;
  return bare || bytes || binary_bytes ? shift : -1;
}

bool openreg_parse_bytes(openreg_span text, uint64_t limit, uint64_t *bytes) {
  uint64_t number;
  size_t digits = openreg_parse_digits(text, &number);
  int shift = parse_unit((openreg_span){text.text + digits, text.length - digits});
  if (digits == 0 || shift < 0 || number > limit >> shift)
    return false;
  *bytes = number << shift;
  return true;
}
