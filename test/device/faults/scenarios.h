/* scenarios.h: uses of the device layer in steps. Each step may fail and can be repeated. */
#ifndef OPENREG_TEST_SCENARIOS_H
#define OPENREG_TEST_SCENARIOS_H

#include "child.h"

typedef struct scenario_step {
  const char *name; /* NULL: end of the list */
  openreg_status (*take)(void);
} scenario_step;

/* One process, with everything it does alone. */
extern const scenario_step scenario_alone[];

/* Two processes: one exports memory and an event, the other imports them. */
extern const scenario_step scenario_exporter[], scenario_importer[];

/* The same, but the exporter is a child of the importer and ends first. */
extern const scenario_step scenario_exporter_that_ends[], scenario_importer_that_stays[];

extern int scenario_channel; /* socket to the other process */

#endif
