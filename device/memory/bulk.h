/* bulk.h: copies and fills of large ranges. */
#ifndef OPENREG_DEVICE_MEMORY_BULK_H
#define OPENREG_DEVICE_MEMORY_BULK_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* From this size on openreg_copy and openreg_fill come here. Source: bulk.c. */
#define OPENREG_BULK_BYTES ((size_t)1 << 20)

/* memcpy and memset for large ranges. */
void openreg_bulk_copy(void *destination, const void *source, size_t bytes);
void openreg_bulk_fill(void *destination, int value, size_t bytes);

/* memcpy past the caches. Any size and alignment. */
void openreg_bulk_copy_streaming(void *destination, const void *source, size_t bytes);

#pragma GCC visibility pop
#endif
