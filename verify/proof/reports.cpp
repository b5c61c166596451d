#include "verify/proof/reports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "verify/proof/roles.hpp"

namespace mfsdp {
namespace {

class ReportCheck {
 public:
  ReportCheck(const Program& program, const ProgramIndex& index, const Plan& plan,
              FindingList& findings)
      : program_(program), index_(index), plan_(plan), findings_(findings) {
    for (const Segment& segment : plan.segments)
      for (const Op& op : segment.ops) ops_.push_back(&op);
    find_taken();
  }

  void run() {
    bool sums = false;
    bool finishes = false;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (const auto* copy = std::get_if<Copy>(&ops_[i]->body)) check_source(*ops_[i], *copy);
      const auto* kernel = std::get_if<Kernel>(&ops_[i]->body);
      if (kernel == nullptr) continue;
      switch (kernel->kind) {
        case KernelKind::cross_entropy:
        case KernelKind::cross_entropy_loss: sums = true; break;
        case KernelKind::loss_finish:
          finishes = true;
          check(i, operand_of(*kernel, "loss"), true);
          break;
        case KernelKind::norm_finish: check(i, operand_of(*kernel, "norm"), false); break;
        default: break;
      }
    }
    if (sums && !finishes)
      report(fmt::format("plan '{}' sums a loss that nothing finishes", plan_.name));
  }

 private:
  void check(std::size_t finish, const Operand* made, bool is_first) {
    if (made == nullptr) return;
    for (std::size_t i = finish + 1; i < ops_.size(); ++i)
      if (const auto* copy = std::get_if<Copy>(&ops_[i]->body))
        if (copy->kind == CopyKind::d2h && brings(*copy, *made, is_first)) return;
    report(
        fmt::format("op {} ({}) of plan '{}' writes '{}', which no later copy of the step brings "
                    "to the host",
                    ops_[finish]->id.value, ops_[finish]->name, plan_.name, made->role));
  }

  [[nodiscard]] bool brings(const Copy& copy, const Operand& made, bool is_first) const {
    const Buffer& host = program_.buffers[*index_.buffers.find(copy.output.buffer)];
    const std::int64_t begin = copy.input.offset;
    const std::int64_t bytes = copy.input.span_bytes();
    return host.holds && host.holds->port == Port::report && copy.input.buffer == made.buffer &&
           copy.output.offset == 0 && copy.output.span_bytes() == host.size.value &&
           begin <= made.offset && made.offset + made.span_bytes() <= begin + bytes &&
           (!is_first || made.offset == begin);
  }

  /// What kernels take for tokens and for the step block comes from the host's ports of that name.
  void check_source(const Op& op, const Copy& copy) {
    if (copy.kind != CopyKind::h2d) return;
    const Buffer& host = program_.buffers[*index_.buffers.find(copy.input.buffer)];
    const auto check_for = [&](Port port, bool taken) {
      if (taken && (!host.holds || host.holds->port != port))
        report(fmt::format("op {} ({}) of plan '{}' brings buffer '{}', which is not the port {}",
                           op.id.value, op.name, plan_.name, host.name, to_string(port)));
    };
    const auto has = [&](const std::vector<BufferId>& taken) {
      return std::ranges::find(taken, copy.output.buffer) != taken.end();
    };
    check_for(Port::tokens, has(tokens_));
    check_for(Port::step_block, has(step_blocks_));
  }

  /// What kernels take for tokens and for the step block.
  void find_taken() {
    const auto add = [](const Kernel& kernel, std::string_view role, std::vector<BufferId>& taken) {
      if (const Operand* operand = operand_of(kernel, role)) taken.push_back(operand->buffer);
    };
    for (const Op* op : ops_)
      if (const auto* kernel = std::get_if<Kernel>(&op->body)) {
        if (kernel->kind == KernelKind::token_copy) add(*kernel, "input", tokens_);
        if (kernel->kind == KernelKind::update) add(*kernel, "step_block", step_blocks_);
      }
  }

  void report(std::string what) {
    if (!findings_.wants("MF115")) return;
    findings_.add({.rule = "MF115", .message = std::move(what)});
  }

  const Program& program_;
  const ProgramIndex& index_;
  const Plan& plan_;
  FindingList& findings_;
  std::vector<const Op*> ops_;
  std::vector<BufferId> tokens_;       // copied as tokens
  std::vector<BufferId> step_blocks_;  // read as step blocks
};

}  // namespace

void check_reports(const Program& program, const ProgramIndex& index, const Plan& plan,
                   FindingList& findings) {
  ReportCheck(program, index, plan, findings).run();
}

}  // namespace mfsdp
