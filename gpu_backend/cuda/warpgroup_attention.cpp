#include "gpu_backend/cuda/warpgroup_attention.hpp"

#include <cstdint>

#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/kernels/warpgroup_attention.hpp"
#include "gpu_backend/cuda/tensor_map.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::AttentionShape;
using kernels::HeadView;

/// The length of a part is that of its chunks, because a tile lies in one of them.
AttentionTraits traits_of(const AttentionShape& s) {
  return {.seq_len = s.share.is_whole() ? s.seq_len : s.queries() / 2,
          .heads = s.heads,
          .head_dim = s.head_dim,
          .value_dim = s.values(),
          .window = s.window,
          .softcap = s.score_cap != 0,
          .documents = s.positions != nullptr};
}

/// Whether tokens are contiguous across sequences, of which each has `rows`, and all addresses are
/// multiples of 16 bytes.
template <class T>
bool takes(const HeadView<T>& view, const AttentionShape& s, std::int64_t rows) {
  constexpr std::int64_t kPiece = 8;  // elements
  return s.batch > 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 &&
         view.head % kPiece == 0 && view.position % kPiece == 0 &&
         (s.batch == 1 || view.batch == rows * view.position);
}

Result<CUtensorMap> map_of(const HeadView<const Bf16>& view, const AttentionShape& s,
                           std::int64_t heads, std::int64_t rows, int tokens) {
  return tensor_map(view.data,
                    {.dims = {s.head_dim, heads, s.batch * rows},
                     .strides = {view.head, view.position},
                     .box = {kBoxColumns, 1, tokens}},
                    "heads of attention");
}
/// Attention of a rank's own keys is that of a sequence of as many tokens, unless what a query sees
/// has another bound than its own place. Kernels of whole sequences are faster by a twentieth
/// (docs/lab/2026-12-01-attention-parts.md).
AttentionShape as_whole_if_possible(const AttentionShape& s) {
  const bool own_keys = !s.share.is_whole() && !s.has_all_keys() && s.shift == 0;
  if (!own_keys || s.positions != nullptr || s.window > 0) return s;
  AttentionShape whole = s;
  whole.seq_len = s.queries();
  whole.share = {};
  whole.key_parts = 0;
  return whole;
}

HeadView<const Bf16> readable(const HeadView<Bf16>& view) {
  return {.data = view.data, .batch = view.batch, .head = view.head, .position = view.position};
}

}  // namespace

std::int64_t warpgroup_backward_workspace(const AttentionShape& s) {
  if (s.heads == s.kv_heads || !s.share.is_whole()) return kWarpgroupCounterBytes;
  return kWarpgroupCounterBytes +
         2 * s.batch * s.seq_len * s.kv_heads * s.head_dim * std::int64_t{sizeof(float)};
}

Result<bool> warpgroups_take(const kernels::AttentionForward<Bf16>& k) {
  if (!mfsdp::warpgroups_take(traits_of(k.shape)) || k.workspace.size() < kWarpgroupCounterBytes)
    return false;
  const AttentionShape& s = k.shape;
  for (const auto& view : {k.query, readable(k.output)})
    if (!takes(view, s, s.queries())) return false;
  for (const auto& view : {k.key, k.value})
    if (!takes(view, s, s.keys())) return false;
  return has_warpgroups();
}

Result<bool> warpgroups_take(const kernels::AttentionBackward<Bf16>& k) {
  AttentionTraits traits = traits_of(k.shape);
  traits.backward = true;
  traits.deterministic = k.deterministic;
  if (!mfsdp::warpgroups_take(traits) || k.d_query_sum == nullptr) return false;
  // Statistics are stored in a token's row of dQ, whose heads are contiguous.
  if (k.d_query.head != k.shape.head_dim ||
      static_cast<std::int64_t>(k.workspace.size()) < warpgroup_backward_workspace(k.shape))
    return false;
  const AttentionShape& s = k.shape;
  for (const auto& view : {k.query, k.output, k.d_output, readable(k.d_query)})
    if (!takes(view, s, s.queries())) return false;
  for (const auto& view : {k.key, k.value, readable(k.d_key), readable(k.d_value)})
    if (!takes(view, s, s.keys())) return false;
  return has_warpgroups();
}

Result<Launch> warpgroup_launch(const kernels::AttentionForward<Bf16>& call, cudaStream_t stream) {
  kernels::AttentionForward<Bf16> k = call;
  k.shape = as_whole_if_possible(call.shape);
  const AttentionShape& s = k.shape;
  MFSDP_LET(query, map_of(k.query, s, s.heads, s.queries(), kWarpgroupTile));
  MFSDP_LET(key, map_of(k.key, s, s.kv_heads, s.keys(), attention_keys(s.head_dim)));
  MFSDP_LET(value, map_of(k.value, s, s.kv_heads, s.keys(), attention_keys(s.head_dim)));
  MFSDP_LET(output, map_of(readable(k.output), s, s.heads, s.queries(), kWarpgroupTile / 2));
  const AttentionForwardMaps maps{.query = query, .key = key, .value = value, .output = output};
  return [k, maps, stream] { return warpgroup_attention_forward(k, maps, stream); };
}

Result<Launch> warpgroup_launch(const kernels::AttentionBackward<Bf16>& k, cudaStream_t stream) {
  const AttentionShape& s = k.shape;
  MFSDP_LET(query, map_of(k.query, s, s.heads, s.queries(), kWarpgroupQueries));
  MFSDP_LET(key, map_of(k.key, s, s.kv_heads, s.keys(), attention_keys(s.head_dim)));
  MFSDP_LET(value, map_of(k.value, s, s.kv_heads, s.keys(), attention_keys(s.head_dim)));
  MFSDP_LET(d_output, map_of(k.d_output, s, s.heads, s.queries(), kWarpgroupQueries));
  const AttentionBackwardMaps maps{
      .query = query, .key = key, .value = value, .d_output = d_output};
  return [k, maps, stream] { return warpgroup_attention_backward(k, maps, stream); };
}

}  // namespace mfsdp::cuda
