// Rows of hidden states among the ranks of tp, as DTensor moves them in torchtitan's models with
// sequence parallelism: each collective in its place among the kernels, none beside them.
//
//   forward    rows are gathered after a norm, and what backward multiplies is the gathered copy; terms
//              of a row-cut GEMM are reduced to own rows
//   backward   the same the other way round; gradients of norms, which are whole on each rank and see
//              own rows, are summed when the unit reduces
//   loss       over ids: the largest logit, the sum of exponentials and the label's are summed
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

class TensorRows {
 public:
  TensorRows(StepBuilder& step, const PlanConfig& config)
      : step_(step), ranks_(config.mesh.size(Axis::tp)) {}

  [[nodiscard]] bool shares() const { return ranks_ > 1; }
  /// A rank's part of the bytes of all rows.
  [[nodiscard]] std::int64_t own(std::int64_t whole) const { return whole / ranks_; }

  /// `whole`: bytes of all rows, in bf16.
  void gather(std::string_view name, std::int64_t whole) {
    run(CollectiveKind::all_gather, name, own(whole) / kHalf, DType::bf16);
  }
  void reduce(std::string_view name, std::int64_t whole) {
    run(CollectiveKind::reduce_scatter, name, own(whole) / kHalf, DType::bf16);
  }
  void sum(std::string_view name, std::int64_t elements, DType type) {
    run(CollectiveKind::all_reduce, name, elements, type);
  }

 private:
  void run(CollectiveKind kind, std::string_view name, std::int64_t elements, DType type) {
    step_.collective_on(StreamRole::compute, kind, name, elements, type, RankGroup::tensor);
  }

  StepBuilder& step_;
  std::int64_t ranks_;
};

}  // namespace mfsdp
