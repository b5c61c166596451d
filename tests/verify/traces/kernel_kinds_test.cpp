#include "verify/traces/kernel_kinds.hpp"

#include <gtest/gtest.h>

namespace mfsdp::traces {
namespace {

TEST(KernelKind, ByNamesThatProfilersShow) {
  using enum KernelKind;
  const std::vector<std::pair<const char*, KernelKind>> rows{
      {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", gemm},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", gemm},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>", gemm},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float>", gemm},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3", attention},
      {"void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", attention},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
       optimizer},
      {"void at::native::vectorized_elementwise_kernel<4, MulFunctor<float>>", elementwise},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
       "CopyFunctor<c10::BFloat16, float, 2, 1, 1>, at::native::Copy<c10::BFloat16, float> >",
       packing},
      {"void at::native::detail::chunk_cat_cuda_kernel<float, c10::BFloat16>", packing},
      {"at::native::detail::split_with_sizes_copy_out_contiguous_no_cast_kernel", packing},
      {"void cudnn::fusion::compute_dot_do_o_specialized<true, 64>", attention},
      {"void cunn_SoftMaxForward<4, float, LogSoftMaxForwardEpilogue>", loss},
      {"triton_poi_fused_add_mul_3", elementwise},
      {"triton_red_fused_mean_1", reduction},
      {"void at::native::reduce_kernel<512, 1, ReduceOp<float>>", reduction},
      {"void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel", norm},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward", other},
      {"", other}};
  for (const auto& [name, kind] : rows) EXPECT_EQ(kernel_kind(name), kind) << name;
}

TEST(KernelKind, NoPatternIsHiddenBehindAnEarlierOne) {
  for (const KernelPattern& row : kernel_patterns())
    EXPECT_EQ(kernel_kind(row.part), row.kind) << row.part;
}

TEST(ElementBytes, OfTorchTypes) {
  EXPECT_EQ(element_bytes("BFloat16"), 2);
  EXPECT_EQ(element_bytes("Float"), 4);
  EXPECT_EQ(element_bytes("float"), std::nullopt);
}

}  // namespace
}  // namespace mfsdp::traces
