/* policy.c: which operators autocast runs in which precision.
 *
 * Data and nothing else: what is done about it is not this layer's concern. The lists and their
 * order are those of CUDA autocast in PyTorch 2.13 (the AT_FORALL_ macros of ATen/autocast_mode.h),
 * without the two cuDNN operators, which only CUDA tensors have. What must stay true: an operator
 * with its overload appears once, and policies come in ascending order.
 */
#include "amp/amp.h"

/* clang-format off */
#define LOWER_PRECISION(name, overload)   {name, overload, OPENREG_AMP_LOWER_PRECISION, NULL}
#define FLOAT32(name, overload)           {name, overload, OPENREG_AMP_FLOAT32, NULL}
#define FLOAT32_SET_DTYPE(name, overload) {name, overload, OPENREG_AMP_FLOAT32_SET_DTYPE, NULL}
#define APPEND_DTYPE(name, overload, to)  {name, overload, OPENREG_AMP_FLOAT32_APPEND_DTYPE, to}
#define PROMOTE(name, overload)           {name, overload, OPENREG_AMP_PROMOTE, NULL}
#define BANNED(name, overload)            {name, overload, OPENREG_AMP_BANNED, NULL}

static const openreg_amp_entry table[] = {
    LOWER_PRECISION("_convolution", "deprecated"),
    LOWER_PRECISION("_convolution", ""),
    LOWER_PRECISION("conv1d", ""),
    LOWER_PRECISION("conv2d", ""),
    LOWER_PRECISION("conv3d", ""),
    LOWER_PRECISION("conv_tbc", ""),
    LOWER_PRECISION("conv_transpose1d", ""),
    LOWER_PRECISION("conv_transpose2d", "input"),
    LOWER_PRECISION("conv_transpose3d", "input"),
    LOWER_PRECISION("convolution", ""),
    LOWER_PRECISION("prelu", ""),
    LOWER_PRECISION("addmm", ""),
    LOWER_PRECISION("addmv", ""),
    LOWER_PRECISION("addr", ""),
    LOWER_PRECISION("matmul", ""),
    LOWER_PRECISION("einsum", ""),
    LOWER_PRECISION("mm", ""),
    LOWER_PRECISION("mv", ""),
    LOWER_PRECISION("linalg_vecdot", ""),
    LOWER_PRECISION("linear", ""),
    LOWER_PRECISION("addbmm", ""),
    LOWER_PRECISION("baddbmm", ""),
    LOWER_PRECISION("bmm", ""),
    LOWER_PRECISION("chain_matmul", ""),
    LOWER_PRECISION("linalg_multi_dot", ""),
    LOWER_PRECISION("_thnn_fused_lstm_cell", ""),
    LOWER_PRECISION("_thnn_fused_gru_cell", ""),
    LOWER_PRECISION("lstm_cell", ""),
    LOWER_PRECISION("gru_cell", ""),
    LOWER_PRECISION("rnn_tanh_cell", ""),
    LOWER_PRECISION("rnn_relu_cell", ""),
    LOWER_PRECISION("_scaled_dot_product_flash_attention", ""),
    LOWER_PRECISION("scaled_dot_product_attention", ""),

    FLOAT32("acos", ""),
    FLOAT32("asin", ""),
    FLOAT32("cosh", ""),
    FLOAT32("erfinv", ""),
    FLOAT32("exp", ""),
    FLOAT32("expm1", ""),
    FLOAT32("log", ""),
    FLOAT32("log10", ""),
    FLOAT32("log2", ""),
    FLOAT32("log1p", ""),
    FLOAT32("reciprocal", ""),
    FLOAT32("rsqrt", ""),
    FLOAT32("sinh", ""),
    FLOAT32("tan", ""),
    FLOAT32("pow", "Tensor_Scalar"),
    FLOAT32("pow", "Tensor_Tensor"),
    FLOAT32("pow", "Scalar"),
    FLOAT32("softplus", ""),
    FLOAT32("layer_norm", ""),
    FLOAT32("native_layer_norm", ""),
    FLOAT32("rms_norm", ""),
    FLOAT32("group_norm", ""),
    FLOAT32("frobenius_norm", "dim"),
    FLOAT32("nuclear_norm", ""),
    FLOAT32("nuclear_norm", "dim"),
    FLOAT32("cosine_similarity", ""),
    FLOAT32("poisson_nll_loss", ""),
    FLOAT32("cosine_embedding_loss", ""),
    FLOAT32("nll_loss", ""),
    FLOAT32("nll_loss2d", ""),
    FLOAT32("hinge_embedding_loss", ""),
    FLOAT32("kl_div", ""),
    FLOAT32("l1_loss", ""),
    FLOAT32("smooth_l1_loss", ""),
    FLOAT32("huber_loss", ""),
    FLOAT32("mse_loss", ""),
    FLOAT32("margin_ranking_loss", ""),
    FLOAT32("multilabel_margin_loss", ""),
    FLOAT32("soft_margin_loss", ""),
    FLOAT32("triplet_margin_loss", ""),
    FLOAT32("multi_margin_loss", ""),
    FLOAT32("binary_cross_entropy_with_logits", ""),
    FLOAT32("dist", ""),
    FLOAT32("pdist", ""),
    FLOAT32("cdist", ""),
    FLOAT32("renorm", ""),
    FLOAT32("logsumexp", ""),
    FLOAT32("upsample_nearest1d", ""),
    FLOAT32("_upsample_nearest_exact1d", ""),
    FLOAT32("upsample_nearest2d", ""),
    FLOAT32("_upsample_nearest_exact2d", ""),
    FLOAT32("upsample_nearest3d", ""),
    FLOAT32("_upsample_nearest_exact3d", ""),
    FLOAT32("upsample_linear1d", ""),
    FLOAT32("upsample_bilinear2d", ""),
    FLOAT32("_upsample_bilinear2d_aa", ""),
    FLOAT32("upsample_trilinear3d", ""),
    FLOAT32("upsample_bicubic2d", ""),
    FLOAT32("_upsample_bicubic2d_aa", ""),

    FLOAT32_SET_DTYPE("prod", ""),
    FLOAT32_SET_DTYPE("prod", "dim_int"),
    FLOAT32_SET_DTYPE("softmax", "int"),
    FLOAT32_SET_DTYPE("log_softmax", "int"),
    FLOAT32_SET_DTYPE("cumprod", ""),
    FLOAT32_SET_DTYPE("cumsum", ""),
    FLOAT32_SET_DTYPE("linalg_vector_norm", ""),
    FLOAT32_SET_DTYPE("linalg_matrix_norm", ""),
    FLOAT32_SET_DTYPE("linalg_matrix_norm", "str_ord"),
    FLOAT32_SET_DTYPE("sum", ""),
    FLOAT32_SET_DTYPE("sum", "dim_IntList"),

    /* norm has no overload without dtype that could be told to compute in float32 */
    APPEND_DTYPE("norm", "Scalar", "ScalarOpt_dtype"),
    APPEND_DTYPE("norm", "ScalarOpt_dim", "ScalarOpt_dim_dtype"),

    PROMOTE("addcdiv", ""),
    PROMOTE("addcmul", ""),
    PROMOTE("atan2", ""),
    PROMOTE("bilinear", ""),
    PROMOTE("cross", ""),
    PROMOTE("dot", ""),
    PROMOTE("vdot", ""),
    PROMOTE("grid_sampler", ""),
    PROMOTE("index_put", ""),
    PROMOTE("tensordot", ""),
    PROMOTE("scatter_add", ""),

    BANNED("binary_cross_entropy", ""),
};
/* clang-format on */

static const char *const policy_names[] = {
    [OPENREG_AMP_LOWER_PRECISION] = "lower_precision",
    [OPENREG_AMP_FLOAT32] = "float32",
    [OPENREG_AMP_FLOAT32_SET_DTYPE] = "float32_set_dtype",
    [OPENREG_AMP_FLOAT32_APPEND_DTYPE] = "float32_append_dtype",
    [OPENREG_AMP_PROMOTE] = "promote",
    [OPENREG_AMP_BANNED] = "banned",
};

const openreg_amp_entry *openreg_amp_table(size_t *count) {
  *count = sizeof table / sizeof table[0];
  return table;
}

const char *openreg_amp_policy_name(openreg_amp_policy policy) {
  size_t index = (size_t)policy;
  return index < sizeof policy_names / sizeof policy_names[0] ? policy_names[index] : NULL;
}
