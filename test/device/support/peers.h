/* peers.h: helpers (helper.h) that export or import memory of device 1.
 */
#ifndef OPENREG_TEST_PEERS_H
#define OPENREG_TEST_PEERS_H

#include "board.h"

enum { GRANULE = 2 * MIB, PATTERN = 0x5A };

struct range {
  size_t offset, bytes; /* offset from the first byte of the device */
};

/* Reserves the first `bytes` of device 1, fills them, exports the ranges as the first handles of
 * the board, reports, and waits for a cue. */
void fill_and_export(size_t bytes, int count, const struct range ranges[]);

/* Exports three ranges: two within one granule, and one that covers a whole granule and parts of
 * its neighbors. */
void export_three(void);

/* When cued, imports the board's second handle, reports, and waits for another cue. */
void import_second_and_stay(void);

/* Bytes of a device that processes use, from the ledger. */
uint64_t used_on(int device);

/* Importers release memory asynchronously. A test that fails waits forever and times out. */
void await_used_on(int device, uint64_t bytes);

#endif
