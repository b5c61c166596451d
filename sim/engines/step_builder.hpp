// Writes down what an engine's host does in a step: what it allocates, launches and frees, in its
// order. The result is a plan as ours are, so that it is simulated, traced and explained like one.
//
//   acquire, release   an allocation and its free, on the stream that the allocator keeps it for.
//                      Places in pools mean nothing: the allocator decides (engine_memory.hpp)
//   kernel             by its kind and, where it is bound by memory, the bytes that it moves
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
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

/// Of the H200 that most of the recordings are of.
inline constexpr std::int64_t kL2OfH200 = std::int64_t{60} << 20;

/// Which microbatch of a step.
struct Turn {
  bool first = true;
  bool last = true;
};

/// What a kernel moves, and how well: a view of other rows is read in shorter pieces than a tensor
/// of its own, and tensors that are joined inside their rows in the shortest.
struct Traffic {
  Traffic(std::int64_t its_bytes) : bytes(its_bytes) {}  // NOLINT(google-explicit-constructor)
  Traffic(std::int64_t its_bytes, AccessPattern its_pattern)
      : bytes(its_bytes), pattern(its_pattern) {}

  std::int64_t bytes = 0;
  AccessPattern pattern = AccessPattern::contiguous;
};

/// Ranks that share a buffer of weights: all, or those that have the same experts, where experts
/// are dealt out.
enum class RankGroup { all, same_experts };

/// Rows that experts of a rank have in balance, and each expert's matrix.
struct GroupedShape {
  std::int64_t experts = 1;
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

/// Attention of one layer, where it is not the model's of all heads and columns alike.
struct AttentionKind {
  std::int64_t window = 0;     ///< tokens that a query sees; 0: all up to its own
  std::int64_t value_dim = 0;  ///< columns of a value; 0: as many as a key has
};

/// Where cuBLAS has its workspace from: PyTorch keeps one for each thread that calls it.
enum class GemmWorkspace { pytorchs, callers };

class StepBuilder {
 public:
  /// Streams of compute, gathers and reductions, and of the outer axis where there is one; a
  /// communicator of the ranks that share a copy of the weights, and one of the outer axis.
  StepBuilder(const PlanConfig& config, const Meta& meta);

  // Where the following ops stand.
  void begin_segment(std::string_view name, std::int64_t repeat, std::int64_t microbatches);
  /// One for the first microbatch, one for those after it, where there are any, and the
  /// optimizer's, each written by its function; another one for the last microbatch, where that
  /// differs from those before it.
  void write_segments(const std::function<void(Turn)>& microbatch,
                      const std::function<void()>& optimizer, bool last_differs = false);
  [[nodiscard]] UnitId add_unit(std::string_view name, UnitKind kind);
  void at(UnitId unit, Phase phase);
  void set_phase(Phase phase) { phase_ = phase; }
  [[nodiscard]] Phase phase() const { return phase_; }

  // Memory. Names of ops and buffers are their unit's with what is given here.
  /// For the whole run, from the first time that the host comes here.
  Tensor keep(std::string_view name, std::int64_t bytes, Category category,
              StreamRole stream = StreamRole::compute);
  /// The first time only: what is set up before all steps, or by a first call.
  [[nodiscard]] Tensor once(std::string_view name, std::int64_t bytes, Category category,
                            StreamRole stream = StreamRole::compute);
  void free_once(Tensor tensor);
  [[nodiscard]] Tensor allocate(std::string_view name, std::int64_t bytes, Category category,
                                StreamRole stream = StreamRole::compute);
  /// There where a step begins and where it ends, made anew by allocate_again() after it was freed.
  [[nodiscard]] Tensor rest(std::string_view name, std::int64_t bytes, Category category,
                            StreamRole stream = StreamRole::compute);
  void allocate_again(Tensor rests);
  /// The same of what the first step makes, which has none to free.
  [[nodiscard]] Tensor rest_from_first(std::string_view name, std::int64_t bytes, Category category,
                                       StreamRole stream = StreamRole::compute);
  /// Made by allocate_again() in each step but the first, where it is there already.
  [[nodiscard]] Tensor begin_with(std::string_view name, std::int64_t bytes, Category category,
                                  StreamRole stream = StreamRole::compute);
  /// Another in the place of a kept one, on its stream. Freeing it frees the old one, so that the
  /// new one is kept.
  [[nodiscard]] Tensor renew(Tensor kept);
  /// What is kept from the first step on, and made there by the first of its renewals.
  [[nodiscard]] Tensor keep_by_renewal(std::string_view name, std::int64_t bytes, Category category,
                                       StreamRole stream = StreamRole::compute);
  void free(Tensor tensor);
  void free(std::initializer_list<Tensor> tensors);
  /// Allocated, and freed at once: scratch of the next op.
  void scratch(std::string_view name, std::int64_t bytes);
  [[nodiscard]] std::int64_t bytes_of(Tensor tensor) const;

  // Work.
  void memory_bound(KernelKind kind, std::string_view name, const Traffic& traffic,
                    StreamRole stream = StreamRole::compute);
  /// Of m tokens, n outputs and k inputs (core/plan/kernel_spec.hpp).
  void gemm(GemmKind kind, std::string_view name, std::int64_t m, std::int64_t n, std::int64_t k,
            GemmWorkspace workspace = GemmWorkspace::pytorchs);
  /// A product of each expert's rows with its matrix, one after the other. `gradient`: bytes of an
  /// element that weight gradients are added to.
  void grouped_gemm(GemmKind kind, std::string_view name, const GroupedShape& shape,
                    std::int64_t gradient = 0);
  /// Causal, of the configuration's shape.
  void attention(KernelKind kind, const AttentionKind& other = {});
  /// `elements` as NCCL counts them, on the stream of its kind.
  void collective(CollectiveKind kind, std::string_view name, std::int64_t elements, DType dtype,
                  RankGroup group = RankGroup::all);
  /// Among the ranks that have a block's experts together, in the stream of kernels, which wait for
  /// it: an all-to-all of so many elements for each pair of ranks, or a gather of as many of each.
  void exchange(CollectiveKind kind, std::string_view name, std::int64_t elements, DType dtype);

  /// All-reduce along the outer axis.
  void reduce_outer(std::string_view name, std::int64_t elements, DType dtype, StreamRole stream);

  /// Elements of a whole copy of the weights that are none of any parameter.
  void add_padding(std::int64_t elements) { padding_ += elements; }

  [[nodiscard]] Mark record(StreamRole stream);
  /// `distance` 0: of this run of the segment or, of another segment, its last one.
  void wait(StreamRole stream, const Mark& mark, std::int64_t distance = 0);

  /// Bytes of the L2 cache that Inductor's benchmarks write over.
  void set_l2_bytes(std::int64_t bytes) { l2_bytes_ = bytes; }
  [[nodiscard]] std::int64_t l2_bytes() const { return l2_bytes_; }

  /// Before the first step: what lies free in whole segments goes back to the device.
  void empty_cache();

  // The host, which issues the ops in their order.
  void launch_by(Launcher launcher) { launcher_ = launcher; }
  /// Beside what launches take, before the next op.
  void host_work(HostLaunches work) { host_work_ += work; }
  /// The host goes on when that has come.
  void host_wait(const Mark& mark);

  /// With segments joined: what lives from one to the next is stated.
  [[nodiscard]] EnginePlan finish();

 private:
  Op& add(std::string_view name, StreamRole stream, OpBody body);
  Op& add_named(std::string name, StreamId stream, OpBody body);
  [[nodiscard]] HostLaunches work_of(const OpBody& body) const;
  [[nodiscard]] std::string full_name(std::string_view name) const;
  Tensor add_buffer(std::string_view name, std::int64_t bytes, Category category,
                    StreamRole stream);
  KeptFrom& add_kept(BufferId buffer);
  void take_workspace();
  void join_segments();

  Program program_;
  CommunicatorId shards_;
  CommunicatorId outer_;
  CommunicatorId same_experts_;
  CommunicatorId experts_;
  std::vector<KeptFrom> kept_;
  std::vector<Renewal> renewals_;
  std::vector<BufferId> resting_;
  std::vector<HostLaunches> host_;  ///< by op
  HostLaunches host_work_ = 0;      ///< before the next one
  Launcher launcher_ = Launcher::operators;
  std::vector<Segment> segments_;
  std::size_t next_op_ = 0;
  std::int64_t padding_ = 0;
  std::int64_t l2_bytes_ = kL2OfH200;
  std::optional<UnitId> unit_;
  Phase phase_ = Phase::forward;
  bool forward_workspace_ = false;
  bool backward_workspace_ = false;
};

}  // namespace mfsdp
