// The backward of attention of a part of each sequence, heads of 64, 96 and 128.
#include "gpu_backend/cuda/kernels/sm90a/attention_gradients.cuh"

namespace mfsdp::cuda {

Result<void> warpgroup_attention_backward_of_part(const kernels::AttentionBackward<Bf16>& k,
                                                  const AttentionBackwardMaps& maps,
                                                  cudaStream_t stream) {
  using attention_backward::backward;
  switch (k.shape.head_dim) {
    case 64: return backward<64, Sight::part>(k, maps, stream);
    case 96: return backward<96, Sight::part>(k, maps, stream);
    default:
      return k.shape.score_cap > 0 ? backward<128, Sight::part, Cap::capped>(k, maps, stream)
                                   : backward<128, Sight::part>(k, maps, stream);
  }
}

}  // namespace mfsdp::cuda
