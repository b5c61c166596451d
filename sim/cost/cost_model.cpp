#include "sim/cost/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/plan/newton_schulz.hpp"
#include "core/plan/transport.hpp"
#include "sim/cost/bandwidth_share.hpp"
#include "sim/cost/nanos.hpp"
#include "sim/cost/peak.hpp"
#include "sim/hardware/power.hpp"

namespace mfsdp {
namespace {

constexpr double kCopyEfficiency = 1.0;

// PyTorch's kernels reach this share of a device copy's bandwidth, as they read several streams and
// have incomplete last blocks.
constexpr double kContiguousEfficiency = 0.9;

// On strided views, and when tensors are joined inside their rows, such kernels are bound by the
// SMs, which compute the address of each element, and not by memory. An H200's 132 SMs moved 1.3 to
// 2.2 and 0.8 to 1.0 TB/s (docs/lab/2026-11-25-engines.md). The constants are bytes per nanosecond
// of each SM: 0.4 and 0.2 of the H200's copy bandwidth, 4238.4.
constexpr double kStridedOfSm = 1695.36 / 132;
constexpr double kPiecesOfSm = 847.68 / 132;

// The FP8 table has weight gradients in bf16. Those that are added in fp32 take this longer: the mean
// of Llama-3-8B's layers at 8192 tokens, split and fast (docs/lab/2026-11-30-fp8.md).
constexpr double kFp8AddedInFp32 = 1.065;
// The table's program takes this much less time for GEMMs in bf16 than the table of bf16, which is
// PyTorch's (docs/lab/2026-11-30-fp8.md). Steps are predicted from the latter.
constexpr double kFp8TableTime = 1.026;

std::optional<AccessPattern> pattern_of(const Kernel& kernel) {
  const Attribute* pattern = kernel.find_attribute("pattern");
  if (pattern == nullptr) return std::nullopt;
  return static_cast<AccessPattern>(pattern->value.num);
}

/// A GEMM computes in fp32 if all its inputs are fp32; a single fp32 output is an accumulator.
bool computes_in_fp32(const Kernel& kernel) {
  bool reads = false;
  for (const Operand& operand : kernel.operands) {
    if (operand.access != Access::read) continue;
    if (operand.dtype != DType::fp32) return false;
    reads = true;
  }
  return reads;
}

/// Whether the kernel's rows arrived from all ranks: true for kernels of expert-parallel experts
/// that have the attribute of experts or of sending ranks.
bool has_arrived_rows(const Kernel& kernel) {
  return kernel.find_attribute("balanced_rows") != nullptr &&
         (kernel.find_attribute("experts") != nullptr || kernel.find_attribute("peers") != nullptr);
}

std::optional<GroupedCost> own_grouped_of(const CostTables& tables, const GemmCost& gemm,
                                          const Gpu& gpu) {
  if (tables.grouped_warpgroups.empty()) return std::nullopt;
  return GroupedCost(tables.grouped_warpgroups, gemm, gpu.gemm_scale * power_rate(gpu));
}

std::optional<GemmCost> fp8_of(const CostTables& tables, const Gpu& gpu,
                               std::vector<GemmRow> Fp8GemmRows::* rows) {
  if (!tables.gemm_fp8) return std::nullopt;
  return GemmCost((*tables.gemm_fp8).*rows, gpu);
}

std::optional<AttentionCost> warpgroups_of(const CostTables& tables, const Gpu& gpu) {
  if (tables.attention_warpgroups.empty()) return std::nullopt;
  return AttentionCost(tables.attention_warpgroups, gpu, kWarpgroupAttention);
}

std::optional<AttentionCost> masked_of(const CostTables& tables, const Gpu& gpu) {
  if (tables.attention_masked.empty()) return std::nullopt;
  return AttentionCost(tables.attention_masked, gpu, kMaskedAttention);
}

Kernel with_rows(Kernel kernel, std::int64_t rows) {
  for (Attribute& attribute : kernel.attributes)
    if (attribute.name == "balanced_rows") attribute.value = {.num = rows, .den = 1};
  return kernel;
}

bool has_dims(const GemmShape& shape) { return shape.m > 0 && shape.n > 0 && shape.k > 0; }

/// Time of the classes that the power limit slows down.
double limited_part(const StepWork& work) {
  return work.alone[KernelClass::product] + work.alone[KernelClass::attention_forward] +
         work.alone[KernelClass::attention_backward];
}

/// The drag beside GEMMs was measured at their clock.
void slow_down(CollectiveCost& cost, double factor) {
  const auto moving = static_cast<double>((cost.duration - cost.latency).value);
  cost.duration = cost.latency + to_nanos(moving * factor);
  scale_drag(cost.contention, 1 / factor);
}

}  // namespace

CostModel::CostModel(const Cluster& cluster, const CostTables& tables)
    : cluster_(cluster),
      gemm_(tables.gemm, cluster.gpu),
      fp8_split_(fp8_of(tables, cluster.gpu, &Fp8GemmRows::split)),
      fp8_fast_(fp8_of(tables, cluster.gpu, &Fp8GemmRows::fast)),
      block_rates_(tables.fp8_blocks),
      grouped_(tables.grouped, gemm_, cluster.gpu.gemm_scale * power_rate(cluster.gpu)),
      own_grouped_(own_grouped_of(tables, gemm_, cluster.gpu)),
      attention_(tables.attention, cluster.gpu),
      warpgroups_(warpgroups_of(tables, cluster.gpu)),
      masked_(masked_of(tables, cluster.gpu)),
      collectives_(tables.collective, cluster),
      network_(tables.network, collectives_, cluster) {}

double CostModel::memory_ns(double bytes, double efficiency) const {
  const Gpu& gpu = cluster_.gpu;
  return static_cast<double>(gpu.launch.value) + bytes / (gpu.copy_bandwidth() * efficiency);
}

double CostModel::kernel_memory_ns(const Kernel& kernel) const {
  const auto bytes = static_cast<double>(kernel.bytes());
  const std::optional<AccessPattern> pattern = pattern_of(kernel);
  if (!pattern) return memory_ns(bytes, bandwidth_share(kernel));
  constexpr double kThousandth = 1e-3;
  const Attribute* share = kernel.find_attribute("share");
  const double moved = memory_ns(
      bytes, share != nullptr ? share->value.value() * kThousandth : kContiguousEfficiency);
  if (*pattern == AccessPattern::contiguous) return moved;
  const Gpu& gpu = cluster_.gpu;
  const double of_sm = *pattern == AccessPattern::pieces ? kPiecesOfSm : kStridedOfSm;
  const double placed = bytes / (of_sm * static_cast<double>(gpu.sms));
  return std::max(moved, static_cast<double>(gpu.launch.value) + placed);
}

GemmShape CostModel::gemm_shape(const Kernel& kernel) {
  return {.kind = gemm_kind(kernel).value_or(GemmKind::weight_gradient),
          .m = kernel.attribute("m"),
          .n = kernel.attribute("n"),
          .k = kernel.attribute("k")};
}

std::int64_t CostModel::ragged_loss(const Kernel& kernel) const {
  if (!is_gemm(kernel.kind)) return 0;
  const GemmShape shape = gemm_shape(kernel);
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0) return 0;
  return std::llround(gemm_.ragged_loss(shape) * static_cast<double>(kContentionUnit));
}

double CostModel::gemm_ns(const Kernel& kernel) const {
  const bool fp32 = computes_in_fp32(kernel);
  const GemmShape shape = gemm_shape(kernel);
  if (!has_dims(shape)) {
    const Teraflops peak = fp32 ? cluster_.gpu.fp32 : cluster_.gpu.bf16;
    return static_cast<double>(kernel.flops) / (peak * 1e3);
  }
  return gemm_.nanoseconds(shape, fp32);
}

bool CostModel::has_block_ratio(const Kernel& kernel) const {
  return kernel.attribute("block") == kBlockwise && fp8_split_ && block_rates_;
}

double CostModel::fp8_gemm_ns(const Kernel& kernel) const {
  const std::optional<GemmCost>& measured = kernel.attribute("fast") != 0 ? fp8_fast_ : fp8_split_;
  if (!measured || !has_dims(gemm_shape(kernel))) return gemm_ns(kernel) / kFp8Speed;
  return by_fp8_table(*measured, kernel);
}

double CostModel::by_fp8_table(const GemmCost& measured, const Kernel& kernel) {
  const auto gradient = std::ranges::find(kernel.operands, "weight_grad", &Operand::role);
  const bool in_fp32 = (gradient != kernel.operands.end() && gradient->dtype == DType::fp32) ||
                       kernel.attribute("adds_fp32") != 0;  // of other engines
  return measured.nanoseconds(gemm_shape(kernel), false) * kFp8TableTime *
         (in_fp32 ? kFp8AddedInFp32 : 1);
}

/// Blocks of 128 values from the measured ratio; else the share of the peak that bf16 reaches.
double CostModel::block_gemm_ns(const Kernel& kernel) const {
  const GemmShape shape = gemm_shape(kernel);
  if (!has_block_ratio(kernel) || !has_dims(shape))
    return gemm_ns(kernel) * cluster_.gpu.bf16 / peak_of(kernel, cluster_.gpu);
  const bool by_vectors = shape.kind == GemmKind::weight_gradient;
  return by_fp8_table(*fp8_split_, kernel) /
         (by_vectors ? block_rates_->by_vectors : block_rates_->by_tiles);
}

/// Balanced experts: even_grouped_ns() times the measured ratio for GEMMs of experts. Otherwise
/// each expert's rows in full tiles; for weight gradients, each expert's share of a GEMM whose sums
/// are as long as its rows.
double CostModel::grouped_ns(const Kernel& kernel, const ExpertRows* routed) const {
  const std::int64_t experts = kernel.attribute("experts");
  const std::int64_t m = usual_rows(kernel);
  if (experts <= 0 || m <= 0) return 0;
  GroupedProduct product{.kind = GemmKind::forward,
                         .experts = experts,
                         .rows = (m + experts - 1) / experts,
                         .n = kernel.attribute("n"),
                         .k = kernel.attribute("k"),
                         .gradient = kernel.attribute("gradient")};
  if (kernel.kind == KernelKind::grouped_input_gradient) product.kind = GemmKind::input_gradient;
  if (kernel.kind == KernelKind::grouped_weight_gradient) product.kind = GemmKind::weight_gradient;
  const bool fp32 = computes_in_fp32(kernel);
  // Kernels of mfsdp-exec have operands; those of other engines have none.
  const bool own = own_grouped_ && !kernel.operands.empty();
  const double ratio = (own ? *own_grouped_ : grouped_).ratio(product);
  if (routed == nullptr) return ratio * even_grouped_ns(gemm_, product, fp32);
  if (product.kind != GemmKind::weight_gradient) {
    const GemmShape shape{
        .kind = product.kind, .m = routed->tiled(), .n = product.n, .k = product.k};
    return shape.m == 0 ? 0 : ratio * gemm_.nanoseconds(shape, fp32);
  }
  GemmShape shape{
      .kind = product.kind, .m = 1, .n = checked_mul(experts, product.n), .k = product.k};
  double sum = 0;
  for (const std::int64_t of_expert : routed->rows) {
    if (of_expert == 0) continue;
    shape.m = of_expert;
    sum += gemm_.nanoseconds(shape, fp32);
  }
  return ratio * sum / static_cast<double>(experts);
}

/// If values are narrower than keys: the head_dim of a head with equal widths and the same FLOPs.
std::int64_t CostModel::even_head_dim(const Kernel& kernel) {
  const std::int64_t keys = kernel.attribute("head_dim");
  const std::int64_t values = kernel.attribute("value_dim", keys);
  return kernel.kind == KernelKind::attention_backward ? (3 * keys + 2 * values) / 5
                                                       : (keys + values) / 2;
}

const AttentionCost& CostModel::cost_of_attention(const Kernel& kernel) const {
  if (masked_ && has_mask(kernel)) return *masked_;
  return warpgroups_ && warpgroups_take(kernel) ? *warpgroups_ : attention_;
}

double CostModel::attention_ns(const Kernel& kernel) const {
  const AttentionCost& cost = cost_of_attention(kernel);
  const bool own = warpgroups_ && &cost == &*warpgroups_;
  const bool masked = masked_ && &cost == &*masked_;
  const AttentionShape shape{.batch = kernel.attribute("batch") / (masked ? 2 : 1),
                             .seq = kernel.attribute("seq"),
                             .heads = kernel.attribute("heads"),
                             .head_dim = even_head_dim(kernel),
                             .backward = kernel.kind == KernelKind::attention_backward,
                             .deterministic = kernel.attribute("deterministic") != 0,
                             .window = kernel.attribute("window"),
                             .documents = masks_documents(kernel),
                             .capped = caps_scores(kernel),
                             .masks = !own && !kernel.operands.empty(),
                             .parts = std::max<std::int64_t>(kernel.attribute("parts", 1), 1),
                             .steps = steps_of_attention(kernel)};
  if (shape.batch <= 0 || shape.seq <= 0 || shape.heads <= 0 || shape.head_dim <= 0)
    return static_cast<double>(kernel.flops) / (cluster_.gpu.bf16 * 1e3);
  const double factor =
      own ? share_by_groups(kernel) * loss_of_few_tiles(kernel, cluster_.gpu.sms) : 1;
  return cost.nanoseconds(shape) * factor;
}

/// The GEMMs run consecutively, in 16 bits unless the matrix is wider; the kernels between them are
/// priced by bytes. Each of its launches takes as long as another kernel's, the first of which is
/// counted with the bytes.
double CostModel::orthogonal_ns(const Kernel& kernel) const {
  const std::int64_t rows = kernel.attribute("rows");
  const std::int64_t cols = kernel.attribute("cols");
  if (rows <= 0 || cols <= 0) return 0;
  const auto matrix = std::ranges::find(kernel.operands, "matrix", &Operand::role);
  const bool wide = matrix != kernel.operands.end() && size_of(matrix->dtype) > 2;
  double sum = static_cast<double>(newton_schulz_launches(rows, cols) - 1) *
               static_cast<double>(cluster_.gpu.launch.value);
  for (const OrthogonalProduct& p : orthogonal_products(rows, cols)) {
    const GemmShape shape{.kind = GemmKind::forward, .m = p.rows, .n = p.cols, .k = p.inner};
    sum += static_cast<double>(p.times) * gemm_.nanoseconds(shape, wide);
  }
  return sum;
}

Nanos CostModel::kernel(const Kernel& kernel, const ExpertRows* routed) const {
  if (routed != nullptr && has_arrived_rows(kernel))
    return price(with_rows(kernel, routed->total()), routed);
  return price(kernel, routed);
}

Nanos CostModel::price(const Kernel& kernel, const ExpertRows* routed) const {
  const double memory = kernel_memory_ns(kernel);
  const double busy = [&] {
    switch (kernel.kind) {
      case KernelKind::gemm: return gemm_ns(kernel);
      case KernelKind::gemm_blocks: return block_gemm_ns(kernel);
      case KernelKind::gemm_fp8: return fp8_gemm_ns(kernel);
      case KernelKind::grouped_input_gradient:
      case KernelKind::grouped_product:
      case KernelKind::grouped_weight_gradient: return grouped_ns(kernel, routed);
      case KernelKind::attention_forward:
      case KernelKind::attention_backward: return attention_ns(kernel);
      case KernelKind::newton_schulz: return memory + orthogonal_ns(kernel);
      default: return 0.0;
    }
  }();
  const KernelClass which = class_of(kernel.kind);
  double factor = (is_limited(busy) ? mix_ : short_)[which];
  if (which == KernelClass::attention_backward) factor = std::max(factor, mix_[which]);
  if (kernel.kind == KernelKind::gemm_fp8) factor = mix_.fp8_product;
  const double scaled = std::max(memory, busy * factor) * kernel_factor_;
  const double peak = peak_of(kernel, cluster_.gpu);
  const double least =  // the peak is that of the highest clock
      clock_ > 1 ? static_cast<double>(kernel.flops) / (peak * 1e3) : 0;
  return to_nanos(std::max(scaled, std::min(least, busy * kernel_factor_)));
}

/// Nanoseconds of a step's kernels on compute streams, by class. With `limited_alone`, only GEMMs
/// and attention that reach the power limit count.
StepWork CostModel::time_of_work(const Program& program, const Plan& plan, const RoutedRows& routed,
                                 const EqualKernels& equal, bool limited_alone) const {
  std::set<StreamId> compute;
  for (const Stream& stream : program.streams)
    if (stream.role == StreamRole::compute) compute.insert(stream.id);
  CostModel unscaled = *this;  // without an anchor's factor
  unscaled.kernel_factor_ = 1;
  StepWork work;
  std::vector<std::optional<double>> known(equal.count());
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      const auto* launched = std::get_if<Kernel>(&op.body);
      if (launched == nullptr || !compute.contains(op.stream)) continue;
      const KernelClass which = class_of(launched->kind);
      std::optional<double>& price = known[equal.of(op)];
      if (!price)
        price = static_cast<double>(unscaled.kernel(*launched, rows_of(routed, op)).value);
      const double ns = *price;
      const bool in_fp8 = launched->kind == KernelKind::gemm_fp8;
      if (limited_alone && which != KernelClass::memory && !in_fp8 && !is_limited(ns)) continue;
      const double in_step = ns * static_cast<double>(segment.repeat);
      work.alone[which] += in_step;
      if (in_fp8) work.fp8 += in_step;
    }
  return work;
}

/// Energy of a step's collectives, as nanoseconds at the power limit.
double CostModel::drawn_by_collectives(const Program& program, const Plan& plan) const {
  double drawn = 0;
  PeerPaths paths(program, cluster_);
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      const auto* launched = std::get_if<Collective>(&op.body);
      if (launched == nullptr) continue;
      const auto communicator =
          std::ranges::find(program.communicators, launched->communicator, &Communicator::id);
      if (communicator == program.communicators.end()) continue;  // simulate() reports the error
      const CollectiveCost cost = collective(*launched, *communicator, paths);
      drawn += share(cost.contention.draw) * static_cast<double>(cost.duration.value) *
               static_cast<double>(segment.repeat);
    }
  return drawn;
}

CostModel CostModel::mixed(const Program& program, const Plan& plan, const RoutedRows& routed,
                           const EqualKernels& equal) const {
  CostModel model = *this;
  const StepWork limited = time_of_work(program, plan, routed, equal, true);
  model.mix_ = power_mix(limited, drawn_by_collectives(program, plan));
  model.is_limited_ = limited_part(limited) > 0;
  model.limited_ns_ = limited_part(model.time_of_work(program, plan, routed, equal, false));
  return model;
}

CostModel CostModel::rested(Nanos idle) const {
  CostModel model = *this;
  if (!cluster_.gpu.power) return model;
  model.clock_ = idle_clock(limited_ns_, static_cast<double>(idle.value) / kernel_factor_,
                            cluster_.gpu.power->own / cluster_.gpu.power->tables);
  model.mix_ = faster(mix_, model.clock_);
  model.short_ = faster(short_, model.clock_);
  return model;
}

CollectiveCost CostModel::collective(CollectiveKind kind, Bytes bytes,
                                     const CommunicatorShape& shape,
                                     const CollectiveWay& way) const {
  return at_clock(collectives_.cost(kind, bytes, shape, way),
                  network_.at(kind, static_cast<double>(bytes.value), shape));
}

CollectiveCost CostModel::at_clock(CollectiveCost cost, double network_ratio) const {
  const bool by_sms = cost.link == LinkClass::node && cluster_.gpu.link == LinkKind::nvlink &&
                      traits_of(cost.by).holds_sms;
  if (is_limited_ && by_sms) slow_down(cost, collective_slowdown(mix_));
  double factor = collective_factor_;
  if (cost.link == LinkClass::network) factor *= network_ratio;
  if (factor == 1) return cost;
  cost.duration = to_nanos(static_cast<double>(cost.duration.value) * factor);
  cost.latency = to_nanos(static_cast<double>(cost.latency.value) * factor);
  slow_bytes(cost.contention, factor);
  return cost;
}

CollectiveCost CostModel::collective(const Collective& op, const Communicator& communicator,
                                     PeerPaths& paths) const {
  const CollectiveWay way{.transport = communicator.transport, .dtype = op.dtype};
  if (op.peer)
    return at_clock(collectives_.message(bytes_of(op.count, op.dtype), paths.of(*op.peer), way), 1);
  if (op.kind == CollectiveKind::shift && communicator.size > 1)
    return shift(op, communicator, paths, way);
  return collective(op.kind, full_bytes(op, communicator.size),
                    shape_of(communicator, paths.program().config.mesh), way);
}

/// A message to the next rank, as long as the longest of all: the last rank's goes back to the
/// first.
CollectiveCost CostModel::shift(const Collective& op, const Communicator& communicator,
                                PeerPaths& paths, const CollectiveWay& way) const {
  const Bytes bytes = bytes_of(op.count, op.dtype);
  CollectiveCost longest;
  for (const Axis axis : communicator.axes) {
    const std::int64_t ranks = paths.program().config.mesh.size(axis);
    if (ranks == 1) continue;
    for (const std::int64_t step : {std::int64_t{1}, 1 - ranks}) {
      const CollectiveCost cost =
          collectives_.message(bytes, paths.of({.axis = axis, .step = step}), way);
      if (longest.duration < cost.duration) longest = cost;
    }
  }
  return at_clock(longest, 1);
}

CostModel CostModel::with_library_attention() const {
  CostModel model = *this;
  model.warpgroups_.reset();
  return model;
}

CostModel CostModel::scaled(double kernels, double collectives) const {
  CostModel model = *this;
  model.kernel_factor_ *= kernels;
  model.collective_factor_ *= collectives;
  return model;
}

Nanos CostModel::copy(CopyKind kind, Bytes bytes) const {
  const auto size = static_cast<double>(bytes.value);
  if (kind == CopyKind::d2d) return to_nanos(memory_ns(2 * size, kCopyEfficiency));
  return to_nanos(static_cast<double>(cluster_.gpu.launch.value) +
                  size / cluster_.gpu.host_bandwidth);
}

Result<CostModel> make_cost_model(const Cluster& cluster) {
  MFSDP_LET(tables, load_cost_tables(cluster.gpu.tables));
  return CostModel(cluster, tables);
}

CommunicatorShape shape_of(const Communicator& communicator, const Mesh& mesh) {
  std::vector<RankSets> sets;
  for (const Axis axis : communicator.axes)
    if (mesh.size(axis) > 1)
      sets.push_back({.count = mesh.size(axis), .spacing = mesh.stride(axis)});
  std::ranges::sort(sets, {}, &RankSets::spacing);
  std::vector<RankSets> apart;  // axes whose ranks follow each other evenly are one set
  for (const RankSets& one : sets) {
    if (!apart.empty() && apart.back().spacing * apart.back().count == one.spacing)
      apart.back().count *= one.count;
    else
      apart.push_back(one);
  }
  CommunicatorShape shape{.ranks = communicator.size, .spacing = mesh.world_size()};
  if (apart.empty()) return shape;
  shape.spacing = apart.front().spacing;
  shape.sets.assign(apart.begin() + 1, apart.end());
  return shape;
}

Bytes full_bytes(const Collective& collective, std::int64_t ranks) {
  const Bytes counted = bytes_of(collective.count, collective.dtype);
  return collective.kind == CollectiveKind::all_reduce ? counted : counted * ranks;
}

}  // namespace mfsdp
