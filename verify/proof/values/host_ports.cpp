#include "verify/proof/values/host_ports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "core/plan/fp8.hpp"
#include "core/plan/instances.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/values/configured_model.hpp"

namespace mfsdp {
namespace {

class HostPortCheck {
 public:
  HostPortCheck(const Program& program, const ProgramIndex& index, const Plan& plan,
                FindingList& findings)
      : program_(program), index_(index), plan_(plan), findings_(findings) {
    list_ops();
    find_taken();
  }

  void run() {
    bool sums = false;
    bool finishes = false;
    bool brings_log_probs = false;
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      check_written_ports(*ops_[i]);
      if (const auto* copy = std::get_if<Copy>(&ops_[i]->body)) {
        check_source(*ops_[i], *copy);
        brings_log_probs = brings_log_probs || fills(*copy, Port::log_probs);
      }
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
      report(fmt::format("plan '{}' adds up a loss, but has no kernel loss_finish", plan_.name));
    if (const bool gives = plan_.role() == PlanRole::logprob; gives && sums && !brings_log_probs)
      report(fmt::format("plan '{}' is of role logprob, but no copy fills the host's log_probs",
                         plan_.name));
  }

 private:
  void list_ops() {
    std::vector<bool> listed(count_op_lists(plan_), false);
    for (std::size_t s = 0; s < plan_.segments.size(); ++s)
      for (const ListCall& call : calls_of(plan_, s)) {
        if (listed[call.list]) continue;
        listed[call.list] = true;
        for (const Op& op : op_list(plan_, call.list)) ops_.push_back(&op);
      }
  }

  void check(std::size_t finish, const Operand* made, bool is_first) {
    if (made == nullptr) return;
    for (std::size_t i = finish + 1; i < ops_.size(); ++i)
      if (const auto* copy = std::get_if<Copy>(&ops_[i]->body))
        if (copy->kind == CopyKind::d2h && brings(*copy, *made, is_first)) return;
    report(fmt::format(
        "op {} ({}) of plan '{}' writes '{}', but no later copy of the step brings it to "
        "the host's report",
        ops_[finish]->id.value, ops_[finish]->name, plan_.name, made->role));
  }

  /// Whether the copy writes the whole port. Its values are those of the plan (model_values.hpp).
  [[nodiscard]] bool fills(const Copy& copy, Port port) const {
    const Buffer& host = program_.buffers[*index_.buffers.find(copy.output.buffer)];
    return copy.kind == CopyKind::d2h && host.holds && host.holds->port == port &&
           copy.output.offset == 0 && copy.output.span_bytes() == host.size.value;
  }

  [[nodiscard]] bool brings(const Copy& copy, const Operand& made, bool is_first) const {
    const std::int64_t begin = copy.input.offset;
    const std::int64_t bytes = copy.input.span_bytes();
    return fills(copy, Port::report) && copy.input.buffer == made.buffer && begin <= made.offset &&
           made.offset + made.span_bytes() <= begin + bytes && (!is_first || made.offset == begin);
  }

  /// Ports are the host's. Copies write what it reads, and norms keep the loss scale.
  void check_written_ports(const Op& op) {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel != nullptr)
      for (const Operand& operand : kernel->operands)
        check_written(op, operand, port_of(*kernel, operand));
    if (const auto* collective = std::get_if<Collective>(&op.body))
      check_written(op, collective->output,
                    collective->reduction == Reduction::max ? std::optional(Port::amax_history)
                                                            : std::nullopt);
    if (const auto* copy = std::get_if<Copy>(&op.body)) {
      const Port may = fills(*copy, Port::log_probs) && plan_.role() == PlanRole::logprob
                           ? Port::log_probs
                           : Port::report;
      check_written(op, copy->output, copy->kind == CopyKind::d2h ? may : std::optional<Port>());
    }
  }
  /// The port that a kernel keeps between steps with that operand.
  [[nodiscard]] static std::optional<Port> port_of(const Kernel& kernel, const Operand& operand) {
    if (kernel.kind == KernelKind::norm_finish && operand.role == "loss_scale")
      return Port::loss_scale;
    const bool keeps = kernel.kind == KernelKind::amax_history || operand.role == "next_amax";
    return keeps ? std::optional(Port::amax_history) : std::nullopt;
  }
  void check_written(const Op& op, const Operand& operand, std::optional<Port> may) {
    if (!operand.stated() || operand.access == Access::read) return;
    const Buffer& buffer = program_.buffers[*index_.buffers.find(operand.buffer)];
    if (!buffer.holds || !buffer.holds->port || buffer.holds->port == may) return;
    report(
        fmt::format("op {} ({}) of plan '{}' writes '{}' into buffer {}, which belongs to the host",
                    op.id.value, op.name, plan_.name, operand.role, to_string(*buffer.holds->port)),
        buffer.holds->port == Port::loss_scale ? "MF313" : "MF115");
  }

  /// Tokens and step block of kernels come from the host's buffers for them.
  void check_source(const Op& op, const Copy& copy) {
    if (copy.kind != CopyKind::h2d) return;
    const Buffer& host = program_.buffers[*index_.buffers.find(copy.input.buffer)];
    const auto check_for = [&](Port port, bool taken) {
      if (taken && (!host.holds || host.holds->port != port))
        report(fmt::format(
            "op {} ({}) of plan '{}' copies buffer '{}' to the device; expected the buffer {}",
            op.id.value, op.name, plan_.name, host.name, to_string(port)));
    };
    const auto has = [&](const std::vector<BufferId>& taken) {
      return std::ranges::find(taken, copy.output.buffer) != taken.end();
    };
    check_for(Port::tokens, has(tokens_));
    check_for(Port::step_block, has(step_blocks_));
  }

  /// Buffers from which kernels read tokens and the step block.
  void find_taken() {
    const auto add = [](const Kernel& kernel, std::string_view role, std::vector<BufferId>& taken) {
      if (const Operand* operand = operand_of(kernel, role)) taken.push_back(operand->buffer);
    };
    for (const Op* op : ops_)
      if (const auto* kernel = std::get_if<Kernel>(&op->body)) {
        if (kernel->kind == KernelKind::token_copy) add(*kernel, "input", tokens_);
        if (is_update(*kernel) || is_momentum(*kernel)) add(*kernel, "step_block", step_blocks_);
      }
  }

  void report(std::string what, const char* rule = "MF115") {
    if (!findings_.wants(rule)) return;
    findings_.add({.rule = rule, .message = std::move(what)});
  }

  const Program& program_;
  const ProgramIndex& index_;
  const Plan& plan_;
  FindingList& findings_;
  std::vector<const Op*> ops_;         // in the order of their first runs
  std::vector<BufferId> tokens_;       // copied as tokens
  std::vector<BufferId> step_blocks_;  // read as step blocks
};

bool runs(const Plan& plan, KernelKind kind) {
  return std::ranges::any_of(ops_of(plan), [&](const Op& op) {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    return kernel != nullptr && kernel->kind == kind;
  });
}

/// The dtype as which the host reads and writes a port.
DType dtype_of(Port port) {
  if (port == Port::tokens) return DType::int32;
  return port == Port::step_block ? DType::uint8 : DType::fp32;
}

/// Bytes that the host writes for the device or reads from it.
std::int64_t bytes_of(Port port, const PlanConfig& config) {
  constexpr std::int64_t kStepBlock = 64;
  constexpr std::int64_t kReport = 8;  // numbers
  constexpr std::int64_t kLossScale = 4;
  switch (port) {
    case Port::tokens:
      return product_of(config.token_rows(), config.tokens_per_microbatch(), size_of(DType::int32));
    case Port::step_block: return kStepBlock;
    case Port::report: return kReport * size_of(DType::fp32);
    case Port::loss_scale: return kLossScale * size_of(DType::fp32);
    case Port::amax_history:
      return checked_mul(amax_history::elements(config), size_of(DType::fp32));
    case Port::log_probs: return product_of(config.tokens_per_microbatch(), size_of(DType::fp32));
    case Port::rope_table:
    case Port::local_rope_table: break;
  }
  return product_of(config.seq_len, config.model.rotated_dim(), size_of(DType::fp32));
}

/// Classes of ranks that run one model together.
class TrainsModelCheck {
 public:
  TrainsModelCheck(std::span<const Program* const> classes, FindingList& findings)
      : classes_(classes), findings_(findings) {}

  void run() {
    // Plans by hand may take no tokens; jobs of several classes may have no eval.
    if (!any_plan([](const Plan& plan) { return runs(plan, KernelKind::token_copy); })) return;
    for (const PlanRole role : {PlanRole::train, PlanRole::eval, PlanRole::logprob}) {
      const bool is_there = any_plan([&](const Plan& plan) { return plan.role() == role; });
      if (!is_there) {
        if (classes_.size() == 1 && role != PlanRole::logprob)
          report(fmt::format("there is no plan of role {}", to_string(role)));
        continue;
      }
      check(role, KernelKind::token_copy, "has no kernel that reads tokens (token_copy)");
      check(role, KernelKind::loss_finish, "has no kernel that finishes the loss (loss_finish)");
      if (role == PlanRole::logprob) check(Port::log_probs);
    }
    check(PlanRole::train, KernelKind::norm_finish,
          "has no kernel that finishes the gradient norm (norm_finish)");
    for (const Port port : {Port::tokens, Port::step_block, Port::report}) check(port);
    const ModelShape& model = classes_.front()->config.model;
    if (model.traits().rotates) check(Port::rope_table);
    if (model.has_other_rope()) check(Port::local_rope_table);
    if (classes_.front()->config.scales_loss()) check(Port::loss_scale);
    if (classes_.front()->config.fp8 == Fp8Recipe::delayed) check(Port::amax_history);
  }

 private:
  [[nodiscard]] bool any_plan(const auto& is) const {
    return std::ranges::any_of(
        classes_, [&](const Program* program) { return std::ranges::any_of(program->plans, is); });
  }

  void check(PlanRole role, KernelKind kind, std::string_view lack) {
    const bool found = std::ranges::any_of(classes_, [&](const Program* program) {
      const Plan* plan = program->find_plan(role);
      return plan != nullptr && runs(*plan, kind);
    });
    if (!found) report(fmt::format("the plan of role {} {}", to_string(role), lack));
  }

  void check(Port port) {
    bool found = false;
    for (const Program* program : classes_)
      for (const Buffer& buffer : program->buffers) {
        if (!buffer.holds || buffer.holds->port != port) continue;
        found = true;
        if (const DType dtype = dtype_of(port); buffer.dtype != dtype)
          report(fmt::format("buffer '{}' ({}) has dtype {}; expected {}", buffer.name,
                             to_string(port), to_string(buffer.dtype), to_string(dtype)));
        if (const std::int64_t bytes = bytes_of(port, program->config); buffer.size.value != bytes)
          report(fmt::format("buffer '{}' ({}) has {} bytes; expected {}", buffer.name,
                             to_string(port), buffer.size.value, bytes));
      }
    if (!found) report(fmt::format("there is no buffer for the host's {}", to_string(port)));
  }

  void report(std::string what) {
    if (!findings_.wants("MF115")) return;
    findings_.add({.rule = "MF115", .message = std::move(what)});
  }

  std::span<const Program* const> classes_;
  FindingList& findings_;
};

}  // namespace

void check_trains_model(std::span<const Program* const> classes, FindingList& findings) {
  const bool of_model = std::ranges::all_of(classes, [](const Program* program) {
    return is_of_model(*program, ProgramIndex(*program));
  });
  if (of_model) TrainsModelCheck(classes, findings).run();
}

void check_host_ports(const Program& program, const ProgramIndex& index, const Plan& plan,
                      FindingList& findings) {
  HostPortCheck(program, index, plan, findings).run();
}

}  // namespace mfsdp
