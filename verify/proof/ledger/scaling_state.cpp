#include "verify/proof/ledger/scaling_state.hpp"

#include <iterator>

#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp::scaling {

std::int64_t Sums::values() const { return std::ssize(made_by) + std::ssize(received); }

State::State(const UnrolledPlan& its_plan, const FollowedOps& its_ops, FindingList& list)
    : unrolled(its_plan), config(its_plan.program->config), followed(its_ops), findings(list) {
  for (const Group& group : unrolled.program->groups)
    if (group.requires_grad) trainable.insert(group.id);
}

std::optional<GroupId> State::group_of(std::uint32_t instance) const {
  for (const FollowedOperand& operand : followed.of(unrolled.instances[instance].op_index))
    if (operand.gradient) return unrolled.program->groups[operand.located.group].id;
  // An operand at a wrong place still belongs to its buffer's group: other passes report the place.
  const Operand* input = operand_of(kernel_of(instance), "input");
  if (input == nullptr) return std::nullopt;
  const auto& holds = unrolled.program->buffers[unrolled.index->buffers[input->buffer]].holds;
  if (!holds || holds->kind != ContentKind::gradient) return std::nullopt;
  return holds->groups.front().group;
}

const Sums& State::input_of(const Kernel& kernel) const {
  static const Sums none;
  const Operand* input = operand_of(kernel, "input");
  const auto found = input == nullptr ? sums.end() : sums.find(input->buffer);
  return found == sums.end() ? none : found->second;
}

bool State::is_fresh(const Operand* operand, Scale what) const {
  if (operand == nullptr) return false;
  const auto found = finished.find({operand->buffer, operand->offset});
  return found != finished.end() && found->second.what == what &&
         step_of(found->second.by) == step();
}

std::int64_t bytes_made(const State& s, std::uint32_t instance) {
  const Kernel& kernel = s.kernel_of(instance);
  const bool is_partial = kernel.kind == KernelKind::norm_partial;
  return operand_of(kernel, is_partial ? "output" : "loss_sums")->span_bytes();
}

void write_over(State& s, BufferId buffer, std::int64_t begin, std::int64_t end) {
  std::erase_if(s.finished, [&](const auto& entry) {
    const std::int64_t offset = entry.first.second;
    return entry.first.first == buffer && offset < end && begin < offset + kReportBytes;
  });
  const auto found = s.sums.find(buffer);
  if (found == s.sums.end()) return;
  Sums& sums = found->second;
  // Gathered values keep the offsets that they had on their ranks: any write counts as a hit.
  const auto is_hit = [&](std::int64_t offset, std::int64_t bytes) {
    return sums.begin || (offset < end && begin < offset + bytes);
  };
  const auto hits = std::erase_if(sums.made_by,
                                  [&](const auto& made) {
                                    return is_hit(made.first, bytes_made(s, made.second));
                                  }) +
                    std::erase_if(sums.received, [&](const auto& partial) {
                      return is_hit(partial.first, partial.second.bytes);
                    });
  sums.garbage = sums.garbage || hits > 0;
}

void write_over(State& s, const Operand& operand) {
  write_over(s, operand.buffer, operand.offset, operand.offset + operand.span_bytes());
}

void finish(State& s, const Operand* output, Scale what) {
  if (output == nullptr) return;
  write_over(s, *output);
  s.finished[{output->buffer, output->offset}] = {.what = what, .by = s.now};
  s.finished_in.emplace(what, output->buffer);
}

void report(State& s, const char* rule, const std::string& what) {
  if (!s.findings.wants(rule) ||
      !s.reported.emplace(rule, s.unrolled.instances[s.now].op_index).second)
    return;
  s.findings.add(finding_in_step(s.unrolled, s.now, rule, what));
}

}  // namespace mfsdp::scaling
