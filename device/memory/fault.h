/* fault.h: messages for faults in device memory, and in a truncated shared file. */
#ifndef OPENREG_DEVICE_MEMORY_FAULT_H
#define OPENREG_DEVICE_MEMORY_FAULT_H

#include "device/device.h"
#include "device/faults.h"

#pragma GCC visibility push(hidden)

/* Registers a mapped file that other programs can truncate; a fault there names the file. Supports
 * one file; call this before installing the handler. `path` stays owned by the caller and must
 * remain valid. */
void openreg_fault_watch_file(const void *address, size_t bytes, const char *path);

/* Installs the handler in front of the existing handlers of SIGSEGV and SIGBUS. Call it once. */
void openreg_fault_install(void);

/* What the access did that caused a SIGSEGV, from the handler's third argument. */
openreg_fault_access openreg_fault_access_of(const void *context);

#pragma GCC visibility pop
#endif
