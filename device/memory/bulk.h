/* bulk.h: large copies and fills. */
#ifndef OPENREG_DEVICE_MEMORY_BULK_H
#define OPENREG_DEVICE_MEMORY_BULK_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* Minimum size for which openreg_copy and openreg_fill use these functions. Measured: bulk.c. */
#define OPENREG_BULK_BYTES ((size_t)1 << 20)

/* Equivalent to memcpy and memset, for large ranges. */
void openreg_bulk_copy(void *destination, const void *source, size_t bytes);
void openreg_bulk_fill(void *destination, int value, size_t bytes);

/* memcpy that bypasses the caches. Any size and alignment. */
void openreg_bulk_copy_streaming(void *destination, const void *source, size_t bytes);

#pragma GCC visibility pop
#endif
