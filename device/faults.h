/* faults.h: lets another layer handle page faults in host memory. Public, in addition to device.h.
 *
 * Normally a fault in device memory ends the process with a message. A layer that protects pages of
 * host memory, to see who accesses them, installs a resolver. The resolver can unprotect the page
 * and let the program continue.
 */
#ifndef OPENREG_DEVICE_FAULTS_H
#define OPENREG_DEVICE_FAULTS_H

#include <stdbool.h>

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

#ifdef __cplusplus
}
#endif
#endif
