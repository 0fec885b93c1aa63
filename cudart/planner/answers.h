/* answers.h: functions of NVIDIA's libraries that store a number in one of their arguments, and the
 * sizes of workspaces.
 *
 * Only the argument's position matters. All arguments of these functions are integers and pointers,
 * and on the processors that openreg supports they are passed to a variadic function as to any
 * other.
 */
#ifndef OPENREG_CUDART_PLANNER_ANSWERS_H
#define OPENREG_CUDART_PLANNER_ANSWERS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of workspace of each call of a library: 0, or what OPENREG_LIBRARY_WORKSPACES says. The
 * planner has that variable in bytes, such as "cudnn:67108864,cufft:0" (plans/libraries.py). */
static inline size_t workspace_bytes(const char *library) {
  const char *setting = getenv("OPENREG_LIBRARY_WORKSPACES");
  size_t length = strlen(library);
  while (setting != NULL && *setting != '\0') {
    if (strncmp(setting, library, length) == 0 && setting[length] == ':')
      return (size_t)strtoull(setting + length + 1, NULL, 10);
    setting = strchr(setting, ',');
    setting = setting == NULL ? NULL : setting + 1;
  }
  return 0;
}

/* Defines a function that stores `value` of `type` in the argument `index` (1: the second). */
#define ANSWER(name, index, type, value)                                                           \
  int name(void *first, ...);                                                                      \
  int name(void *first, ...) {                                                                     \
    (void)first;                                                                                   \
    va_list arguments;                                                                             \
    va_start(arguments, first);                                                                    \
    type *answer = NULL;                                                                           \
    for (int i = 0; i < (index); i++)                                                              \
      answer = va_arg(arguments, type *);                                                          \
    va_end(arguments);                                                                             \
    *answer = (value);                                                                             \
    return 0;                                                                                      \
  }

/* Defines a function that returns a value. */
#define RETURN(name, type, value)                                                                  \
  type name(void);                                                                                 \
  type name(void) {                                                                                \
    return value;                                                                                  \
  }

#endif
