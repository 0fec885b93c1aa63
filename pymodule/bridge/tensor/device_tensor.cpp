#include "tensor/device_tensor.h"

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstring>
#include <mutex>

#include "compat/tensor_shape.h"
#include "core/unsupported.h"
#include "memory/allocation/lazy_clone.h"
#include "streams/current.h"
#include "streams/inline_guard.h"
#include "streams/observer.h"
#include "tensor/known_values.h"

namespace openreg {

namespace {

const c10::DispatchKeySet kKeys(kDeviceKeys.dense);
constexpr c10::DispatchKeySet kHostKeys(c10::DispatchKey::CPU);

// Lazy bits that a kernel must see: they belong to a tensor's value, not to its device.
constexpr auto kLazyBits = c10::DispatchKeySet(
    {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});

// Twins are refreshed rarely, after a tensor's metadata changed, so one lock for all is enough.
std::mutex refresh_mutex;

// A non-owning CPU pointer to the kernel view of a device address.
c10::DataPtr kernel_pointer(const void *device_address) {
  return {kernel_address(device_address), c10::Device(c10::DeviceType::CPU)};
}

c10::intrusive_ptr<c10::StorageImpl> make_twin_storage(const c10::StorageImpl &storage) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               storage.nbytes(), kernel_pointer(storage.data()),
                                               resize_allocator(), storage.resizable());
}

// The context of a DataPtr to memory that is not a block: the original DataPtr, which frees the
// memory, and the twin storage.
struct Adopted {
  c10::DataPtr memory;
  c10::intrusive_ptr<c10::StorageImpl> twin_storage;
};

void free_adopted(void *context) {
  delete static_cast<Adopted *>(context);
}

bool is_adopted(const c10::DataPtr &pointer) {
  return pointer.get_deleter() == &free_adopted;
}

c10::StorageImpl *adopted_twin_storage(const c10::DataPtr &pointer) {
  return static_cast<Adopted *>(pointer.get_context())->twin_storage.get();
}

std::mutex adoption_mutex;

// Adopts a storage once. A thread that reads the DataPtr meanwhile sees the same address and either
// deleter; the original one leads it here, to the lock.
c10::StorageImpl *adopt(const c10::StorageImpl &storage) {
  std::lock_guard<std::mutex> lock(adoption_mutex);
  const auto &pointer = storage.data_ptr();
  if (!is_adopted(pointer)) {
    TORCH_CHECK(storage.device_type() == kDeviceType &&
                    (pointer.get() == nullptr || openreg_arena_device_of(pointer.get()) >= 0),
                "openreg: the tensor's data pointer ", pointer.get(),
                " is not in the memory of any device");
    auto twin_storage = make_twin_storage(storage);
    auto &target = const_cast<c10::StorageImpl &>(storage)._mutable_data_ptr_no_checks();
    auto *address = target.mutable_get();
    auto *context = new Adopted{std::move(target), std::move(twin_storage)};
    target = {address, context, &free_adopted, context->memory.device()};
  }
  return adopted_twin_storage(pointer);
}

// The twin storage of all lazy clones of 0 bytes.
c10::StorageImpl *twin_storage_of_nothing() {
  static auto *const storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                            c10::DataPtr(nullptr, c10::DeviceType::CPU),
                                            resize_allocator(), /*resizable=*/false)
          .release(); // never freed
  return storage;
}

// Returns null if the twin storage does not exist yet.
const void *existing_twin_storage(const c10::DataPtr &pointer) {
  if (const auto *block = find_block(pointer); block != nullptr) [[likely]] {
    return block->user;
  }
  return is_adopted(pointer)      ? adopted_twin_storage(pointer)
         : is_lazy_clone(pointer) ? twin_storage_of_nothing()
                                  : nullptr;
}

c10::intrusive_ptr<c10::StorageImpl> share(c10::StorageImpl *storage) {
  c10::raw::intrusive_ptr::incref(storage);
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage);
}

class DeviceStorage final : public c10::StorageImpl, public Recycled<DeviceStorage> {
public:
  using c10::StorageImpl::StorageImpl;
};

// A CPU tensor over `storage` with the metadata of `like`.
class HostTensor final : public c10::TensorImpl {
public:
  HostTensor(c10::Storage &&storage, const c10::TensorImpl &like)
      : TensorImpl(std::move(storage), kHostKeys, like.dtype()) {
    copy_generic_tensor_metadata(&like, this);
    extra_meta_.reset(); // attachments of a backend or frontend stay with the device tensor
    device_opt_ = c10::Device(c10::DeviceType::CPU);
    key_set_ = key_set_ | (like.key_set() & kLazyBits);
  }
};

at::Tensor make_twin(const c10::TensorImpl &tensor) {
  auto *twin_storage = twin_storage_of(*tensor.storage().unsafeGetStorageImpl());
  return at::detail::make_tensor<HostTensor>(c10::Storage(share(twin_storage)), tensor);
}

bool same_shape(const c10::TensorImpl &left, const c10::TensorImpl &right) {
  const auto &a = TensorShape::of(left), &b = TensorShape::of(right);
  if (a.size() != b.size() || TensorShape::offset_of(left) != TensorShape::offset_of(right)) {
    return false;
  }
  const auto *sizes = a.sizes_data(), *strides = a.strides_data();
  const auto *other_sizes = b.sizes_data(), *other_strides = b.strides_data();
  for (size_t i = 0; i < a.size(); ++i) {
    if (sizes[i] != other_sizes[i] || strides[i] != other_strides[i]) {
      return false;
    }
  }
  return true;
}

bool lazy_bits_differ(const c10::TensorImpl &left, const c10::TensorImpl &right) {
  return !((left.key_set() ^ right.key_set()) & kLazyBits).empty();
}

// Raises RuntimeError for a tensor whose memory is gone, such as the result of a graph that was
// replayed again.
bool is_valid_twin(const c10::TensorImpl &twin, const c10::TensorImpl &tensor) {
  const auto &storage = tensor.unsafe_storage() ? tensor.unsafe_storage() : tensor.storage();
  const auto &pointer = storage.unsafeGetStorageImpl()->data_ptr();
  return existing_twin_storage(pointer) == twin.unsafe_storage().unsafeGetStorageImpl() &&
         twin.dtype() == tensor.dtype() && same_shape(twin, tensor) &&
         !lazy_bits_differ(twin, tensor);
}

// TensorImpl's slot for a backend's data holds this: the metadata that the program attached, and
// the twin of a plain TensorImpl.
struct DeviceMeta final : c10::BackendMeta {
  DeviceMeta(Metadata metadata, at::Tensor twin)
      : metadata(std::move(metadata)), twin(std::move(twin)) {}

  // A shallow copy of the tensor has the same metadata and makes its own twin.
  c10::intrusive_ptr<c10::BackendMeta>
  clone(const c10::intrusive_ptr<c10::BackendMeta> &) const override {
    return metadata.empty() ? nullptr : c10::make_intrusive<DeviceMeta>(metadata, at::Tensor());
  }

  const Metadata metadata;
  const at::Tensor twin;
};

const DeviceMeta *device_meta(c10::TensorImpl &tensor) {
  const auto *meta = tensor.get_backend_meta();
  return meta != nullptr && typeid(*meta) == typeid(DeviceMeta)
             ? static_cast<const DeviceMeta *>(meta)
             : nullptr;
}

const DeviceMeta *valid_twin_meta(c10::TensorImpl &tensor) {
  const auto *meta = device_meta(tensor);
  return meta != nullptr && meta->twin.defined() &&
                 is_valid_twin(*meta->twin.unsafeGetTensorImpl(), tensor)
             ? meta
             : nullptr;
}

// Takes the block out of a CPU storage that a kernel allocated. The storage becomes the twin
// storage of the block.
openreg_block *take_block(c10::StorageImpl *host) {
  auto &pointer = host->_mutable_data_ptr_no_checks();
  auto *block = block_at(pointer.release_context());
  pointer = kernel_pointer(block->address);
  c10::raw::intrusive_ptr::incref(host);
  block->user = host;
  return block;
}

// The same for any CPU storage. Host memory is copied to a new block and freed.
openreg_block *take_memory(c10::StorageImpl *host, c10::DeviceIndex device) {
  if (is_from_override(host->data_ptr())) {
    return take_block(host);
  }
  auto *block = PreparedBlocks::take(device, host->nbytes());
  auto pointer = kernel_pointer(block->address);
  if (host->nbytes() > 0) {
    std::memcpy(pointer.get(), host->data(), host->nbytes());
  }
  host->_mutable_data_ptr_no_checks() = std::move(pointer);
  c10::raw::intrusive_ptr::incref(host);
  block->user = host;
  return block;
}

} // namespace

DeviceTensor::DeviceTensor(c10::Storage &&storage, caffe2::TypeMeta dtype)
    : TensorImpl(std::move(storage), kKeys, dtype) {}

DeviceTensor::DeviceTensor(c10::Storage &&storage, const c10::TensorImpl &like)
    : TensorImpl(std::move(storage), kKeys, like.dtype()) {
  copy_generic_tensor_metadata(&like, this);
  device_opt_ = storage_.device();
  key_set_ = key_set_ | (like.key_set() & kLazyBits);
}

DeviceTensor::DeviceTensor(c10::Storage &&storage, at::Tensor &&twin)
    : DeviceTensor(std::move(storage), *twin.unsafeGetTensorImpl()) {
  twin_ = std::move(twin);
  has_twin_.store(true, std::memory_order_release);
}

DeviceTensor::DeviceTensor(const c10::TensorImpl &base, at::Tensor &&twin)
    : TensorImpl(ImplType::VIEW, c10::Storage(base.unsafe_storage()),
                 (base.key_set() - kLazyBits) | (twin.key_set() & kLazyBits), twin.dtype()) {
  copy_generic_tensor_metadata(twin.unsafeGetTensorImpl(), this);
  device_opt_ = base.device();
  twin_ = std::move(twin);
  has_twin_.store(true, std::memory_order_release);
}

bool DeviceTensor::has_valid_twin() const {
  return has_twin_.load(std::memory_order_acquire) &&
         is_valid_twin(*twin_.unsafeGetTensorImpl(), *this);
}

void DeviceTensor::refresh_twin() const {
  std::lock_guard<std::mutex> lock(refresh_mutex);
  if (!has_valid_twin()) { // else another thread has refreshed it
    twin_ = make_twin(*this);
    has_twin_.store(true, std::memory_order_release);
  }
}

c10::intrusive_ptr<c10::TensorImpl>
DeviceTensor::shallow_copy_and_detach(const c10::VariableVersion &version_counter,
                                      bool allow_metadata_change) const {
  return shallow_copy_and_detach(c10::VariableVersion(version_counter), allow_metadata_change);
}

c10::intrusive_ptr<c10::TensorImpl>
DeviceTensor::shallow_copy_and_detach(c10::VariableVersion &&version_counter,
                                      bool allow_metadata_change) const {
  // A Python dispatch mode or subclass, and tracing, must see a detach.
  if (key_set_.has(c10::DispatchKey::Python) || c10::impl::TorchDispatchModeTLS::stack_len() > 0) {
    return TensorImpl::shallow_copy_and_detach(std::move(version_counter), allow_metadata_change);
  }
  auto copy = c10::make_intrusive<DeviceTensor>(c10::Storage(storage_), data_type_);
  copy_tensor_metadata(this, copy.get(), std::move(version_counter), allow_metadata_change);
  return copy;
}

void DeviceTensor::release_resources() {
  TensorImpl::release_resources();
  has_twin_.store(false, std::memory_order_relaxed);
  twin_ = at::Tensor();
}

const at::Tensor &twin_of_plain(const at::Tensor &tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided,
                              "openreg: expected a strided tensor, got layout ", tensor.layout());
  auto &impl = *tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(impl.has_storage(),
                              "openreg: cannot run a kernel on a tensor without storage");
  // This read races with a thread that makes the first twin of the same tensor. It is benign: the
  // pointer is null or complete, and null leads to the lock.
  if (const auto *meta = valid_twin_meta(impl)) [[likely]] {
    return meta->twin;
  }
  std::lock_guard<std::mutex> lock(refresh_mutex);
  if (const auto *meta = valid_twin_meta(impl)) {
    return meta->twin;
  }
  auto meta = c10::make_intrusive<DeviceMeta>(get_metadata(tensor), make_twin(impl));
  const auto &twin = meta->twin;
  impl.set_backend_meta(std::move(meta));
  return twin;
}

const Metadata &get_metadata(const at::Tensor &tensor) {
  static const Metadata empty;
  const auto *meta = device_meta(*tensor.unsafeGetTensorImpl());
  return meta == nullptr ? empty : meta->metadata;
}

void set_metadata(const at::Tensor &tensor, Metadata metadata) {
  auto &impl = *tensor.unsafeGetTensorImpl();
  const auto *meta = device_meta(impl);
  if (meta == nullptr && metadata.empty()) {
    return;
  }
  impl.set_backend_meta(c10::make_intrusive<DeviceMeta>(
      std::move(metadata), meta == nullptr ? at::Tensor() : meta->twin));
}

c10::StorageImpl *twin_storage_of(const c10::StorageImpl &storage) {
  const auto &pointer = storage.data_ptr();
  auto *const block = find_block(pointer);
  if (block == nullptr) [[unlikely]] {
    return is_adopted(pointer)      ? adopted_twin_storage(pointer)
           : is_lazy_clone(pointer) ? twin_storage_of_nothing()
                                    : adopt(storage);
  }
  // If two threads make the first twin storage at once, the first to publish it wins.
  auto *slot = reinterpret_cast<std::atomic<void *> *>(&block->user);
  void *current = slot->load(std::memory_order_acquire);
  if (current == nullptr) {
    auto made = make_twin_storage(storage);
    if (slot->compare_exchange_strong(current, made.get(), std::memory_order_acq_rel)) {
      return made.release();
    }
  }
  return static_cast<c10::StorageImpl *>(current);
}

c10::Storage make_storage(openreg_block *block, size_t bytes) {
  return c10::Storage(c10::make_intrusive<DeviceStorage>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                         device_pointer(block), device_allocator(),
                                                         /*resizable=*/true));
}

at::Tensor make_tensor(c10::Storage storage, caffe2::TypeMeta dtype) {
  return at::detail::make_tensor<DeviceTensor>(std::move(storage), dtype);
}

at::Tensor adopt_result(at::Tensor &&result, const char *operator_name) {
  check_dtype(result.dtype(), operator_name);
  const auto &twin_storage = result.unsafeGetTensorImpl()->unsafe_storage();
  auto *host = twin_storage.unsafeGetStorageImpl();
  const auto bytes = host->nbytes();
  return at::detail::make_tensor<DeviceTensor>(make_storage(take_block(host), bytes),
                                               std::move(result));
}

at::Tensor move_result(at::Tensor &&result, c10::DeviceIndex device, const char *operator_name) {
  check_dtype(result.dtype(), operator_name);
  auto *host = result.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const auto bytes = host->nbytes();
  return at::detail::make_tensor<DeviceTensor>(make_storage(take_memory(host, device), bytes),
                                               std::move(result));
}

at::Tensor share_storage(const at::Tensor &base, at::Tensor &&result) {
  check_dtype(result.dtype(), "aten::view");
  return at::detail::make_tensor<DeviceTensor>(*base.unsafeGetTensorImpl(), std::move(result));
}

void write_back(const at::Tensor &tensor, const at::Tensor &twin) {
  auto *to = tensor.unsafeGetTensorImpl();
  const auto *from = twin.unsafeGetTensorImpl();
  auto *host = from->unsafe_storage().unsafeGetStorageImpl();
  if (from == to) { // a host tensor
    return;
  }
  auto *storage = to->unsafe_storage().unsafeGetStorageImpl();
  if (twin_storage_of(*storage) != host) [[unlikely]] { // the kernel set another storage
    to->set_storage_keep_dtype(
        make_storage(take_memory(host, tensor.device().index()), host->nbytes()));
  } else if (is_from_override(host->data_ptr())) [[unlikely]] { // it grew
    storage->set_data_ptr_noswap(device_pointer(take_block(host)));
    storage->set_nbytes(host->nbytes());
  }
  if (!same_shape(*from, *to)) {
    to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  }
  if (lazy_bits_differ(*from, *to)) [[unlikely]] { // linalg.lu_solve leaves out= conjugated
    to->_set_conj(from->is_conj());
    to->_set_neg(from->is_neg());
  }
}

void resize_storage(c10::StorageImpl &storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const auto &pointer = storage.data_ptr();
  auto *previous = find_block(pointer);
  const auto device = storage.device().index();
  auto *block = allocate_block(device, bytes);
  auto fresh = device_pointer(block);
  const auto copy = [to = block->address, from = pointer.get(),
                     kept = std::min(bytes, storage.nbytes())] { openreg_copy(to, from, kept); };
  notify_observers([&](Observer &observer) {
    observer.resize({device, current_stream(device)}, pointer.get(), block->address,
                    std::min(bytes, storage.nbytes()), bytes);
  });
  if (previous != nullptr) {
    if (!skip_move(*previous, *block, std::min(bytes, storage.nbytes()))) {
      run_on_stream(device, copy);
    }
    const auto stream = current_stream(device);
    if (stream != previous->stream) { // on its own stream, freed memory is reused in order anyway
      check(openreg_block_record_stream(previous, stream));
    }
  } else {
    const InlineGuard guard(device); // the memory's owner may reuse it as soon as this returns
    copy();
  }
  // Earlier twins keep pointing to the earlier memory: queued work uses them.
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

} // namespace openreg
