// ATen/native/transformers/cuda/sdp_utils.h: which of CUDA's attention kernels fit some arguments.
// None of them exists here, so the answers are those of a build without CUDA.
namespace sdp {

struct sdp_params;

#define EXPORTED __attribute__((visibility("default")))

EXPORTED bool is_flash_attention_available();
EXPORTED bool can_use_flash_attention(const sdp_params &params, bool debug);
EXPORTED bool can_use_mem_efficient_attention(const sdp_params &params, bool debug);
EXPORTED bool can_use_cudnn_attention(const sdp_params &params, bool debug);

bool is_flash_attention_available() {
  return false;
}

bool can_use_flash_attention(const sdp_params & /*params*/, bool /*debug*/) {
  return false;
}

bool can_use_mem_efficient_attention(const sdp_params & /*params*/, bool /*debug*/) {
  return false;
}

bool can_use_cudnn_attention(const sdp_params & /*params*/, bool /*debug*/) {
  return false;
}

} // namespace sdp
