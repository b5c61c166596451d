// The layout of a value along each axis of the mesh, and what kernels and collectives make of it.
//
//   whole     each rank has all of it
//   rows      each rank has the rows of other tokens, in the order of ranks
//   columns   each rank has other columns: heads, or features of the MLP
//   partial   each rank has a term: the value is their sum
//
// Along tp a weight is whole or cut, at its outputs (dim 0) or its inputs (dim 1). A linear layer
// y = x * W^T has the gradients dx = dy * W and dW = dy^T * x:
//
//   W              x        y         dy        dx        dW
//   whole          whole    whole     whole     whole     whole
//                  rows     rows      rows      rows      partial
//                  partial  partial   whole     whole     partial     adapters
//                  whole    whole     partial   partial   partial     adapters
//   cut, outputs   whole    columns   columns   partial   of the shard
//   cut, inputs    columns  partial   whole     columns   of the shard
//
// Collectives are the only way from one layout to another: all_reduce partial -> whole,
// reduce_scatter partial -> rows, all_gather rows -> whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/plan/op.hpp"
#include "core/plan/placement.hpp"

namespace mfsdp {

enum class ValueLayout : std::uint8_t { whole, rows, columns, partial };

constexpr auto value_names(ValueLayout) {
  return name_array("whole", "rows", "columns", "partial");
}

/// The only axis along which values have other layouts than whole; along all others, what ranks have
/// in common is known otherwise: other sequences, other blocks, other experts.
inline constexpr Axis kLayoutAxis = Axis::tp;

/// How a parameter is cut along the axis.
enum class WeightCut : std::uint8_t { none, outputs, inputs };

/// The cut that a group's `shard` makes; nothing for one that no rule knows.
[[nodiscard]] std::optional<WeightCut> cut_of(const Placement& shard);

/// An operand's value as a kernel reads it.
struct ReadLayout {
  std::string_view role;
  ValueLayout layout = ValueLayout::whole;
};

/// The layouts that a kernel makes of those that it reads.
struct MadeLayouts {
  ValueLayout values = ValueLayout::whole;  ///< of all that it makes but the next
  ValueLayout gradient =
      ValueLayout::whole;  ///< of its weight's gradient, or of sums: partial ones of it, counts
};

/// The layouts of the results of one kernel along the axis; an error names the operand.
/// `variant`: a GEMM's attribute "kind".
[[nodiscard]] Result<MadeLayouts> made_by(KernelKind kind, std::int64_t variant, WeightCut weight,
                                          std::span<const ReadLayout> reads);

/// The layout that a collective over the axis makes; nothing where it moves no value of that one.
[[nodiscard]] std::optional<ValueLayout> moved_by(CollectiveKind kind, Reduction reduction,
                                                  ValueLayout from);

}  // namespace mfsdp
