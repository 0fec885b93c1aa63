/* board.h: a page of memory that a director and its actors (actor.h) share, for handles and what is
 * to be compared. Cues and reports say when it may be read.
 */
#ifndef OPENREG_TEST_BOARD_H
#define OPENREG_TEST_BOARD_H

#include "actor.h"

enum { BOARD_HANDLES = 16, MIB = 1 << 20, PAGE = 4096 };

struct board {
  openreg_ipc_handle handles[BOARD_HANDLES];
  uint64_t numbers[BOARD_HANDLES];
  _Atomic uint32_t flag;
};

extern struct board *board;

/* Before the first actor is started. */
void board_make(void);

/* Makes the board and starts the first actor, which has reported when this returns. */
actor board_with(void (*body)(void));

/* The first address of a device's arena, and how long the arenas are. */
char *base_of(int device);
size_t arena_bytes(void);

/* Opens a handle on stream 0, which must succeed. */
char *open_memory(const openreg_ipc_handle *handle);

/* Exports memory on stream 0, which must succeed. */
void export_memory(void *address, size_t bytes, openreg_ipc_handle *handle);

/* Writes one byte of device memory, or reads it. */
void poke(char *address, char value);
char peek(const char *address);

/* How many mappings of memory files of devices this process has. */
int count_mappings(void);

#endif
