#include "core/recipe/ring_attention.hpp"

#include <algorithm>

#include "core/plan/work.hpp"

namespace mfsdp::recipe {
namespace {

/// Keys of other ranks take turns in two tensors.
std::string turn_of(std::int64_t step) { return step % 2 == 0 ? ".even" : ".odd"; }

std::string in_step(const std::string& name, std::int64_t step) {
  return name + ".step" + std::to_string(step);
}

}  // namespace

std::vector<Attribute> RingAttention::sizes_of(const Inputs& inputs, std::int64_t shift) const {
  std::vector<Attribute> sizes = inputs.sizes;
  sizes.emplace_back("key_parts", 1);
  if (shift != 0) sizes.emplace_back("shift", shift);
  std::ranges::sort(sizes, {}, &Attribute::name);
  return sizes;
}

std::vector<RecipeOperand> RingAttention::operands_of(
    const Inputs& inputs, const std::string& keys, const std::vector<RecipeOperand>& others) const {
  const std::int64_t cols = sequences_.own_keys();
  const std::int64_t row = 2 * cols;
  const std::int64_t rows = s_.attended / b_.config.micro_batch;
  const auto columns = [&](const char* role, std::int64_t begin) {
    return strided(on(role, keys), {rows * row, s_.head_dim, row, 1}, begin);
  };
  std::vector<RecipeOperand> operands{inputs.query, columns("key", 0), columns("value", cols)};
  operands.insert(operands.end(), others.begin(), others.end());
  operands.insert(operands.end(), inputs.positions.begin(), inputs.positions.end());
  return operands;
}

void RingAttention::send(const std::string& name, const std::string& from, const std::string& to) {
  const Shape shape{s_.tokens, 2 * sequences_.own_keys()};
  b_.pass_on(name, Axis::cp, shaped(on("input", from), Access::read, s_.compute, shape),
             shaped(on("output", to), Access::write, s_.compute, shape));
}

void RingAttention::add(const std::string& name, const std::string& from, const std::string& to,
                        std::int64_t cols) {
  b_.kernel(name, KernelKind::add_rows, {{"cols", cols}, {"rows", s_.tokens}},
            {on("output", to), on("input", from)});
}

void RingAttention::forward(const Inputs& inputs, const KeySource& own, const std::string& suffix) {
  const std::int64_t steps = sequence_parts(b_.config.mesh);
  const auto keys = [&](std::int64_t step) {
    return "keys" + (step == 0 ? std::string() : turn_of(step)) + suffix;
  };
  sequences_.take_keys(own, suffix);
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) send(in_step("keys.send", step) + suffix, keys(step), keys(step + 1));
    const std::string part = step == 0 ? "" : ".part";
    b_.kernel(in_step("attention", step) + suffix, KernelKind::attention_forward,
              sizes_of(inputs, step),
              operands_of(inputs, keys(step),
                          {on("output", "attention" + part + suffix),
                           on("log_sum_exp", "log_sum_exp" + part + suffix), stream_workspace()}));
    if (step == 0) continue;
    b_.kernel(in_step("attention.merge", step) + suffix, KernelKind::attention_merge,
              {{"head_dim", s_.head_dim}, {"heads", s_.heads}, {"rows", s_.attended}},
              {on("output", "attention" + suffix), on("log_sum_exp", "log_sum_exp" + suffix),
               on("other", "attention.part" + suffix),
               on("other_log_sum_exp", "log_sum_exp.part" + suffix)});
  }
}

void RingAttention::begin_backward(const KeySource& own) {
  sequences_.take_keys(own, ".back");
  send(in_step("keys.send", 0) + ".back", "keys.back", "keys.odd.back");
}

void RingAttention::backward(const Inputs& inputs, const std::string& suffix) {
  const std::int64_t steps = sequence_parts(b_.config.mesh);
  const auto keys = [](std::int64_t step) { return "keys" + turn_of(step) + ".back"; };
  const auto terms = [&](std::int64_t step) {
    return "d_keys" + (step == steps ? std::string() : turn_of(step));
  };
  for (std::int64_t step = 1; step <= steps; ++step) {
    if (step + 1 < steps) send(in_step("keys.send", step) + ".back", keys(step), keys(step + 1));
    if (step > 1) send(in_step("d_keys.send", step - 1), terms(step - 1), "d_keys.others");
    const std::string part = step == 1 ? "" : ".part";
    b_.kernel(
        in_step("attention.backward", step), KernelKind::attention_backward,
        sizes_of(inputs, step % steps),
        operands_of(inputs, step == steps ? "keys.back" : keys(step),
                    {on("output", "attention" + suffix), on("d_output", "d_attention"),
                     on("log_sum_exp", "log_sum_exp" + suffix), on("d_query", "d_query" + part),
                     on("d_key_value", terms(step)), on("d_query_sum"), on("row_sums"),
                     shaped(on("workspace", "attention_workspace"), Access::scratch, DType::uint8,
                            {kAttentionWorkspaceBytes})}));
    if (step == 1) continue;
    add(in_step("d_query.add", step), "d_query.part", "d_query", s_.attention);
    add(in_step("d_keys.add", step), "d_keys.others", terms(step), 2 * sequences_.own_keys());
  }
}

}  // namespace mfsdp::recipe
