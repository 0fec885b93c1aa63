#include "launch/hidden_operators.h"

#include <ATen/record_function.h>

namespace openreg {

namespace {

thread_local int hidden_count = 0; // the objects that exist

} // namespace

// Switching observers off and on takes longer than a short launch, so this asks first whether there
// are any. It asks for those of the next operator: at::hasCallbacks() locks a mutex. Observers that
// sample (a feature of C++ only) therefore see fewer operators.
void HiddenOperators::begin() {
  if (hidden_count++ == 0 &&
      at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value()) {
    at::enableRecordFunction(false);
    is_observed_ = true;
  }
}

void HiddenOperators::end() {
  --hidden_count;
  if (is_observed_) {
    at::enableRecordFunction(true);
  }
}

bool HiddenOperators::exist() {
  return hidden_count > 0;
}

} // namespace openreg
