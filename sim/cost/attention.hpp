// The price of causal attention.
#pragma once

#include <array>
#include <cstdint>
#include <span>

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

/// Time = fixed + work / rate, with
///   work  = 2 batch heads head_dim seq (seq + edge)    forward; 2.5 times that backward
///   fixed = 15 us forward, 50 us backward (the backward is several kernels)
///   edge  = 256 tokens forward, 512 backward: masked halves of the tiles on the diagonal
/// With a window of w tokens the work is w (2 seq - w) + 2 edge seq in place of seq (seq + edge),
/// as tiles are masked on both sides of it, and never more than without. No windows were measured.
/// and the rate interpolated over (batch * heads, seq, head_dim). Masked between documents it is
/// 1 / 2.18 of that forward and 1 / 1.91 backward, of whole sequences with a window or without:
/// cuDNN's engines then compute both halves of the scores (one H100, 8192 tokens:
/// gpu_backend/measurements/2026-11-24-documents.md). The four constants above were fitted on the
/// table; leaving a row out, the others predict it within 3 %. Few tiles of 128 queries leave SMs
/// idle. A deterministic backward is assumed to take 1.5 times as long: no measurement exists.
class AttentionCost {
 public:
  /// Requires a row of both directions.
  AttentionCost(std::span<const AttentionRow> rows, const Gpu& gpu);

  /// Nanoseconds; all fields must be positive.
  [[nodiscard]] double nanoseconds(const AttentionShape& shape) const;

 private:
  std::array<ShapeTable, 2> tables_;  ///< forward, backward
  double scale_;
  double sms_;
};

}  // namespace mfsdp
