#include "stub.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

namespace openreg {

void refuse(const char *symbol) {
  TORCH_CHECK(false, "openreg: ", c10::demangle(symbol),
              " is a part of PyTorch's CUDA build that openreg does not simulate");
  __builtin_unreachable();
}

} // namespace openreg
