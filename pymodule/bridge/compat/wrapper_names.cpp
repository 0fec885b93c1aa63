#include "compat/wrapper_names.h"

#include <algorithm>
#include <array>

namespace openreg {

namespace {

// Composites on CUDA. The operator that they call makes the check, under its own name.
struct WrapperRow {
  std::string_view name, argument, method, quoted_argument;
};
constexpr std::array<WrapperRow, 5> kComposites = {{
    {"aten::embedding", "indices", "_index_select", "index"},
    {"aten::embedding", "weight", "_index_select", "self"},
    {"aten::convolution", "input", "__slow_conv2d_forward", "self"},
    {"aten::convolution", "weight", "__slow_conv2d_forward", "weight"},
    {"aten::stack", "tensors", "cat", "tensors"},
}};

// PyTorch generates a Meta kernel with each structured kernel.
bool is_structured(const c10::OperatorHandle &op) {
  auto name = op.schema().name();
  if (name.back() == '_' && name.substr(0, name.size() - 1).back() != '_') {
    name.pop_back(); // other operators may have a Meta kernel for the in-place form only
  }
  const auto overload = op.schema().overload_name();
  const auto form = c10::Dispatcher::singleton().findOp({name, overload});
  return form.has_value() && form->dumpState().find("RegisterMeta") != std::string::npos;
}

} // namespace

Quoted quoted_by_cuda(const c10::OperatorHandle &op, std::string_view argument) {
  const auto &schema = op.schema();
  const auto row = std::ranges::find_if(kComposites, [&](const WrapperRow &composite) {
    return composite.name == schema.name() && composite.argument == argument;
  });
  if (row != kComposites.end()) {
    return {std::string(row->method), std::string(row->quoted_argument)};
  }
  auto name = schema.name().substr(schema.name().find("::") + 2);
  const auto &overload = schema.overload_name();
  const auto writes_to_out = [](const c10::Argument &each) { return each.is_out(); };
  if (std::ranges::any_of(schema.arguments(), writes_to_out)) {
    name += "_out";
  }
  if (!is_structured(op)) {
    return {overload + "_" + name, std::string(argument)};
  }
  return {overload.empty() ? name : name + "_" + overload, std::string(argument)};
}

void append_operators_with_other_wrappers(std::vector<std::string_view> &names) {
  for (const auto &row : kComposites) {
    names.push_back(row.name);
  }
}

} // namespace openreg
