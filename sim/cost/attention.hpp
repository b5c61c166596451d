// The price of causal attention.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>

#include "core/plan/op.hpp"
#include "sim/cost/shape_table.hpp"
#include "sim/cost/tables.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t seq = 1;
  std::int64_t heads = 1;  ///< of the queries
  std::int64_t head_dim = 1;
  bool backward = false;
  bool deterministic = false;  ///< backward only
  std::int64_t window = 0;     ///< tokens that a query sees; 0: all up to its own
  bool documents = false;      ///< masked between documents
  bool capped = false;         ///< scores have a softcap
  bool masks = false;          ///< pairs outside of windows are computed and masked, not skipped
  std::int64_t parts = 1;      ///< of the sequence: queries are those of one
  std::int64_t steps = 1;      ///< kernels that have as many pairs each of a rank's queries
};

/// Time that attention kernels lose besides their rate, forward and backward.
struct AttentionLosses {
  std::array<double, 2> fixed_ns;     ///< launches and ends; the backward is several kernels
  std::array<double, 2> edge;         ///< tokens: masked halves of the tiles on the diagonal
  std::array<double, 2> window_edge;  ///< the same with a window, on both its sides
  std::array<double, 2> documents;    ///< factors on the time of a whole sequence
  /// Factors on the time with a softcap, of heads of up to 128 and of wider ones.
  std::array<std::array<double, 2>, 2> cap;
};
/// Fitted to cuDNN's table. The other rows predict a left-out row within 3 %. With document masks
/// cuDNN computes both halves of the logits (one H100, 8192 tokens:
/// docs/lab/2026-11-24-documents.md). Softcaps: docs/lab/2026-11-29-attention-own.md.
inline constexpr AttentionLosses kLibraryAttention{.fixed_ns{15'000, 50'000},
                                                   .edge{256, 512},
                                                   .window_edge{256, 512},
                                                   .documents{2.18, 1.91},
                                                   .cap{{{1.35, 1.26}, {1.14, 1.35}}}};
/// Fitted likewise to the table of mfsdp-exec's own kernels, to whole microseconds and 32 tokens,
/// with heads of 128: within 1.5 %. With cuDNN's constants the error would be 10 %, because these
/// kernels have shorter ends. Heads of 64 have few rows: within 6.5 %. These kernels skip what
/// windows and documents leave out. `window_edge` is fitted to windows of 128 to 4096 of 8192 tokens,
/// heads of 64 to 256, within 11 %; `cap` is measured (docs/lab/2026-11-29-attention-own.md). The lengths of documents
/// are not known: they are priced as one, which is the most that they can take. Parts of sequences are
/// priced by them too: of 16,384 queries and more within 3.5 % up to 65,536 tokens, beyond the table
/// up to 8 % too long backward; of 2048 to 8192 queries they take up to 14 % more
/// (docs/lab/2026-12-01-attention-parts.md).
inline constexpr AttentionLosses kWarpgroupAttention{.fixed_ns{4'000, 23'000},
                                                     .edge{352, 672},
                                                     .window_edge{352, 400},
                                                     .documents{1, 1},
                                                     .cap{{{1.57, 1.15}, {1.19, 1.03}}}};

/// All pairs of tokens are computed: no edge. The fixed part is that of converting the mask and of
/// launches, fitted to the table of PyTorch's kernel to ten microseconds.
inline constexpr AttentionLosses kMaskedAttention{.fixed_ns{60'000, 150'000},
                                                  .edge{0, 0},
                                                  .window_edge{0, 0},
                                                  .documents{1, 1},
                                                  .cap{{{1, 1}, {1, 1}}}};

/// Whether its mask is a tensor: all pairs of tokens are computed. Such kernels have twice the batch of
/// a causal one, and so its FLOPs.
[[nodiscard]] bool has_mask(const Kernel& attention);

/// Whether a query sees only its own document.
[[nodiscard]] bool masks_documents(const Kernel& attention);

/// A factor of the time of mfsdp-exec's own backward. It is below 1 where that processes the query
/// heads of a group together (core/plan/attention_choice.hpp).
[[nodiscard]] double share_by_groups(const Kernel& attention);

/// A factor of the time of mfsdp-exec's own backward of a step in a ring: a tile has all query heads of
/// a group, so that short parts leave SMs idle, or with the longest tiles. Measured at 2048 and 4096
/// tokens of 8 key heads and at two parts, where it is 1.5 and 1.08
/// (docs/lab/2026-12-01-attention-parts.md).
[[nodiscard]] double loss_of_few_tiles(const Kernel& attention, std::int64_t sms);

/// Whether its scores have a softcap.
[[nodiscard]] bool caps_scores(const Kernel& attention);

/// Whether mfsdp-exec computes this attention with its own kernels, if the GPU can run them. False
/// for kernels without operands, which other engines and traces have: those are PyTorch's calls of
/// cuDNN.
[[nodiscard]] bool warpgroups_take(const Kernel& attention);

/// Time = fixed + work / rate, with
///   work  = 2 batch heads head_dim seq (seq + edge)    forward; 2.5 times that backward
///   fixed, edge: AttentionLosses
/// and the rate interpolated over (batch * heads, seq, head_dim). With a window of w tokens the
/// work is w (2 seq - w) + 2 window_edge seq instead of seq (seq + edge), as tiles are masked on
/// both sides of the window; it never exceeds the work without a window. Documents and softcaps have
/// factors on the time, and so have windows that are masked rather than skipped: that of documents.
/// A part of a sequence has its share of the work. A small number of 128-query tiles leaves SMs
/// idle. A deterministic backward takes 1.087 times as long, the mean of three lengths.
class AttentionCost {
 public:
  /// Requires a row of each direction.
  AttentionCost(std::span<const AttentionRow> rows, const Gpu& gpu,
                const AttentionLosses& losses = kLibraryAttention);

  /// Nanoseconds; all fields must be positive.
  [[nodiscard]] double nanoseconds(const AttentionShape& shape) const;
  /// The head_dims of the table's rows, ascending.
  [[nodiscard]] const std::set<std::int64_t>& head_dims() const { return head_dims_; }

 private:
  AttentionLosses losses_;
  std::array<ShapeTable, 2> tables_;  ///< forward, backward
  std::set<std::int64_t> head_dims_;
  double scale_;
  double sms_;
};

}  // namespace mfsdp
