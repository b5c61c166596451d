// The steps of the model that ops of a plan do, and the places of their operands' values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/values/model_steps.hpp"
#include "verify/proof/values/value_cells.hpp"

namespace mfsdp {

/// An operand with a value.
struct BoundFlow {
  std::uint32_t use = 0;  ///< in ValueCells::uses
  OwnedValue reads;
  OwnedValue writes;
  std::int64_t row_bytes = 0;  ///< of a token's row; 0 where operands have none
  std::int64_t skip = 0;       ///< bytes from there to the operand's first
  std::int64_t unrotated = 0;  ///< bytes into the operand where another value begins; 0: nowhere
  std::uint32_t left_alone = kNone;  ///< in ModelBinding::left_alone
};

/// Columns of rows in which a step makes another value than in the others.
struct LeftAlone {
  OwnedValue value;
  std::vector<std::pair<std::int64_t, std::int64_t>> columns;  ///< bytes of a row, ascending
  std::int64_t row = 0;                                        ///< bytes

  /// Whether all of [begin, end) is such columns.
  [[nodiscard]] bool has(std::int64_t begin, std::int64_t end) const {
    return std::ranges::any_of(
        columns, [&](const auto& range) { return begin >= range.first && end <= range.second; });
  }
};

/// An op that is a step.
struct BoundStep {
  bool excused = false;  ///< it has a finding: its results are accepted as any value
  bool chunk = false;    ///< of some rows, not all tokens
  std::optional<std::uint32_t> owner = {};  ///< where parameters determine it
  std::optional<ParameterRole> role{};      ///< of the first parameter
  const Group* group = nullptr;             ///< likewise
  std::uint32_t first_flow = 0;
  std::uint32_t last_flow = 0;
  bool contributes = false;  ///< to a sum over microbatches: a gradient, the loss
  /// Takes the largest magnitude of a value, or casts it: of whatever its input holds, or of this
  /// weight. Its flows have forms of that value.
  bool casts = false;
  bool transposes = false;  ///< likewise, a cast
  std::optional<Value> weight = {};
};

struct ModelBinding {
  bool applies = false;                  ///< the plan runs the model of its configuration
  bool takes_tokens = false;             ///< and some kernel of it takes tokens
  Value unrotated = Value::d_qkv;        ///< the value of Part::unrotated
  std::vector<std::uint32_t> step_of{};  ///< by op: position in `steps`, or kNone
  std::vector<BoundStep> steps{};
  std::vector<BoundFlow> flows{};
  std::vector<LeftAlone> left_alone{};
};

/// Empty where the program's units and parameters are not those of its configuration's model, or
/// the plan has no kernel that takes tokens. Finds kernels that are no step of the model, and those
/// that have a value where none can lie (MF113).
[[nodiscard]] ModelBinding bind_model(const UnrolledPlan& unrolled, const Layouts& layouts,
                                      const ValueCells& cells, FindingList& findings);

}  // namespace mfsdp
