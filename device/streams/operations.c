/* operations.c: the observer of operations. See device/operations.h. */
#include "device/operations.h"

#include <stdatomic.h>

static _Atomic(openreg_operation_observer) installed;

void openreg_operation_set_observer(openreg_operation_observer observer) {
  atomic_store_explicit(&installed, observer, memory_order_release);
}

void openreg_operation_report(const openreg_operation *operation) {
  openreg_operation_observer observer = atomic_load_explicit(&installed, memory_order_acquire);
  if (__builtin_expect(observer != NULL, 0))
    observer(operation);
}
