// The price of every op of a plan on a cluster.
//
//   GEMMs and attention     measured tables, by shape          gemm.hpp, attention.hpp
//   all other kernels       memory: bytes / sustained bandwidth
//   collectives             measured inside a domain, NCCL's model between     collective.hpp
//                           times measured / modelled, where the network was measured
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "core/plan/plan.hpp"
#include "sim/cost/attention.hpp"
#include "sim/cost/collective.hpp"
#include "sim/cost/equal_kernels.hpp"
#include "sim/cost/expert_rows.hpp"
#include "sim/cost/gemm.hpp"
#include "sim/cost/grouped.hpp"
#include "sim/cost/network_ratios.hpp"
#include "sim/cost/peer_paths.hpp"
#include "sim/cost/power_mix.hpp"
#include "sim/cost/tables.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

/// Changes whenever a price changes for any plan.
inline constexpr std::string_view kCostModelVersion = "20";

class CostModel {
 public:
  CostModel(const Cluster& cluster, const CostTables& tables);

  /// Time of a kernel when it runs alone, launch gap included. In a plain model the GPU runs only
  /// kernels of that kind; in a mixed() model it runs the kernels of a plan. Attributes read: gemm
  /// m, n, k, kind (GemmKind); attention batch, seq, heads, head_dim, deterministic, and those that
  /// warpgroups_take() reads. A kernel without the attributes of its kind is priced by its bytes,
  /// and by its FLOPs at the peak.
  /// `routed`: rows of a rank's experts; null: balanced.
  /// Throws OverflowError if a duration exceeds 2^62 ns.
  [[nodiscard]] Nanos kernel(const Kernel& kernel, const ExpertRows* routed = nullptr) const;

  /// GemmCost::ragged_loss in units of 1 / kContentionUnit; 0 for other kernels.
  [[nodiscard]] std::int64_t ragged_loss(const Kernel& kernel) const;

  /// The model at the clock at which a GPU runs the kernels of this plan's compute streams.
  /// `equal`: of plans with this one; by unit if rows are routed.
  [[nodiscard]] CostModel mixed(const Program& program, const Plan& plan, const RoutedRows& routed,
                                const EqualKernels& equal) const;
  [[nodiscard]] CostModel mixed(const Program& program, const Plan& plan) const {
    const Plan* const only = &plan;
    return mixed(program, plan, {}, EqualKernels(std::span(&only, 1), false));
  }

  /// For a mixed() model: if the GPU computes nothing for `idle` in a step of its plan, GEMMs and
  /// attention of any length are faster, up to the GPU's peak. Unchanged for GPUs without a known
  /// power limit.
  [[nodiscard]] CostModel rested(Nanos idle) const;
  /// idle_clock() of a rested model; else 1.
  [[nodiscard]] double clock() const { return clock_; }

  /// CollectiveModel::cost times the measured ratio between nodes (network_ratios.hpp) and, in a
  /// mixed() model, times collective_slowdown() on NVLink. `full_bytes`: bytes of the gathered
  /// buffer.
  [[nodiscard]] CollectiveCost collective(CollectiveKind kind, Bytes full_bytes,
                                          const CommunicatorShape& shape,
                                          const CollectiveWay& way = {}) const;
  /// The same for an op of the program of `paths`. A send or recv: CollectiveModel::message(). A
  /// shift: the longest of its messages.
  [[nodiscard]] CollectiveCost collective(const Collective& op, const Communicator& communicator,
                                          PeerPaths& paths) const;

  /// A copy of `bytes`: launch + 2 bytes / copy bandwidth on the device, launch + bytes / host
  /// bandwidth to and from the host.
  [[nodiscard]] Nanos copy(CopyKind kind, Bytes bytes) const;

  /// The model with every kernel, and every collective's duration and latency, multiplied by a
  /// factor that an anchor found. Copies are not scaled. Factors multiply with earlier ones.
  [[nodiscard]] CostModel scaled(double kernels, double collectives) const;

  /// The model with all attention by cuDNN: for runs of mfsdp-exec before it had its own kernels,
  /// or with these switched off.
  [[nodiscard]] CostModel with_library_attention() const;
  /// Whether calls that mfsdp-exec's own attention kernels compute are priced by their table.
  [[nodiscard]] bool has_warpgroups() const { return warpgroups_.has_value(); }

  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  /// "measured" if the tables were measured on this GPU, else "datasheet".
  [[nodiscard]] const std::string& calibration() const { return cluster_.gpu.calibration; }
  /// Whether prices of that collective between domains come from measurements of this network.
  [[nodiscard]] bool network_measures(CollectiveKind kind) const { return network_.measures(kind); }
  /// GEMMs and attention of a plan whose dtype, heads or masks no row of the GPU's own tables has,
  /// each with what its price is from: "attention of heads of 192 (priced from heads of 128 and
  /// 256)". Sorted. Nothing about a kind of kernel that was not measured on this GPU at all.
  [[nodiscard]] std::vector<std::string> unmeasured(const Plan& plan) const;
  [[nodiscard]] std::string_view version() const { return kCostModelVersion; }

 private:
  [[nodiscard]] CollectiveCost shift(const Collective& op, const Communicator& communicator,
                                     PeerPaths& paths, const CollectiveWay& way) const;
  [[nodiscard]] Nanos price(const Kernel& kernel, const ExpertRows* routed) const;
  /// A collective's price by the collective model, at the clock and scale of this one.
  [[nodiscard]] CollectiveCost at_clock(CollectiveCost cost, double network_ratio) const;
  [[nodiscard]] StepWork time_of_work(const Program& program, const Plan& plan,
                                      const RoutedRows& routed, const EqualKernels& equal,
                                      bool limited_alone) const;
  [[nodiscard]] double drawn_by_collectives(const Program& program, const Plan& plan) const;
  [[nodiscard]] static GemmShape gemm_shape(const Kernel& kernel);
  [[nodiscard]] double gemm_ns(const Kernel& kernel) const;
  [[nodiscard]] double fp8_gemm_ns(const Kernel& kernel) const;
  /// An FP8 GEMM by a table, which has weight gradients in bf16.
  [[nodiscard]] static double by_fp8_table(const GemmCost& measured, const Kernel& kernel);
  /// Whether a GEMM with scales of blocks is priced by its measured ratio to scales of tensors.
  [[nodiscard]] bool has_block_ratio(const Kernel& kernel) const;
  /// A GEMM of codes with scales of blocks.
  [[nodiscard]] double block_gemm_ns(const Kernel& kernel) const;
  [[nodiscard]] double grouped_ns(const Kernel& kernel, const ExpertRows* routed) const;
  [[nodiscard]] const AttentionCost& cost_of_attention(const Kernel& kernel) const;
  [[nodiscard]] double attention_ns(const Kernel& kernel) const;
  void add_unmeasured_attention(const Kernel& kernel, std::set<std::string>& kinds) const;
  [[nodiscard]] static std::int64_t even_head_dim(const Kernel& kernel);
  [[nodiscard]] double orthogonal_ns(const Kernel& kernel) const;
  [[nodiscard]] double memory_ns(double bytes, double efficiency) const;
  [[nodiscard]] double kernel_memory_ns(const Kernel& kernel) const;

  Cluster cluster_;
  GemmCost gemm_;
  std::optional<GemmCost> fp8_split_;      ///< GEMMs of FP8 operands; none: nothing was measured
  std::optional<GemmCost> fp8_fast_;       ///< likewise
  std::optional<BlockRates> block_rates_;  ///< relative to fp8_split_; likewise
  GroupedCost grouped_;
  std::optional<GroupedCost> own_grouped_;  ///< by mfsdp-exec's own kernels
  AttentionCost attention_;
  std::optional<AttentionCost> warpgroups_;  ///< of the calls that mfsdp-exec's own kernels take
  std::optional<AttentionCost> masked_;      ///< of PyTorch's calls with a mask
  CollectiveModel collectives_;
  NetworkRatios network_;
  ClassFactors mix_;         ///< for GEMMs and attention that are limited
  ClassFactors short_;       ///< for the others
  double limited_ns_ = 0;    ///< GEMMs and attention of a step; set by mixed()
  bool is_limited_ = false;  ///< whether some of them are; likewise
  double clock_ = 1;
  double kernel_factor_ = 1;
  double collective_factor_ = 1;
};

/// Loads the tables of the cluster's GPU. Errors name the file.
[[nodiscard]] Result<CostModel> make_cost_model(const Cluster& cluster);

/// Placement of a communicator's ranks: ranks along dp_shard are neighbours; ranks along dp_outer
/// alone are dp_shard apart.
[[nodiscard]] CommunicatorShape shape_of(const Communicator& communicator, const Mesh& mesh);

/// Converts elements as NCCL counts them, for a communicator of `ranks`, to bytes of the full
/// buffer.
[[nodiscard]] Bytes full_bytes(const Collective& collective, std::int64_t ranks);

}  // namespace mfsdp
