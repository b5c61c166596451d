// Values of ranks of cp that have the keys of one rank at a time. All ranks run one plan, so what a
// rank sends in a shift is what it receives, of the rank before. In step s a rank has the keys of s
// ranks before:
//
//   keys                      shift s -> s + 1 on the next rank; shift N is 0
//   part of attention         steps {s}; merged with other steps; attention with all of {0 ... N -
//                             1}
//   part of d_query           likewise, added
//   terms of d_keys           shift s, steps {s}: as seen from the rank whose keys they are, the
//                             term of the
//                             rank s after it. They go on as the keys do, and others are added to
//                             them; with all terms and shift 0 they are the gradient of a rank's
//                             own keys
#include <fmt/format.h>

#include <array>
#include <bit>
#include <span>

#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/values/model_values.hpp"

namespace mfsdp {
namespace {

constexpr bool has_shift(Value value) {
  return value == Value::held_keys || value == Value::d_held_keys;
}
constexpr bool has_steps(Value value) {
  return value == Value::attention_part || value == Value::log_sum_exp_part ||
         value == Value::d_query_part || value == Value::d_held_keys;
}

/// The value that all steps together make.
constexpr Value made_of_all(Value value) {
  switch (value) {
    case Value::attention_part: return Value::attention;
    case Value::log_sum_exp_part: return Value::log_sum_exp;
    case Value::d_query_part: return Value::d_query;
    case Value::d_held_keys: return Value::d_own_keys;
    default: return value;
  }
}

/// Operands of a kernel that adds: a sum, and what is added to it.
struct Added {
  const char* sum;
  const char* other;
};
constexpr std::array kAddedRows{Added{"output", "input"}};
constexpr std::array kMergedRows{Added{"output", "other"},
                                 Added{"log_sum_exp", "other_log_sum_exp"}};

std::span<const Added> added_by(KernelKind kind) {
  if (kind == KernelKind::add_rows) return kAddedRows;
  return kMergedRows;
}

}  // namespace

/// Attention states whose keys it has. All else works on a rank's own tokens.
void ModelValues::find_ring_step() {
  const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
  if (kernel.find_attribute("key_parts") == nullptr) return;
  const auto shift = static_cast<std::uint64_t>(kernel.attribute("shift"));
  base_.shift = static_cast<std::uint8_t>(shift % 64);
  base_.steps = std::uint64_t{1} << base_.shift;
}

/// Other values have neither.
void ModelValues::keep_ring_step(Value value, ValueKey& key) const {
  if (!has_shift(value)) key.shift = 0;
  if (!has_steps(value)) key.steps = 0;
}

/// The value that a rank receives where all ranks send that value to the next.
ValueKey ModelValues::passed_on(ValueKey key) const {
  const std::int64_t ranks = unrolled_.program->config.mesh.size(Axis::cp);
  key.shift = static_cast<std::uint8_t>((key.shift + 1) % ranks);
  return completed(key);
}

/// The whole value where all steps are in and it is where it belongs.
ValueKey ModelValues::completed(ValueKey key) const {
  const std::int64_t ranks = unrolled_.program->config.mesh.size(Axis::cp);
  if (!has_steps(key.value) || std::popcount(key.steps) != ranks || key.shift != 0) return key;
  key.value = made_of_all(key.value);
  key.steps = 0;
  return key;
}

std::string ModelValues::ring_words(const ValueKey& key) {
  std::string words;
  if (has_shift(key.value)) words = fmt::format(", of {} ranks before", key.shift);
  if (!has_steps(key.value)) return words;
  std::string steps;
  for (int step = 0; step < 64; ++step)
    if ((key.steps >> step & 1) != 0) steps += fmt::format("{}{}", steps.empty() ? "" : ", ", step);
  return words + fmt::format(", of steps {}", steps);
}

/// Both are parts of one value, of other steps.
void ModelValues::read_sum(const Kernel& kernel) {
  base_ = {.value = Value::excused};
  sums_.clear();
  for (const auto& [sum, other] : added_by(kernel.kind)) {
    const CellUse* to = use_of(operand_of(kernel, sum));
    const CellUse* from = use_of(operand_of(kernel, other));
    if (to == nullptr || from == nullptr)
      return report_mismatch("adds bytes whose contents are unknown");
    const ValueKey& first = memory_.cells[to->first].key;
    const ValueKey& second = memory_.cells[from->first].key;
    if (first.value == Value::excused || second.value == Value::excused) return;
    const ValueKey key = whole(*to);
    ValueKey added = whole(*from);
    const std::uint64_t steps = added.steps;
    added.steps = key.steps;
    const bool merges = kernel.kind == KernelKind::attention_merge;
    const bool fits = merges
                          ? key.value == (to->operand->role == "output" ? Value::attention_part
                                                                        : Value::log_sum_exp_part)
                          : key.value == Value::d_query_part || key.value == Value::d_held_keys;
    if (!fits || key != added || (key.steps & steps) != 0)
      return report_mismatch(
          fmt::format("adds {} to {}; expected a part of the same value, of steps "
                      "that the sum does not contain",
                      in_words(second), in_words(first)));
    added.steps |= steps;
    if (!sums_.empty() && sums_.front().steps != added.steps)
      return report_mismatch(fmt::format("has {} beside a sum of other steps", in_words(first)));
    sums_.push_back(added);
  }
  base_ = sums_.front();
}

void ModelValues::write_sum(const Kernel& kernel) {
  const std::span<const Added> added = added_by(kernel.kind);
  for (std::size_t i = 0; i < added.size(); ++i)
    if (const CellUse* to = use_of(operand_of(kernel, added[i].sum)))
      put(*to, base_.value == Value::excused ? base_ : completed(sums_[i]), 0);
}

}  // namespace mfsdp
