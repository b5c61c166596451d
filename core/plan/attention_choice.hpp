// The attention kernels on GPUs: our own or cuDNN's.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/quantity.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Kernels of bf16 attention on GPUs. `warpgroups`: mfsdp-exec's own where they support the call,
/// else cuDNN's.
enum class AttentionChoice { warpgroups, cudnn };

constexpr auto value_names(AttentionChoice) { return name_array("warpgroups", "cudnn"); }

/// The fact of topic "software" that holds the AttentionChoice of a measured run. Runs without it
/// used cuDNN.
inline constexpr std::string_view kAttentionFact = "attention";

/// The properties of a bf16 call that decide whether mfsdp-exec's own kernels support it.
struct AttentionTraits {
  std::int64_t seq_len = 0;
  std::int64_t batch = 1;
  std::int64_t heads = 0;     ///< of queries
  std::int64_t kv_heads = 0;  ///< 0: as many
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t window = 0;  ///< tokens that a query sees; 0: all up to its own
  bool softcap = false;
  bool documents = false;  ///< masked between documents
  bool backward = false;
  bool deterministic = false;  ///< equal bits are required
};

/// Tokens in a tile of our own kernels: queries in forward, keys in backward.
inline constexpr std::int64_t kWarpgroupTokens = 128;
/// Queries in a tile of backward. A head keeps two floats for each in its rows of dQ.
inline constexpr std::int64_t kWarpgroupBackwardQueries = 64;

/// Whether our own kernels support a call on a GPU that can run them: heads of 64, 96, 128 or 256,
/// of 128 or 256 with a softcap, and whole tiles; not deterministic backward. Windows and documents
/// are skipped, not only masked.
[[nodiscard]] constexpr bool warpgroups_take(const AttentionTraits& a) {
  const bool wide = a.head_dim == 128 || a.head_dim == 256;
  if (!wide && (a.softcap || (a.head_dim != 64 && a.head_dim != 96))) return false;
  if (a.value_dim != a.head_dim) return false;
  if (a.seq_len <= 0 || a.seq_len % kWarpgroupTokens != 0) return false;
  if (!a.backward) return true;
  constexpr std::int64_t kPiece = kWarpgroupBackwardQueries;  // of a row's statistics, in heads
  const std::int64_t statistics = ceil_div(a.heads, kPiece) * 2 * kPiece * std::int64_t{4};
  return !a.deterministic && 2 * a.heads * a.head_dim >= statistics;
}

/// Whether our own backward has the query heads of a group in one tile of whole attention, too: no
/// sums of dK and dV in memory, and fewer tiles to begin and end. Long tiles of heads of 128 do not
/// gain by it, and fewer tiles than two for each SM cost more (docs/lab/2026-11-30-kernels.md).
[[nodiscard]] constexpr bool goes_by_groups(const AttentionTraits& a) {
  constexpr std::int64_t kFewestTiles = 256;
  constexpr std::int64_t kLongest = 1024;  // tokens, of heads of 128
  const bool whole = a.window == 0 && !a.softcap && !a.documents;
  const bool gains = a.head_dim == 64 || (a.head_dim == 128 && a.seq_len <= kLongest);
  return a.backward && whole && gains && a.kv_heads > 0 && a.heads > a.kv_heads &&
         a.seq_len / kWarpgroupTokens * a.kv_heads * a.batch >= kFewestTiles;
}

}  // namespace mfsdp
