/* devices.h: the memory of the devices of a test process. */
#ifndef OPENREG_TEST_DEVICES_H
#define OPENREG_TEST_DEVICES_H

#include "child.h"
#include "device/device.h"

/* PAGE is the smallest page of any machine, and a size for memory that need not be a page. */
enum { MIB = 1 << 20, PAGE = 4096 };

/* The page size of this machine. */
size_t page_bytes(void);

/* The first address of a device's arena, and the size of the arenas. */
char *base_of(int device);
size_t arena_bytes(void);

/* Free bytes of a device, from the ledger. Requires a device of 64 MiB. */
uint64_t free_on(int device);

#endif
