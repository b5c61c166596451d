// Rows of hidden states between the GEMMs of ranks that share the weights, as Transformer Engine's
// modules gather and reduce them.
//
//   sequence parallel   forward: all rows are gathered before a column-cut GEMM, freed after it, and
//                       gathered again in backward beside the gradient of the input, because only a
//                       rank's own are kept. Terms of a row-cut GEMM are reduced to own rows. Backward:
//                       gradients of the output are gathered before both GEMMs of a row-cut one;
//                       those of a column-cut one's input are reduced beside the weight's
//   without             forward: terms are summed in place. Backward: gradients of inputs are, beside
//                       those of weights
//   tp_comm_overlap     rows that a GEMM reads come from rank to rank, beside the GEMM of those before
//                       (ring exchange); terms that it makes are reduced in quarters beside the next
//                       quarter (pipeline). All rows are in buffers outside the allocator, one for
//                       each of the ten named GEMMs of a layer
//   beside a GEMM       a collective that the host issues before it (CUDA_DEVICE_MAX_CONNECTIONS=1):
//                       both begin when their inputs are there
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/mcore_parallel.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

class McoreRows {
 public:
  /// `whole`: sizes of all rows of a microbatch.
  McoreRows(StepBuilder& step, const McoreParallel& parallel, const LlamaSizes& whole);

  /// Whether ranks share the weights.
  [[nodiscard]] bool shares() const { return parallel_.tp > 1; }
  /// Whether rows move in pieces beside GEMMs that read or make them.
  [[nodiscard]] bool in_pieces() const { return parallel_.in_pieces; }
  /// Whether each rank has a part of the rows between GEMMs.
  [[nodiscard]] bool cuts() const { return parallel_.sequence; }
  [[nodiscard]] std::int64_t ranks() const { return parallel_.tp; }
  // Sizes of a rank's own rows.
  [[nodiscard]] std::int64_t state() const { return state_; }
  [[nodiscard]] std::int64_t statistic() const { return tokens_ * kFull; }

  /// A collective beside a GEMM, and its result.
  struct Beside {
    std::optional<Tensor> rows{};
    std::optional<Mark> ended{};
  };
  /// Gathers all rows beside the next GEMM, to `rows`.
  [[nodiscard]] Beside begin_gather(std::string_view name);
  /// Reduces terms of all rows beside the next GEMM, to `rows` or in place.
  [[nodiscard]] Beside begin_reduction(std::string_view name);
  /// Compute waits for it.
  void wait(const Beside& beside);

  /// Calls gemm(rows) for own rows, and for each other rank's when they have come.
  using Gemm = std::function<void(std::int64_t rows)>;
  void gather_beside(std::string_view name, const Gemm& gemm);
  /// Calls gemm(rows) for each piece of all rows, and reduces its terms. Returns own rows.
  [[nodiscard]] Tensor reduce_beside(std::string_view name, const Gemm& gemm);

  /// An all-reduce of `elements`, which compute waits for.
  void sum(std::string_view name, std::int64_t elements, DType type);
  /// A gather of `elements` of each rank, which compute waits for.
  void gather_elements(std::string_view name, std::int64_t elements, DType type);
  /// Reduces terms of whole rows to own ones, freeing `whole`, or in place. Compute waits for it.
  [[nodiscard]] Tensor reduced(std::string_view name, Tensor whole);
  /// All rows of own ones, which compute waits for and the caller frees; none if rows are not cut.
  [[nodiscard]] std::optional<Tensor> gathered(std::string_view name);

 private:
  [[nodiscard]] std::int64_t own_elements() const { return state_ / kHalf; }
  /// All rows, where the allocator has them.
  [[nodiscard]] std::optional<Tensor> whole_rows(std::string_view name);
  void run(CollectiveKind kind, std::string_view name, std::int64_t elements, DType type);

  StepBuilder& step_;
  McoreParallel parallel_;
  std::int64_t whole_;  ///< bytes of all rows
  std::int64_t tokens_;
  std::int64_t state_;
};

}  // namespace mfsdp
