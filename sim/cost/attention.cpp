#include "sim/cost/attention.hpp"

#include <algorithm>
#include <vector>

#include "sim/hardware/power.hpp"

namespace mfsdp {
namespace {

struct Direction {
  double fixed_ns = 0;
  double edge = 0;    ///< tokens
  double flops = 1;   ///< relative to forward
  double masked = 1;  ///< what documents make of the time
};

constexpr std::array<Direction, 2> kDirections{
    Direction{.fixed_ns = 15'000, .edge = 256, .flops = 1, .masked = 2.18},
    Direction{.fixed_ns = 50'000, .edge = 512, .flops = 2.5, .masked = 1.91}};
constexpr double kDeterministicFactor = 1.5;
constexpr std::int64_t kTileQueries = 128;
// Another head_dim is another kernel: its rates say little, so it lies ten times as far away.
constexpr TableShape kStress{1, 1, 100};

double work(const Direction& direction, double sequences, double seq, double head_dim) {
  return 2 * direction.flops * sequences * head_dim * (seq * (seq + direction.edge));
}

/// Of the pairs inside the window, at the same rate.
double share_of(const Direction& direction, double seq, double window) {
  const double inside = window * (2 * seq - window) + 2 * direction.edge * seq;
  return std::min(1.0, inside / (seq * (seq + direction.edge)));
}

ShapeTable table_of(std::span<const AttentionRow> rows, bool backward) {
  const Direction& direction = kDirections[backward ? 1 : 0];
  std::vector<ShapePoint> points;
  for (const AttentionRow& row : rows) {
    if (row.backward != backward) continue;
    const double sequences = row.batch * row.heads;
    // A table from a faster GPU may hold times near the fixed part; keep the rate finite.
    const double busy = std::max(row.ns - direction.fixed_ns, row.ns / 10);
    points.push_back(ShapePoint{.shape = {sequences, row.seq, row.head_dim},
                                .rate = work(direction, sequences, row.seq, row.head_dim) / busy});
  }
  return ShapeTable(std::move(points), kStress, true);
}

}  // namespace

AttentionCost::AttentionCost(std::span<const AttentionRow> rows, const Gpu& gpu)
    : tables_{table_of(rows, false), table_of(rows, true)},
      scale_(gpu.attention_scale * power_rate(gpu)),
      sms_(static_cast<double>(gpu.sms)) {}

double AttentionCost::nanoseconds(const AttentionShape& shape) const {
  const std::size_t index = shape.backward ? 1 : 0;
  const Direction& direction = kDirections[index];
  const double sequences = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  const auto seq = static_cast<double>(shape.seq);
  const auto head_dim = static_cast<double>(shape.head_dim);
  const double tiles = sequences * static_cast<double>(ceil_div(shape.seq, kTileQueries));
  const double rate =
      tables_[index].at({sequences, seq, head_dim}) * scale_ * std::min(1.0, tiles / sms_);
  double busy = work(direction, sequences, seq, head_dim) / rate;
  if (shape.documents)
    busy *= direction.masked;
  else if (shape.window > 0 && shape.window < shape.seq)
    busy *= share_of(direction, seq, static_cast<double>(shape.window));
  const double factor = shape.backward && shape.deterministic ? kDeterministicFactor : 1.0;
  return direction.fixed_ns + busy * factor;
}

}  // namespace mfsdp
