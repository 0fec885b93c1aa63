/* fault.h: a sentence for faults in device memory, and in a file that was made shorter. */
#ifndef OPENREG_DEVICE_MEMORY_FAULT_H
#define OPENREG_DEVICE_MEMORY_FAULT_H

#include "device/device.h"

#pragma GCC visibility push(hidden)

/* A mapping of a file that other programs can make shorter: a fault there names the file. One file;
 * before the handler is installed. `path` stays the caller's, and stays. */
void openreg_fault_watch_file(const void *address, size_t bytes, const char *path);

/* Puts the handler before those that are installed for SIGSEGV and SIGBUS. To be called once. */
void openreg_fault_install(void);

#pragma GCC visibility pop
#endif
