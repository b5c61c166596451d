// All ranks of cp run the same ops. At first each has its own keys and values. Where all send them
// to the next rank, a rank has those of the rank before it, and so on; after as many times as there
// are ranks it has its own again. A value that is made with the keys of one rank is a part. Parts
// that have no rank's keys in common are added, and all together are the value that the model has:
//
//   attention     the mean of both parts, weighted by the sums of exponentials, whose logarithms
//                 are
//                 the parts of log_sum_exp
//   d_query       the sum
//   d_keys        the sum over the ranks that had these keys. The terms are of the keys of one
//                 rank,
//                 and are that rank's gradient where they have come to it.
//
// In a value's name: whose keys ("d_keys and values, 2 ranks before"), and by a digit for each
// number of ranks before whether it contains the part of those keys.
#include "verify/checker/ring.hpp"

#include <algorithm>

#include "verify/checker/flows.hpp"

namespace mfsdp::checker {
namespace {

const std::string kRingShift = " of ranks before: ";
const std::string kRingParts = " with parts ";
const std::string kHeldKeys = "keys and values";
const std::string kRingTerms = "terms of d_keys and values";

/// A name in its parts.
struct RingName {
  std::string of{};
  Int shift = 0;
  std::string parts{};  ///< empty: it has none

  [[nodiscard]] std::string text() const {
    return fmt::format("{}{}{}{}{}", of, kRingShift, shift, parts.empty() ? "" : kRingParts, parts);
  }
  /// No name of a ring has `of` empty.
  static RingName read(const std::string& text) {
    const std::size_t shift = text.find(kRingShift);
    if (shift == std::string::npos) return {};
    const std::size_t parts = text.find(kRingParts, shift);
    const std::size_t number = shift + kRingShift.size();
    return {.of = text.substr(0, shift),
            .shift = std::stoll(text.substr(number, parts - number)),
            .parts = parts == std::string::npos ? "" : text.substr(parts + kRingParts.size())};
  }
  /// The model's own name where all parts are in, at the rank whose keys they are.
  [[nodiscard]] std::string whole() const {
    const bool all = !parts.empty() && parts.find('0') == std::string::npos && shift == 0;
    if (!all) return text();
    return of == kRingTerms ? "d_keys and values" : of;
  }
};

}  // namespace

std::string Model::held_keys(Int shift) const {
  return RingName{.of = kHeldKeys, .shift = shift}.text();
}

std::string Model::with_step(const std::string& of, Int shift, Int step) const {
  std::string parts(static_cast<std::size_t>(context_ranks_), '0');
  parts[static_cast<std::size_t>(step)] = '1';
  return RingName{.of = of, .shift = shift, .parts = parts}.text();
}

std::string Model::passed_on(const std::string& sent) const {
  RingName name = RingName::read(sent);
  if (!passes_keys_ || (name.of != kHeldKeys && name.of != kRingTerms)) return "";
  name.shift = (name.shift + 1) % context_ranks_;
  return name.whole();
}

std::string Model::joined(const std::string& part, const std::string& other) const {
  RingName sum = RingName::read(part);
  const RingName added = RingName::read(other);
  if (sum.of.empty() || sum.of != added.of || sum.shift != added.shift || sum.parts.empty() ||
      sum.parts.size() != added.parts.size())
    return "";
  for (std::size_t i = 0; i < sum.parts.size(); ++i) {
    if (added.parts[i] == '0') continue;
    if (sum.parts[i] == '1') return "";
    sum.parts[i] = '1';
  }
  return sum.whole();
}

/// One kernel for the keys of each rank.
void Model::add_ring_attention(const std::map<std::string, Json>& sizes,
                               std::optional<bool> slides) {
  const Int rows = seq_ / context_ranks_;
  const Int keys = kv_heads_ * head_dim_;
  const Int query = heads_ * head_dim_;
  // With more attributes first: what a kernel has beside those of its step is refused at once.
  for (Int shift = context_ranks_; shift-- > 0;) {
    std::map<std::string, Json> of_step = sizes;
    of_step["key_parts"] = 1;
    if (shift != 0) of_step["shift"] = shift;
    const auto held = [&](const char* role, Int column) {
      return in_rows(reads(role, compute_, {batch_, kv_heads_, rows, head_dim_}, held_keys(shift)),
                     2 * keys, column);
    };
    const std::vector<Flow> inputs{own_query(), held("key", 0), held("value", keys)};
    Step forward{.kernel = "attention_forward",
                 .attributes = of_step,
                 .flows = inputs,
                 .slides = slides,
                 .least_scratch = backward_scratch()};
    forward.flows.push_back(
        makes("output", compute_, {attended_, query}, with_step("attention", 0, shift)));
    forward.flows.push_back(
        makes("log_sum_exp", statistic, {attended_, heads_}, with_step("log_sum_exp", 0, shift)));
    forward.flows = in_documents(std::move(forward.flows));
    add(std::move(forward));
    Step backward{.kernel = "attention_backward",
                  .attributes = of_step,
                  .flows = inputs,
                  .slides = slides,
                  .least_scratch = backward_scratch()};
    for (Flow& flow :
         std::vector{reads("output", compute_, {attended_, query}, "attention"),
                     reads("d_output", compute_, {attended_, query}, "d_attention"),
                     reads("log_sum_exp", statistic, {attended_, heads_}, "log_sum_exp"),
                     scratch("d_query_sum", statistic, {attended_, query}),
                     scratch("row_sums", statistic, {attended_, heads_}),
                     makes("d_query", compute_, {attended_, query}, with_step("d_query", 0, shift)),
                     makes("d_key_value", compute_, {attended_, 2 * keys},
                           with_step(kRingTerms, shift, shift))})
      backward.flows.push_back(std::move(flow));
    backward.flows = in_documents(std::move(backward.flows));
    add(std::move(backward));
  }
}

void add_ring_parts(StepState& state, const Op& op) {
  const bool merges = op.does == "attention_merge";
  const auto pairs =
      merges
          ? std::vector<std::pair<std::string, std::string>>{{"output", "other"},
                                                             {"log_sum_exp", "other_log_sum_exp"}}
          : std::vector<std::pair<std::string, std::string>>{{"output", "input"}};
  std::map<std::string, std::string> roles;
  for (const auto& [sum, other] : pairs) {
    roles[sum] = "read_write";
    roles[other] = "read";
  }
  state.forms(op, roles, merges ? Names{"head_dim", "heads", "rows"} : Names{"cols", "rows"});
  const Int rows = op.attribute("rows");
  const Int cols =
      merges ? times(op.attribute("heads"), op.attribute("head_dim")) : op.attribute("cols");
  const std::string compute = state.view.json.at("config").at("param_dtype");
  std::vector<std::pair<const Operand*, Value>> made;
  std::string parts;
  for (const auto& [sum, other] : pairs) {
    const bool exponents = sum == "log_sum_exp";
    const Shape shape{rows, exponents ? op.attribute("heads") : cols};
    for (const std::string& role : {sum, other}) {
      const Operand& rows_of = operand(op, role);
      if (rows_of.shape != shape || !rows_of.dense ||
          rows_of.dtype != (exponents ? state.model.statistic : compute))
        refuse("{}: '{}' does not have its rows", op.place(), role);
    }
    const Value part = state.values.whole(op, operand(op, sum));
    const Value added = state.values.whole(op, operand(op, other));
    const std::string name = state.model.joined(part.name, added.name);
    const RingName of = RingName::read(part.name);
    const bool known = merges ? of.of == (exponents ? "log_sum_exp" : "attention")
                              : of.of == "d_query" || of.of == kRingTerms;
    if (name.empty() || !known || part.owner != added.owner || part.pass != added.pass)
      refuse("{}: adds {} to {}", op.place(), added.name, part.name);
    if (!made.empty() &&
        (parts != of.parts + RingName::read(added.name).parts ||
         made.front().second.owner != part.owner || made.front().second.pass != part.pass))
      refuse("{}: its sums of exponentials are those of other parts", op.place());
    parts = of.parts + RingName::read(added.name).parts;
    made.emplace_back(&operand(op, sum), Value{name, part.owner, part.pass});
  }
  for (const auto& [to, value] : made) state.values.make(op, *to, value);
}

}  // namespace mfsdp::checker
