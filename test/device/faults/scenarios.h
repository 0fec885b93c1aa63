/* scenarios.h: the device layer's life in steps, of which each may fail and be taken again. */
#ifndef OPENREG_TEST_SCENARIOS_H
#define OPENREG_TEST_SCENARIOS_H

#include "child.h"

typedef struct scenario_step {
  const char *name; /* NULL: the end */
  openreg_status (*take)(void);
} scenario_step;

/* One process, with everything that it does by itself. */
extern const scenario_step scenario_alone[];

/* Two, of which one exports memory and an event and the other imports them. */
extern const scenario_step scenario_exporter[], scenario_importer[];

/* The same, of which the exporter, a child of the importer, ends first. */
extern const scenario_step scenario_exporter_that_ends[], scenario_importer_that_stays[];

extern int scenario_channel; /* a socket, to the other of two */

#endif
