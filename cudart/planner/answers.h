/* answers.h: functions of NVIDIA's libraries that store a number in one of their arguments.
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
