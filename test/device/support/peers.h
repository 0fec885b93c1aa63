/* peers.h: actors (actor.h) that export memory of device 1, or import it, as several tests have
 * them.
 */
#ifndef OPENREG_TEST_PEERS_H
#define OPENREG_TEST_PEERS_H

#include "board.h"

enum { GRANULE = 2 * MIB, PATTERN = 0x5A };

struct range {
  size_t offset, bytes; /* from the first byte of the device on */
};

/* Takes the first `bytes` of device 1 and fills them, exports ranges as the first handles of the
 * board, reports, and stays until it is cued. */
void fill_and_export(size_t bytes, int count, const struct range ranges[]);

/* Exports three ranges so: two of one granule, and one that covers a whole granule and parts of its
 * neighbours. */
void export_three(void);

/* When cued, imports by the board's second handle, reports, and stays until it is cued again. */
void import_second_and_stay(void);

/* Bytes of a device that processes have, as the ledger says. */
uint64_t used_on(int device);

/* Importers give back in their own time: a test that fails waits for ever, and is ended. */
void await_used_on(int device, uint64_t bytes);

#endif
