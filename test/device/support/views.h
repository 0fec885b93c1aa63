/* views.h: tests of processes that see different devices of one group of three. Who includes it
 * defines THREE_DEVICES, the ENVIRONMENT of the group.
 */
#ifndef OPENREG_TEST_VIEWS_H
#define OPENREG_TEST_VIEWS_H

#include "peers.h"

#include <stdlib.h>

#define VIEWS_TEST(name)                                                                           \
  static void name##_body(void);                                                                   \
  static void name(void **state) {                                                                 \
    (void)state;                                                                                   \
    child_expect_pass(name##_body, THREE_DEVICES);                                                 \
  }                                                                                                \
  static void name##_body(void)

/* Before this process initializes: which devices it sees. */
static inline void see(const char *list) {
  setenv("OPENREG_VISIBLE_DEVICES", list, 1);
}

#endif
