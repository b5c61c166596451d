// Attention of a part of each sequence, forward.
#include "gpu_backend/cuda/kernels/sm90a/attention_forward.cuh"

namespace mfsdp::cuda {

Result<void> warpgroup_attention_forward_of_part(const kernels::AttentionForward<Bf16>& k,
                                                 const AttentionForwardMaps& maps,
                                                 cudaStream_t stream) {
  using attention_forward::forward;
  const bool capped = k.shape.score_cap > 0;
  switch (k.shape.head_dim) {
    case 64: return forward<64, Sight::part>(k, maps, stream);
    case 96: return forward<96, Sight::part>(k, maps, stream);
    case 128:
      return capped ? forward<128, Sight::part, Cap::capped>(k, maps, stream)
                    : forward<128, Sight::part>(k, maps, stream);
    default:
      return capped ? forward<256, Sight::part, Cap::capped>(k, maps, stream)
                    : forward<256, Sight::part>(k, maps, stream);
  }
}

}  // namespace mfsdp::cuda
