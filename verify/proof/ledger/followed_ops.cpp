#include "verify/proof/ledger/followed_ops.hpp"

#include <utility>

#include "core/plan/instances.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/order/races.hpp"

namespace mfsdp {
namespace {

std::uint8_t by_kind(const Op& op, const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::update: return kFollowGradients | kFollowWeights | kFollowScaling | kUpdates;
    case KernelKind::momentum: return kFollowGradients | kFollowScaling | kUpdates;
    case KernelKind::newton_schulz: return kFollowDirections;
    case KernelKind::norm_partial: return kFollowGradients | kFollowWeights | kFollowScaling;
    case KernelKind::cross_entropy:
    case KernelKind::cross_entropy_loss:
    case KernelKind::loss_finish:
    case KernelKind::norm_finish:
    case KernelKind::router_backward:
    case KernelKind::token_copy: return kFollowScaling;
    default: break;
  }
  if (is_forward(kernel)) return op.phase == Phase::recompute ? 0 : kUsesParameters;
  if (!makes_gradient(kernel)) return 0;
  return kFollowGradients | kMakesGradient | (kernel.attribute("beta") != 0 ? kAdds : 0);
}

std::uint8_t by_body(const Op& op) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body)) return by_kind(op, *kernel);
  const auto* collective = std::get_if<Collective>(&op.body);
  const bool moves_scaling_value =
      collective != nullptr &&
      (collective->kind == CollectiveKind::all_gather || is_point_to_point(collective->kind));
  return moves_scaling_value ? kFollowScaling : 0;
}

/// Whether an operand of that role is a sum of the loss or the norm, or what is made of it.
bool is_scaling_value(const Kernel& kernel, std::string_view role) {
  switch (kernel.kind) {
    case KernelKind::cross_entropy:
    case KernelKind::cross_entropy_loss: return role == "loss_sums";
    case KernelKind::loss_finish:
    case KernelKind::norm_finish: return role == "input" || role == "loss" || role == "norm";
    case KernelKind::norm_partial: return role == "output";
    case KernelKind::momentum:
    case KernelKind::update: return role == "loss" || role == "norm";
    default: return false;
  }
}

class Follower {
 public:
  Follower(const Program& program, const Plan& plan, const Layouts& layouts,
           const AccessTable& table)
      : program_(program),
        layouts_(layouts),
        table_(table),
        holds_scaling_(layouts.homes.size(), false),
        holds_ungrouped_(layouts.homes.size(), false) {
    out_.bits.reserve(table.first.size());
    out_.first.reserve(table.first.size());
    std::size_t number = 0;
    for (const Op& op : ops_of(plan)) {
      if (const auto* kernel = std::get_if<Kernel>(&op.body))
        for (const ByteAccess& access : table.of(number)) {
          if (is_scaling_value(*kernel, access.operand->role)) holds_scaling_[access.buffer] = true;
          if (makes_ungrouped(*kernel, access)) holds_ungrouped_[access.buffer] = true;
        }
      ++number;
    }
    follow_moved_scaling(plan);
  }

  void follow(const Op& op) {
    std::uint8_t bits = by_body(op);
    if (moves_scaling(op)) bits |= kFollowScaling;
    if (casts_for_gathers(op)) bits &= static_cast<std::uint8_t>(~kUsesParameters);
    for (const ByteAccess& access : table_.of(out_.bits.size())) {
      const Holds holds = layouts_.homes[access.buffer].holds;
      if (holds == Holds::weight) bits |= kFollowWeights;
      if (holds == Holds::gradient) bits |= kFollowGradients;
      if (holds == Holds::direction) bits |= kFollowDirections;
      if (is_report(access.buffer)) bits |= kFollowScaling;
      if (holds_scaling_[access.buffer] && overwrites_scaling(op, bits, access)) {
        bits |= kFollowScaling;
        out_.scaling_overwrites.push_back({.op = out_.bits.size(),
                                           .buffer = access.operand->buffer,
                                           .begin = access.begin,
                                           .end = access.end});
      }
      if (holds_ungrouped_[access.buffer] && overwrites_ungrouped(op, access)) {
        bits |= kFollowGradients;
        out_.ungrouped_overwrites.push_back({.op = out_.bits.size(),
                                             .buffer = access.buffer,
                                             .begin = access.begin,
                                             .end = access.end});
      }
    }
    out_.bits.push_back(bits);
    if ((bits & (kFollowGradients | kFollowWeights | kUsesParameters)) != 0) add_operands(op, bits);
    out_.first.push_back(static_cast<std::uint32_t>(out_.operands.size()));
  }

  [[nodiscard]] FollowedOps take() { return std::move(out_); }

 private:
  /// The GEMMs that read such a cast use the weight.
  [[nodiscard]] bool casts_for_gathers(const Op& op) const {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel == nullptr || kernel->kind != KernelKind::cast_scaled) return false;
    return std::ranges::any_of(kernel->operands, [&](const Operand& operand) {
      return operand.access != Access::read && layouts_.holds(operand) == Holds::weight;
    });
  }
  /// Where copies and gathers bring scales, scales lie too, from buffer to buffer.
  void follow_moved_scaling(const Plan& plan) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> moves;  // buffers
    std::size_t number = 0;
    for (const Op& op : ops_of(plan)) {
      const std::span<const ByteAccess> accesses = table_.of(number++);
      const auto* copy = std::get_if<Copy>(&op.body);
      const bool copies = copy != nullptr && !host_access(program_, *copy, accesses);
      const bool gathers =
          copy == nullptr && (by_body(op) & kFollowScaling) != 0 && op.kind() == OpKind::collective;
      if ((copies || gathers) && accesses.size() == 2)
        moves.emplace_back(accesses[0].buffer, accesses[1].buffer);
    }
    for (bool again = true; std::exchange(again, false);)
      for (const auto& [from, to] : moves)
        if (holds_scaling_[from] && !holds_scaling_[to]) again = holds_scaling_[to] = true;
  }
  [[nodiscard]] bool moves_scaling(const Op& op) const {
    const auto* copy = std::get_if<Copy>(&op.body);
    const std::span<const ByteAccess> accesses = table_.of(out_.bits.size());
    return copy != nullptr && !host_access(program_, *copy, accesses) && !accesses.empty() &&
           holds_scaling_[accesses[0].buffer];
  }

  [[nodiscard]] bool is_report(std::uint32_t buffer) const {
    const std::optional<Contents>& holds = program_.buffers[buffer].holds;
    return holds && holds->port == Port::report;
  }

  /// Gathers, sends and the kernels that make scales write what they are to write there.
  static bool overwrites_scaling(const Op& op, std::uint8_t bits, const ByteAccess& access) {
    if (!access.writes || access.operand == nullptr) return false;
    const auto* kernel = std::get_if<Kernel>(&op.body);
    return kernel != nullptr ? !is_scaling_value(*kernel, access.operand->role)
                             : (bits & kFollowScaling) == 0;
  }

  [[nodiscard]] bool overwrites_ungrouped(const Op& op, const ByteAccess& access) const {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    return access.writes && (kernel == nullptr || !makes_ungrouped(*kernel, access));
  }

  /// A gradient goes to where no group's lie: it is cast or copied there later.
  [[nodiscard]] bool makes_ungrouped(const Kernel& kernel, const ByteAccess& access) const {
    return makes_gradient(kernel) && access.operand != nullptr &&
           access.operand->role == "weight_grad" &&
           layouts_.homes[access.buffer].holds == Holds::other;
  }

  void add_operands(const Op& op, std::uint8_t bits) {
    if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
      const Operand* made =
          (bits & kMakesGradient) != 0 ? operand_of(*kernel, "weight_grad") : nullptr;
      for (const Operand& operand : kernel->operands) add(op, operand, &operand == made);
    } else if (const auto* collective = std::get_if<Collective>(&op.body)) {
      add(op, collective->input, false);
      add(op, collective->output, false);
    } else if (const auto* copy = std::get_if<Copy>(&op.body)) {
      add(op, copy->input, false);
      add(op, copy->output, false);
    }
  }

  void add(const Op& op, const Operand& operand, bool weight_grad) {
    if (!operand.stated()) return;
    const Holds holds = layouts_.holds(operand);
    if (holds != Holds::weight && holds != Holds::gradient) return;
    FollowedOperand followed{.operand = &operand,
                             .located = *layouts_.locate(operand),
                             .gradient = holds == Holds::gradient,
                             .reads = operand.access == Access::read,
                             .own_unit = false,
                             .weight_grad = weight_grad};
    const Located& located = followed.located;
    followed.own_unit = !op.unit || *op.unit == layouts_.groups[located.group].group->unit;
    if (followed.gradient)
      followed.spot = spot_of(layouts_, located);
    else if (located.exact)
      followed.atoms = layouts_.atoms_of(located.group, located.region);
    out_.operands.push_back(followed);
  }

  const Program& program_;
  const Layouts& layouts_;
  const AccessTable& table_;
  std::vector<bool> holds_scaling_;    ///< by buffer
  std::vector<bool> holds_ungrouped_;  ///< likewise
  FollowedOps out_;
};

}  // namespace

FollowedOps followed_ops(const Program& program, const Plan& plan, const Layouts& layouts,
                         const AccessTable& table) {
  Follower follower(program, plan, layouts, table);
  for (const Op& op : ops_of(plan)) follower.follow(op);
  return follower.take();
}

}  // namespace mfsdp
