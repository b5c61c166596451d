#include "gpu_backend/cuda/kernels/sm90a/attention_forward.cuh"

namespace mfsdp::cuda {

Result<void> warpgroup_attention_forward(const kernels::AttentionForward<Bf16>& k,
                                         const AttentionForwardMaps& maps, cudaStream_t stream) {
  using attention_forward::forward;
  if (!k.shape.share.is_whole()) return warpgroup_attention_forward_of_part(k, maps, stream);
  const bool capped = k.shape.score_cap > 0;
  const bool bounded = is_bounded(k.shape);
  switch (k.shape.head_dim) {
    case 64:
      return bounded ? forward<64, Sight::bounded>(k, maps, stream)
                     : forward<64, Sight::whole>(k, maps, stream);
    case 96: return forward<96, Sight::bounded>(k, maps, stream);
    case 128:
      if (capped) return forward<128, Sight::bounded, Cap::capped>(k, maps, stream);
      return bounded ? forward<128, Sight::bounded>(k, maps, stream)
                     : forward<128, Sight::whole>(k, maps, stream);
    default:
      return capped ? forward<256, Sight::bounded, Cap::capped>(k, maps, stream)
                    : forward<256, Sight::bounded>(k, maps, stream);
  }
}

}  // namespace mfsdp::cuda
