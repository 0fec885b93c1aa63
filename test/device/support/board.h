/* board.h: a page of memory that a test process and its helpers (helper.h) share, for handles and
 * values to compare. Cues and reports tell when it may be read.
 */
#ifndef OPENREG_TEST_BOARD_H
#define OPENREG_TEST_BOARD_H

#include "devices.h"
#include "helper.h"

enum { BOARD_HANDLES = 16 };

struct board {
  openreg_ipc_handle handles[BOARD_HANDLES];
  uint64_t numbers[BOARD_HANDLES];
  _Atomic uint32_t flag;
};

extern struct board *board;

/* Call it before starting the first helper. */
void board_make(void);

/* Makes the board and starts the first helper; returns after its first report. */
helper board_with(void (*body)(void));

/* Opens a handle on stream 0; must succeed. */
char *open_memory(const openreg_ipc_handle *handle);

/* Exports memory on stream 0; must succeed. */
void export_memory(void *address, size_t bytes, openreg_ipc_handle *handle);

/* Writes or reads one byte of device memory. */
void poke(char *address, char value);
char peek(const char *address);

/* Number of mappings of device memory files in this process. */
int count_mappings(void);

#endif
