// Builds the plan of an engine's step: its allocations, launches and frees, in the host's order.
// The plan has the same form as mfsdp's, so that it is simulated, traced and explained alike.
//
//   acquire, release   an allocation and its free, on the allocator's stream for it. Addresses in
//                      pools have no meaning: the allocator model assigns them (engine_memory.hpp)
//   kernel             by its kind and, where it is bound by memory, the bytes that it moves
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"
#include "sim/engines/engine_plan.hpp"
#include "sim/engines/host_work.hpp"

namespace mfsdp {

/// An allocation, by its position in the program's buffers.
struct Tensor {
  std::uint32_t buffer = 0;
};

/// A record, by its event and op.
struct Mark {
  EventId event;
  OpId record;
};

/// L2 cache of the H200, on which most runs were recorded.
inline constexpr std::int64_t kL2OfH200 = std::int64_t{60} << 20;

/// Position of a microbatch in a step.
struct Turn {
  bool first = true;
  bool last = true;
};

/// Bytes that a kernel moves, and its access pattern. A strided view is read in shorter pieces than
/// a contiguous tensor; tensors that are joined inside their rows have the shortest pieces.
struct Traffic {
  Traffic(std::int64_t its_bytes) : bytes(its_bytes) {}  // NOLINT(google-explicit-constructor)
  Traffic(std::int64_t its_bytes, AccessPattern its_pattern)
      : bytes(its_bytes), pattern(its_pattern) {}
  /// A kernel that was measured: thousandths of a copy's bandwidth.
  [[nodiscard]] static Traffic at_share(std::int64_t its_bytes, std::int64_t its_share) {
    Traffic traffic(its_bytes);
    traffic.share = its_share;
    return traffic;
  }

  std::int64_t bytes = 0;
  AccessPattern pattern = AccessPattern::contiguous;
  std::int64_t share = 0;  ///< 0: by the pattern
};

/// Ranks that share a buffer of weights: all, or, with expert parallelism, those with the same
/// experts. Ranks of one tensor share a copy of the weights, those of one context a sequence;
/// those of `experts` together hold a block's experts, those of `outer` are replicas,
/// those of `model` together hold the model.
enum class RankGroup { all, same_experts, tensor, context, experts, outer, model };

/// Rows of a rank's balanced experts, and the matrix of each expert.
struct GroupedShape {
  std::int64_t experts = 1;
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  bool one_kernel = false;  ///< for all experts; else one for each
};

/// Attention of one layer, if it differs from the model's usual attention.
struct AttentionKind {
  std::int64_t window = 0;     ///< tokens that a query sees; 0: all up to its own
  std::int64_t value_dim = 0;  ///< columns of a value; 0: as many as a key has
  /// All pairs of tokens are computed, as with a mask that is a tensor: twice a causal one.
  bool whole = false;
  // 0: as the configuration has them; ranks of tp divide the heads.
  std::int64_t heads = 0;
  std::int64_t tokens = 0;  ///< of a sequence
  std::int64_t batch = 0;   ///< sequences
};

/// A send or a receive of a pipeline's stage, of `elements` in bf16. Activations go to the next stage,
/// gradients to the previous one; the first stage is the last one's next.
struct StageMessage {
  bool sends = true;
  bool of_gradients = false;
  std::int64_t elements = 0;
};

/// m tokens, n outputs and k inputs.
struct GemmSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// How a GEMM in FP8 sums.
struct Fp8Sums {
  bool fast = false;       ///< fewer bits while a tile is computed
  bool adds_fp32 = false;  ///< the result is added to numbers in fp32
};

/// Owner of cuBLAS's workspace: PyTorch keeps one for each calling thread.
enum class GemmWorkspace { pytorchs, callers };

class StepBuilder {
 public:
  /// Creates streams for compute, gathers, reductions and, if it exists, the outer axis; and
  /// communicators of the ranks that share a buffer of weights, of the outer axis, and of those that
  /// share a copy of the weights or a sequence. `stage`: of a pipeline.
  StepBuilder(const PlanConfig& config, const Meta& meta, std::int64_t stage = 0);

  /// Adds `outer`, in a step without an outer axis, for other work; its memory has this name.
  void add_spare_stream(std::string_view name) { add_stream(StreamRole::outer, name); }

  // Segment of the following ops.
  void begin_segment(std::string_view name, std::int64_t repeat, std::int64_t microbatches);

  // Passes, for microbatches that overlap: ops are written once, and segments call them.
  /// Following ops belong to a pass. Passes with the same `work`, if that is not empty, allocate the
  /// same tensors in the same order: they are variants of the same work.
  PassId begin_pass(std::string_view name, std::string_view work = {});
  /// Following ops work on the microbatch `lag` before that of their pass.
  void set_lag(std::int64_t lag) { lag_ = lag; }
  /// Calls the pass in the last segment, for the microbatch `lag` before the newest one.
  void call(PassId pass, std::int64_t lag);
  /// Tensors that one pass allocates and another frees have that number of instances, in rotation by
  /// microbatch.
  void set_instances(std::int64_t instances) { instances_ = instances; }

  /// Messages of either kind get communicators of their own, one for each pair of neighbours, as
  /// PyTorch makes them. Launches of one communicator run in order.
  void separate_messages();
  /// An event that several ops record: a wait is for the latest one.
  [[nodiscard]] EventId add_event(std::string_view name);
  void wait_for(EventId event, bool host_waits = false);
  /// One launch of messages, after what compute has; records `ended`. Those that are launched alone
  /// have a stream for each kind and direction.
  void exchange_messages(const std::vector<StageMessage>& messages, EventId ended);
  /// Writes a segment for the first microbatch, one for the following ones, if any, and one for the
  /// optimizer, each with its function. The last microbatch has its own segment if it differs from
  /// those before.
  void write_segments(const std::function<void(Turn)>& microbatch,
                      const std::function<void()>& optimizer, bool last_differs = false);
  [[nodiscard]] UnitId add_unit(std::string_view name, UnitKind kind);
  void at(UnitId unit, Phase phase);
  void set_phase(Phase phase) { phase_ = phase; }
  [[nodiscard]] Phase phase() const { return phase_; }

  // Memory. Names of ops and buffers are the unit's name with the given one.
  /// Allocates for the entire run, when the host first reaches this call.
  Tensor keep(std::string_view name, std::int64_t bytes, Category category,
              StreamRole stream = StreamRole::compute);
  /// Allocates the first time only: for setup before all steps, or by a function's first call.
  [[nodiscard]] Tensor once(std::string_view name, std::int64_t bytes, Category category,
                            StreamRole stream = StreamRole::compute);
  void free_once(Tensor tensor);
  [[nodiscard]] Tensor allocate(std::string_view name, std::int64_t bytes, Category category,
                                StreamRole stream = StreamRole::compute);
  /// Live at the beginning and the end of a step; freed and allocated again by allocate_again() in
  /// between.
  [[nodiscard]] Tensor rest(std::string_view name, std::int64_t bytes, Category category,
                            StreamRole stream = StreamRole::compute);
  void allocate_again(Tensor rests);
  /// A tensor that allocate_again() allocates, in passes.
  [[nodiscard]] Tensor declare(std::string_view name, std::int64_t bytes, Category category) {
    return add_buffer(name, bytes, category, StreamRole::compute);
  }
  /// The same for a buffer that the first step allocates, without one to free.
  [[nodiscard]] Tensor rest_from_first(std::string_view name, std::int64_t bytes, Category category,
                                       StreamRole stream = StreamRole::compute);
  /// allocate_again() allocates it in each step except the first, in which it is live already.
  [[nodiscard]] Tensor begin_with(std::string_view name, std::int64_t bytes, Category category,
                                  StreamRole stream = StreamRole::compute);
  /// A new buffer in place of a kept one, on its stream. free() of the result frees the old one,
  /// and the new one is kept.
  [[nodiscard]] Tensor renew(Tensor kept);
  /// Kept from the first step on; its first renewal allocates it.
  [[nodiscard]] Tensor keep_by_renewal(std::string_view name, std::int64_t bytes, Category category,
                                       StreamRole stream = StreamRole::compute);
  void free(Tensor tensor);
  /// Frees memory that was last used on `stream`. If it was allocated on another one, it stays in use
  /// until the GPU has passed that point (record_stream).
  void free_after(Tensor tensor, StreamRole stream);
  void free(std::initializer_list<Tensor> tensors);
  /// Allocates and frees at once: scratch of the next op.
  void scratch(std::string_view name, std::int64_t bytes);
  [[nodiscard]] std::int64_t bytes_of(Tensor tensor) const;

  // Kernels and collectives.
  void memory_bound(KernelKind kind, std::string_view name, const Traffic& traffic,
                    StreamRole stream = StreamRole::compute);
  /// A GEMM of m tokens, n outputs and k inputs (core/plan/kernel_spec.hpp).
  void gemm(GemmKind kind, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
            GemmWorkspace workspace = GemmWorkspace::pytorchs);
  /// The same of operands in FP8.
  void gemm_fp8(GemmKind kind, std::string_view name, const GemmSize& size, const Fp8Sums& sums,
                GemmWorkspace workspace = GemmWorkspace::pytorchs);
  /// A GEMM of each expert's rows with its matrix, run consecutively. `gradient`: bytes of an
  /// element to which weight gradients are added; 0: they are written.
  void grouped_gemm(GemmKind kind, std::string_view name, const GroupedShape& shape,
                    std::int64_t gradient = 0);
  /// Causal attention of the configuration's shape.
  void attention(KernelKind kind, const AttentionKind& other = {});
  /// `elements` as NCCL counts them, on the stream of that kind of collective.
  void collective(CollectiveKind kind, std::string_view name, std::int64_t elements, DType dtype,
                  RankGroup group = RankGroup::all);
  /// The same on another stream.
  void collective_on(StreamRole stream, CollectiveKind kind, std::string_view name,
                     std::int64_t elements, DType dtype, RankGroup group);
  /// The same on the stream of collectives beside compute, after what compute has: where it ends.
  [[nodiscard]] Mark collective_beside(CollectiveKind kind, std::string_view name,
                                       std::int64_t elements, DType dtype, RankGroup group);
  /// An all-reduce of `elements` on the stream of reductions, which follows `stream` and holds it up.
  void all_reduce_between(StreamRole stream, std::string_view name, std::int64_t elements,
                          DType dtype);
  /// Among the ranks that together hold a block's experts, on the compute stream, whose kernels
  /// wait for it. An all-to-all has `elements` for each pair of ranks, a gather `elements` from
  /// each rank.
  void exchange(CollectiveKind kind, std::string_view name, std::int64_t elements, DType dtype);

  /// All-reduce along the outer axis.
  void reduce_outer(std::string_view name, std::int64_t elements, DType dtype, StreamRole stream);

  /// Adds elements of a full copy of the weights that belong to no parameter.
  void add_padding(std::int64_t elements) { padding_ += elements; }

  /// Kernels leave SMs to collectives, which begin beside them.
  void leave_sms() { leaves_sms_ = true; }
  /// Adds memory outside the allocator.
  void add_outside(std::int64_t bytes) { outside_ += bytes; }

  [[nodiscard]] Mark record(StreamRole stream);
  /// `distance` 0: the mark in this run of the segment, or in the last run of another segment.
  void wait(StreamRole stream, const Mark& mark, std::int64_t distance = 0);

  /// Size of the L2 cache, which Inductor's benchmarks overwrite.
  void set_l2_bytes(std::int64_t bytes) { l2_bytes_ = bytes; }
  [[nodiscard]] std::int64_t l2_bytes() const { return l2_bytes_; }

  /// Until further notice, keep(), once() and free_once() are for the second step instead of the
  /// first.
  void keep_in_second_step(bool second) { second_step_ = second; }

  /// Before the first step: releases cached free segments to the device.
  void empty_cache();

  /// Called before and after each kernel that is added from now on, as hooks of modules are. Kernels
  /// that it adds itself have no such calls.
  using KernelHook = std::function<void(const Kernel&, bool is_before)>;
  void around_kernels(KernelHook hook) { around_kernels_ = std::move(hook); }

  // Host work. The host issues the ops in order.
  void launch_by(Launcher launcher) { launcher_ = launcher; }
  /// Work in addition to launches, before the next op.
  void host_work(HostLaunches work) { host_work_ += work; }
  /// The host waits for the mark.
  void host_wait(const Mark& mark);

  /// Joins the segments by stating the buffers that are live between them.
  [[nodiscard]] EnginePlan finish();

 private:
  void add_stream(StreamRole stream, std::string_view name);
  [[nodiscard]] CommunicatorId communicator_of(RankGroup group) const;
  Op& add(std::string_view name, StreamRole stream, OpBody body);
  void add_kernel(std::string_view name, StreamRole stream, Kernel kernel);
  Op& add_named(std::string name, StreamId stream, OpBody body);
  [[nodiscard]] std::vector<Op>& ops() {
    return in_pass_ ? passes_.back().ops : segments_.back().ops;
  }
  Tensor made_before(std::int64_t bytes);
  void add_instances();
  [[nodiscard]] HostLaunches work_of(const OpBody& body) const;
  [[nodiscard]] std::string full_name(std::string_view name) const;
  Tensor add_buffer(std::string_view name, std::int64_t bytes, Category category,
                    StreamRole stream);
  KeptFrom& add_kept(BufferId buffer);
  void take_workspace();

  Program program_;
  CommunicatorId shards_;
  CommunicatorId outer_;
  CommunicatorId same_experts_;
  CommunicatorId experts_;
  CommunicatorId tensor_;
  CommunicatorId context_;
  CommunicatorId model_;
  std::array<CommunicatorId, 6> messages_;  ///< by kind and pair of neighbours
  std::vector<KeptFrom> kept_;
  std::vector<Renewal> renewals_;
  std::vector<BufferId> resting_;
  std::vector<UseAfterFree> in_use_;
  std::vector<HostLaunches> host_;  ///< by op
  HostLaunches host_work_ = 0;      ///< before the next op
  Launcher launcher_ = Launcher::operators;
  std::vector<Segment> segments_;
  std::vector<Pass> passes_;
  bool in_pass_ = false;
  std::int64_t lag_ = 0;
  std::map<std::string, std::vector<Tensor>, std::less<>> tensors_of_work_;
  std::vector<Tensor>* made_by_work_ = nullptr;  ///< of the pass that is written
  std::optional<std::size_t> next_made_;         ///< where that work was written before
  std::int64_t instances_ = 1;
  std::size_t next_op_ = 0;
  std::int64_t padding_ = 0;
  std::int64_t outside_ = 0;
  bool leaves_sms_ = false;
  std::int64_t l2_bytes_ = kL2OfH200;
  std::optional<UnitId> unit_;
  Phase phase_ = Phase::forward;
  bool second_step_ = false;
  KernelHook around_kernels_{};
  bool in_hook_ = false;
  bool forward_workspace_ = false;
  bool backward_workspace_ = false;
};

}  // namespace mfsdp
