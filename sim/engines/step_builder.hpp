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

/// What a kernel moves, and how well: a view of other rows is read in shorter pieces than a tensor
/// of its own, and tensors that are joined inside their rows in the shortest.
struct Traffic {
  Traffic(std::int64_t its_bytes) : bytes(its_bytes) {}  // NOLINT(google-explicit-constructor)
  Traffic(std::int64_t its_bytes, AccessPattern its_pattern)
      : bytes(its_bytes), pattern(its_pattern) {}

  std::int64_t bytes = 0;
  AccessPattern pattern = AccessPattern::contiguous;
};

/// Where cuBLAS has its workspace from: PyTorch keeps one for each thread that calls it.
enum class GemmWorkspace { pytorchs, callers };

class StepBuilder {
 public:
  /// Streams of compute, gathers and reductions, and a communicator of all ranks for either kind
  /// of collective.
  StepBuilder(const PlanConfig& config, const Meta& meta);

  // Where the following ops stand.
  void begin_segment(std::string_view name, std::int64_t repeat, std::int64_t microbatches);
  /// One for the first microbatch, one for those after it, where there are any, and the
  /// optimizer's, each written by its function.
  void write_segments(const std::function<void(bool is_first)>& microbatch,
                      const std::function<void()>& optimizer);
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
  /// Another in the place of a kept one, on its stream. Freeing it frees the old one, so that the
  /// new one is kept.
  [[nodiscard]] Tensor renew(Tensor kept);
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
  /// Causal, of the configuration's shape.
  void attention(KernelKind kind);
  /// `elements` as NCCL counts them, on the stream of its kind.
  void collective(CollectiveKind kind, std::string_view name, std::int64_t elements, DType dtype);

  /// Elements of a whole copy of the weights that are none of any parameter.
  void add_padding(std::int64_t elements) { padding_ += elements; }

  [[nodiscard]] Mark record(StreamRole stream);
  /// `distance` 0: of this run of the segment or, of another segment, its last one.
  void wait(StreamRole stream, const Mark& mark, std::int64_t distance = 0);

  /// With segments joined: what lives from one to the next is stated.
  [[nodiscard]] EnginePlan finish();

 private:
  Op& add(std::string_view name, StreamRole stream, OpBody body);
  [[nodiscard]] std::string full_name(std::string_view name) const;
  Tensor add_buffer(std::string_view name, std::int64_t bytes, Category category,
                    StreamRole stream);
  KeptFrom& add_kept(BufferId buffer);
  void take_workspace();
  void join_segments();

  Program program_;
  std::vector<KeptFrom> kept_;
  std::vector<Renewal> renewals_;
  std::vector<Segment> segments_;
  std::size_t next_op_ = 0;
  std::int64_t padding_ = 0;
  std::optional<UnitId> unit_;
  Phase phase_ = Phase::forward;
  bool forward_workspace_ = false;
  bool backward_workspace_ = false;
};

}  // namespace mfsdp
