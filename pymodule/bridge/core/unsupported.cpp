#include "core/unsupported.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/no_warnings.h"
#include "core/status.h"

namespace openreg {

static_assert(static_cast<int>(c10::ScalarType::NumOptions) <= 64, "one bit for each");

uint64_t unsupported_dtypes = 0;

namespace {

// As the user wrote them: "aten::svd" blocks every overload, "aten::add.Tensor" one.
std::set<std::string> &blocked_operators() {
  static auto *names = new std::set<std::string>();
  return *names;
}

std::set<std::string> split(const std::string &list) {
  std::set<std::string> items;
  for (size_t start = 0; start < list.size();) {
    const auto end = std::min(list.find(',', start), list.size());
    items.insert(list.substr(start, end - start));
    start = end + 1;
  }
  return items;
}

std::string whole_name(const c10::OperatorName &name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

class RefusingKernel final : public c10::OperatorKernel {
public:
  void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *) {
    refuse_operator(op.operator_name());
  }
};

void block(const c10::OperatorName &name) {
  // Never freed: registrations last as long as the process.
  static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
  for (const auto key : {kDeviceKeys.dense, kDeviceKeys.sparse, kDeviceKeys.sparse_csr}) {
    registrations->push_back(c10::Dispatcher::singleton().registerImpl(
        name, key, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<RefusingKernel>()),
        std::nullopt, nullptr, "openreg: refused"));
  }
}

void block_operators() {
  auto missing = blocked_operators();
  {
    const NoWarnings silent;
    for (const auto &name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (is_blocked(name)) {
        block(name);
        missing.erase(name.name);
        missing.erase(whole_name(name));
      }
    }
  }
  for (const auto &name : missing) {
    if (name.rfind("aten::", 0) == 0) {
      TORCH_WARN("OPENREG_BLOCK_OPERATORS: PyTorch has no operator '", name,
                 "'; the entry has no effect");
    } else {
      block(torch::jit::parseName(name)); // a library may register it later
    }
  }
}

void forbid_dtypes(const std::string &list) {
  const auto names = split(list);
  for (int type = 0; type < static_cast<int>(c10::ScalarType::NumOptions); ++type) {
    const auto scalar_type = static_cast<c10::ScalarType>(type);
    if (scalar_type != c10::ScalarType::Undefined &&
        names.contains(std::string(c10::getDtypeNames(scalar_type).first))) {
      unsupported_dtypes |= uint64_t{1} << type;
    }
  }
}

} // namespace

bool is_blocked(const c10::OperatorName &name) {
  const auto &blocked = blocked_operators();
  return !blocked.empty() && (blocked.contains(name.name) || blocked.contains(whole_name(name)));
}

void refuse_operator(const c10::OperatorName &name) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "openreg: '", whole_name(name),
      "' is not implemented on this device: OPENREG_BLOCK_OPERATORS lists it");
}

void refuse_dtype(c10::ScalarType dtype, const char *who) {
  TORCH_CHECK_TYPE(false, "openreg: '", who, "' needs a tensor of dtype ",
                   c10::getDtypeNames(dtype).first,
                   ", which this device does not support: OPENREG_UNSUPPORTED_DTYPES lists it");
}

void register_unsupported() {
  // Reading the configuration fixes it, which should happen at the first use of a device.
  if (std::getenv("OPENREG_BLOCK_OPERATORS") == nullptr &&
      std::getenv("OPENREG_UNSUPPORTED_DTYPES") == nullptr) {
    return;
  }
  const openreg_config *config = nullptr;
  if (openreg_config_get(&config) != OPENREG_OK) {
    return; // the first use of a device reports the error
  }
  blocked_operators() = split(config->block_operators);
  forbid_dtypes(config->unsupported_dtypes);
  if (!blocked_operators().empty()) {
    block_operators();
  }
}

} // namespace openreg
