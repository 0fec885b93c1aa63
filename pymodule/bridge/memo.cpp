#include "memo.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace openreg {

namespace {

// Programs whose shapes never repeat would fill the memory with memos: then all are forgotten.
constexpr size_t kMostForecasts = 4096;

template <class T> void append(Memos::Key &key, const T &value) {
  static_assert(std::is_trivially_copyable_v<T>);
  key.append(reinterpret_cast<const char *>(&value), sizeof value);
}

void append_all(Memos::Key &key, c10::IntArrayRef values) {
  append(key, static_cast<uint32_t>(values.size()));
  key.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(int64_t));
}

using Tensors = c10::SmallVector<const c10::TensorImpl *, 8>;

// Which tensors share memory, and how far apart they begin in it, decides whether a kernel refuses
// to write to them.
void append_sharing(Memos::Key &key, const c10::TensorImpl &tensor, Tensors &before) {
  const auto *const found = std::ranges::find_if(before, [&](const auto *other) {
    return other->unsafe_storage().unsafeGetStorageImpl() ==
           tensor.unsafe_storage().unsafeGetStorageImpl();
  });
  append(key, found - before.begin());
  if (found != before.end()) {
    append(key, tensor.storage_offset() - (*found)->storage_offset());
  }
  before.push_back(&tensor);
}

bool append_tensor(Memos::Key &key, const at::Tensor &tensor, Tensors &before) {
  if (!tensor.defined()) {
    append(key, 'u');
    return true;
  }
  const auto *impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage() || impl->layout() != c10::kStrided) {
    return false;
  }
  append(key, impl->is_wrapped_number() ? 'w' : 't');
  append(key, tensor.scalar_type());
  append(key, impl->key_set().raw_repr()); // lazy marks, inference
  append_all(key, impl->sizes());
  append_all(key, impl->strides());
  append_sharing(key, *impl, before);
  return true;
}

bool append_value(Memos::Key &key, const c10::IValue &value, Tensors &before) {
  if (value.isTensor()) {
    return append_tensor(key, value.toTensor(), before);
  }
  if (value.isNone()) {
    append(key, 'n');
  } else if (value.isInt()) {
    append(key, 'i');
    append(key, value.toInt());
  } else if (value.isDouble()) {
    append(key, 'd');
    append(key, value.toDouble());
  } else if (value.isBool()) {
    append(key, value.toBool() ? 'y' : 'x');
  } else if (value.isComplexDouble()) {
    append(key, 'c');
    append(key, value.toComplexDouble());
  } else if (value.isString()) {
    append(key, 's');
    append(key, value.toStringRef().size());
    key.append(value.toStringRef());
  } else if (value.isDevice()) {
    append(key, 'v');
  } else if (value.isList()) {
    const auto list = value.toListRef();
    append(key, 'l');
    append(key, list.size());
    return std::ranges::all_of(list,
                               [&](const auto &each) { return append_value(key, each, before); });
  } else {
    return false;
  }
  return true;
}

// Where kernels draw lines between numbers that they take and numbers that they refuse, or compute
// with in another way.
char kind_of(double number) {
  if (std::isnan(number) || std::isinf(number)) {
    return std::isnan(number) ? 'N' : number > 0 ? 'I' : 'J';
  }
  if (number == 0 || number == 1 || number == 2) {
    return static_cast<char>('0' + static_cast<int>(number));
  }
  return number < 0 ? '-' : number < 1 ? '<' : '>';
}

bool append_number(Memos::Key &key, const c10::IValue &value, Tensors &before) {
  if (value.isDouble()) {
    append(key, 'D');
    append(key, kind_of(value.toDouble()));
  } else if (value.isInt()) {
    append(key, 'I');
    append(key, kind_of(static_cast<double>(value.toInt())));
  } else {
    return append_value(key, value, before);
  }
  return true;
}

} // namespace

bool Memos::matters_by_value(const c10::Argument &argument) {
  auto type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() != c10::TypeKind::NumberType && type->kind() != c10::TypeKind::FloatType;
}

bool Memos::make_key(const torch::jit::Stack &stack, const std::vector<bool> &by_value, Key &key) {
  key.reserve(64 * by_value.size());
  Tensors before;
  append(key, c10::get_default_dtype_as_scalartype());
  append(key, at::globalContext().deterministicAlgorithms());
  append(key, c10::GradMode::is_enabled()); // some kernels keep what a backward will need
  auto value = stack.end() - static_cast<std::ptrdiff_t>(by_value.size());
  return std::ranges::all_of(by_value, [&](bool whole) {
    const auto &each = *value++;
    return whole ? append_value(key, each, before) : append_number(key, each, before);
  });
}

std::shared_ptr<Forecast> Memos::find(const Key &key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = forecasts_.find(key);
  return found != forecasts_.end() ? found->second : nullptr;
}

void Memos::learn(Key key, std::shared_ptr<Forecast> forecast) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (forecasts_.size() >= kMostForecasts) {
    forecasts_.clear();
  }
  forecasts_.insert_or_assign(std::move(key), std::move(forecast));
}

} // namespace openreg
