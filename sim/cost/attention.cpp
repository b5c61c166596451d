#include "sim/cost/attention.hpp"

#include <algorithm>
#include <vector>

#include "core/plan/attention_choice.hpp"
#include "sim/hardware/power.hpp"

namespace mfsdp {
namespace {

// Forward, backward.
constexpr std::array<double, 2> kFlops{1, 2.5};  // relative to forward
constexpr std::int64_t kWideHead = 192;          // whose softcaps have another factor
// Time of cuDNN's deterministic backward relative to its other one: 1.06, 1.09 and 1.11 at 2048,
// 4096 and 8192 tokens (one H200: docs/lab/2026-11-26-attention-warpgroups.md).
constexpr double kDeterministicFactor = 1.087;
constexpr std::int64_t kTileQueries = 128;
// Another head_dim runs another kernel, whose rates are a weak guide: its distance counts ten
// times.
constexpr TableShape kStress{1, 1, 100};

double work(std::size_t direction, double edge, double sequences, double seq, double head_dim) {
  return 2 * kFlops[direction] * sequences * head_dim * (seq * (seq + edge));
}

/// Share of the work without a window that one with it takes, at the same rate.
double share_of(double edge, double window_edge, double seq, double window) {
  const double inside = window * (2 * seq - window) + 2 * window_edge * seq;
  return std::min(1.0, inside / (seq * (seq + edge)));
}

ShapeTable table_of(std::span<const AttentionRow> rows, const AttentionLosses& losses,
                    std::size_t direction) {
  std::vector<ShapePoint> points;
  for (const AttentionRow& row : rows) {
    if (row.backward != (direction == 1)) continue;
    const double sequences = row.batch * row.heads;
    // The time in a faster GPU's table may be close to the fixed part; this keeps the rate finite.
    const double busy = std::max(row.ns - losses.fixed_ns[direction], row.ns / 10);
    const double done = work(direction, losses.edge[direction], sequences, row.seq, row.head_dim);
    points.push_back(ShapePoint{.shape = {sequences, row.seq, row.head_dim}, .rate = done / busy});
  }
  return ShapeTable(std::move(points), kStress, true);
}

}  // namespace

bool has_mask(const Kernel& attention) { return attention.attribute("mask") != 0; }

bool masks_documents(const Kernel& attention) {
  return std::ranges::find(attention.operands, "positions", &Operand::role) !=
         attention.operands.end();
}

bool caps_scores(const Kernel& attention) {
  const Attribute* cap = attention.find_attribute("score_cap");
  return cap != nullptr && cap->value.num != 0;
}

namespace {

std::int64_t parts_of(const Kernel& attention) {
  return std::max<std::int64_t>(attention.attribute("parts", 1), 1);
}

/// The length of a part is that of its chunks, because a tile lies in one of them.
AttentionTraits traits_of(const Kernel& attention) {
  const std::int64_t head_dim = attention.attribute("head_dim");
  const std::int64_t parts = parts_of(attention);
  return {.seq_len = attention.attribute("seq") / (parts == 1 ? 1 : 2 * parts),
          .batch = attention.attribute("batch"),
          .heads = attention.attribute("heads"),
          .kv_heads = attention.attribute("kv_heads"),
          .head_dim = head_dim,
          .value_dim = attention.attribute("value_dim", head_dim),
          .window = attention.attribute("window"),
          .softcap = caps_scores(attention),
          .documents = masks_documents(attention),
          .backward = attention.kind == KernelKind::attention_backward,
          .deterministic = attention.attribute("deterministic") != 0};
}

}  // namespace

bool warpgroups_take(const Kernel& attention) {
  const auto query = std::ranges::find(attention.operands, "query", &Operand::role);
  if (query == attention.operands.end() || query->dtype != DType::bf16) return false;
  return warpgroups_take(traits_of(attention));
}

double share_by_groups(const Kernel& attention) {
  if (parts_of(attention) > 1 || !goes_by_groups(traits_of(attention))) return 1;
  // A tile of one query head takes as long as its blocks of queries, half of the sequence in the
  // mean and those on the diagonal, and four more. Measured at 1024 to 8192 tokens, heads of 64 and
  // 128, to 3 %: docs/lab/2026-11-30-kernels.md.
  constexpr double kSaved = 1.6;  // blocks of queries a tile
  constexpr double kBlock = kWarpgroupBackwardQueries;
  const double blocks =
      (kWarpgroupTokens + static_cast<double>(attention.attribute("seq")) / 2) / kBlock + 4;
  return 1 - kSaved / blocks;
}

double loss_of_few_tiles(const Kernel& attention, std::int64_t sms) {
  const bool backward = attention.kind == KernelKind::attention_backward;
  if (!backward || steps_of_attention(attention) == 1) return 1;
  constexpr double kTiles = 1.4;  // for each SM
  const std::int64_t keys = attention.attribute("seq") / parts_of(attention);
  const std::int64_t tiles =
      checked_mul(checked_mul(attention.attribute("batch"), attention.attribute("kv_heads")),
                  ceil_div(keys, kWarpgroupTokens));
  if (tiles <= 0) return 1;
  return std::max(1.0, kTiles * static_cast<double>(sms) / static_cast<double>(tiles));
}

AttentionCost::AttentionCost(std::span<const AttentionRow> rows, const Gpu& gpu,
                             const AttentionLosses& losses)
    : losses_(losses),
      tables_{table_of(rows, losses, 0), table_of(rows, losses, 1)},
      scale_(gpu.attention_scale * power_rate(gpu)),
      sms_(static_cast<double>(gpu.sms)) {
  for (const AttentionRow& row : rows) head_dims_.insert(static_cast<std::int64_t>(row.head_dim));
}

double AttentionCost::nanoseconds(const AttentionShape& shape) const {
  const std::size_t direction = shape.backward ? 1 : 0;
  const double edge = losses_.edge[direction];
  const double sequences = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  const auto seq = static_cast<double>(shape.seq);
  const auto head_dim = static_cast<double>(shape.head_dim);
  const double tiles =
      sequences * static_cast<double>(ceil_div(shape.seq / shape.parts, kTileQueries));
  const double rate =
      tables_[direction].at({sequences, seq, head_dim}) * scale_ * std::min(1.0, tiles / sms_);
  double busy = work(direction, edge, sequences, seq, head_dim) / rate /
                static_cast<double>(shape.parts * shape.steps);
  const bool windowed = shape.window > 0 && shape.window < shape.seq;
  if (shape.documents || (windowed && shape.masks)) busy *= losses_.documents[direction];
  if (windowed && !shape.masks)
    busy *= share_of(edge, losses_.window_edge[direction], seq, static_cast<double>(shape.window));
  if (shape.capped) busy *= losses_.cap[shape.head_dim > kWideHead ? 1 : 0][direction];
  const double factor = shape.backward && shape.deterministic ? kDeterministicFactor : 1.0;
  return losses_.fixed_ns[direction] + busy * factor;
}

}  // namespace mfsdp
