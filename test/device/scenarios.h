/* scenarios.h: the device layer's whole life, in steps of which each may fail and be taken again.
 */
#ifndef OPENREG_TEST_SCENARIOS_H
#define OPENREG_TEST_SCENARIOS_H

#include "child.h"

typedef struct scenario_step {
  const char *name; /* NULL: the end */
  openreg_status (*take)(void);
} scenario_step;

/* One process, with everything that it does by itself; and two, of which one exports memory and an
 * event and the other imports them. */
extern const scenario_step scenario_alone[], scenario_exporter[], scenario_importer[];

extern int scenario_channel; /* a socket, to the other of two */

#endif
