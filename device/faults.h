/* faults.h: page faults in host memory, and device memory in which the host has none. Public, in
 * addition to device.h.
 *
 * Normally a fault in device memory ends the process with a message. A layer that protects pages of
 * host memory, to see who accesses them, installs a resolver. The resolver can unprotect the page
 * and let the program continue.
 */
#ifndef OPENREG_DEVICE_FAULTS_H
#define OPENREG_DEVICE_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum openreg_fault_access {
  OPENREG_FAULT_READ,
  OPENREG_FAULT_WRITE,
  OPENREG_FAULT_UNKNOWN, /* this processor does not report it */
} openreg_fault_access;

/* Called by the thread that accessed `address`, inside the SIGSEGV handler, possibly on a small
 * stack. Returns true if the access may be retried. */
typedef bool (*openreg_fault_resolver)(void *address, openreg_fault_access access);

/* Installs a resolver; NULL removes it. Devices must have been initialized. Any thread. */
void openreg_fault_set_resolver(openreg_fault_resolver resolver);

/* Lets the host access whole pages of this process's device memory by their device addresses, or
 * forbids it again. With OPENREG_HOST_ACCESS=1 it always can. Memory must be forbidden again before
 * it is returned. Errors: INVALID_ADDRESS (not in an arena of this process), SYSTEM. */
openreg_status openreg_arena_set_host_access(void *device_address, size_t bytes, bool is_allowed);

#ifdef __cplusplus
}
#endif
#endif
