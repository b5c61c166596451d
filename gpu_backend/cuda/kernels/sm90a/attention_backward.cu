#include "core/plan/attention_choice.hpp"
#include "gpu_backend/cuda/kernels/sm90a/attention_gradients.cuh"

namespace mfsdp::cuda {
namespace {

bool has_grouped_tiles(const kernels::AttentionShape& s) {
  return is_bounded(s) || goes_by_groups({.seq_len = s.seq_len,
                                          .batch = s.batch,
                                          .heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_dim = s.head_dim,
                                          .backward = true});
}

}  // namespace

Result<void> warpgroup_attention_backward(const kernels::AttentionBackward<Bf16>& k,
                                          const AttentionBackwardMaps& maps, cudaStream_t stream) {
  using attention_backward::backward;
  if (k.shape.head_dim == 256) return warpgroup_attention_backward_256(k, maps, stream);
  if (!k.shape.share.is_whole()) return warpgroup_attention_backward_of_part(k, maps, stream);
  const bool bounded = has_grouped_tiles(k.shape);
  switch (k.shape.head_dim) {
    case 64:
      return bounded ? backward<64, Sight::bounded>(k, maps, stream)
                     : backward<64, Sight::whole>(k, maps, stream);
    case 96: return backward<96, Sight::bounded>(k, maps, stream);
    default:
      if (k.shape.score_cap > 0) return backward<128, Sight::bounded, Cap::capped>(k, maps, stream);
      return bounded ? backward<128, Sight::bounded>(k, maps, stream)
                     : backward<128, Sight::whole>(k, maps, stream);
  }
}

}  // namespace mfsdp::cuda
