// The price of causal attention.
#pragma once

#include <array>
#include <cstdint>
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
};

/// Time that attention kernels lose besides their rate, forward and backward.
struct AttentionLosses {
  std::array<double, 2> fixed_ns;  ///< launches and ends; the backward is several kernels
  std::array<double, 2> edge;      ///< tokens: masked halves of the tiles on the diagonal
};
/// Fitted to cuDNN's table. The other rows predict a left-out row within 3 %.
inline constexpr AttentionLosses kLibraryAttention{.fixed_ns{15'000, 50'000}, .edge{256, 512}};
/// Fitted likewise to the table of mfsdp-exec's own kernels, to whole microseconds and 32 tokens,
/// with heads of 128: within 1.5 %. With cuDNN's constants the error would be 10 %, because these
/// kernels have shorter ends. Heads of 64 have few rows: within 6.5 %.
inline constexpr AttentionLosses kWarpgroupAttention{.fixed_ns{4'000, 23'000}, .edge{352, 672}};

/// Whether a query sees only its own document.
[[nodiscard]] bool masks_documents(const Kernel& attention);

/// Whether mfsdp-exec computes this attention with its own kernels, if the GPU can run them. False
/// for kernels without operands, which other engines and traces have: those are PyTorch's calls of
/// cuDNN.
[[nodiscard]] bool warpgroups_take(const Kernel& attention);

/// Time = fixed + work / rate, with
///   work  = 2 batch heads head_dim seq (seq + edge)    forward; 2.5 times that backward
///   fixed, edge: AttentionLosses
/// and the rate interpolated over (batch * heads, seq, head_dim). With a window of w tokens the
/// work is w (2 seq - w) + 2 edge seq instead of seq (seq + edge), as tiles are masked on both
/// sides of the window; it never exceeds the work without a window. No windows were measured. Masks
/// between documents reduce the rate to 1 / 2.18 forward and 1 / 1.91 backward, of full sequences
/// with or without a window: cuDNN's engines then compute both halves of the logits (one H100, 8192
/// tokens: docs/lab/2026-11-24-documents.md). A small number of 128-query tiles leaves SMs idle. A
/// deterministic backward takes 1.087 times as long, the mean of three lengths.
class AttentionCost {
 public:
  /// Requires a row of each direction.
  AttentionCost(std::span<const AttentionRow> rows, const Gpu& gpu,
                const AttentionLosses& losses = kLibraryAttention);

  /// Nanoseconds; all fields must be positive.
  [[nodiscard]] double nanoseconds(const AttentionShape& shape) const;

 private:
  AttentionLosses losses_;
  std::array<ShapeTable, 2> tables_;  ///< forward, backward
  double scale_;
  double sms_;
};

}  // namespace mfsdp
