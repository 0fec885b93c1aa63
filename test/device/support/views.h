/* views.h: tests of processes that see different devices of a group of three. The including file
 * defines THREE_DEVICES, the ENVIRONMENT of the group.
 */
#ifndef OPENREG_TEST_VIEWS_H
#define OPENREG_TEST_VIEWS_H

#include "peers.h"

#include <stdlib.h>

#define VIEWS_TEST(name) CHILD_TEST_IN(name, THREE_DEVICES)

/* Sets which devices this process sees. Call it before initialization. */
static inline void see(const char *list) {
  setenv("OPENREG_VISIBLE_DEVICES", list, 1);
}

#endif
