#include "verify/proof/memory/symmetric_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/plan/instances.hpp"
#include "verify/findings/place_names.hpp"

namespace mfsdp {
namespace {

/// Whether some members are of other classes than others.
bool is_mixed(const Communicator& communicator, const Mesh& mesh,
              std::span<const std::uint32_t> class_of) {
  const Membership membership(communicator.axes, mesh);
  for (std::int64_t group = 0; group < membership.count(); ++group) {
    const auto of = [&](std::int64_t member) {
      return class_of[static_cast<std::size_t>(membership.rank(group, member))];
    };
    for (std::int64_t member = 1; member < membership.size(); ++member)
      if (of(member) != of(0)) return true;
  }
  return false;
}

class SymmetricMemoryCheck {
 public:
  /// `mixed`: communicators whose members are of several classes; then nothing else is looked at.
  SymmetricMemoryCheck(const Program& program, const ProgramIndex& index, FindingList& findings,
                       std::set<CommunicatorId> mixed = {})
      : program_(program), index_(index), findings_(findings), mixed_(std::move(mixed)) {}

  void run() {
    for (const Plan& plan : program_.plans)
      for (std::size_t list = 0; list < count_op_lists(plan); ++list) {
        grouped_ = false;
        for (const Op& op : op_list(plan, list)) visit(plan, op);
      }
  }

 private:
  void visit(const Plan& plan, const Op& op) {
    if (op.kind() == OpKind::group_begin) grouped_ = true;
    if (op.kind() == OpKind::group_end) grouped_ = false;
    const auto* collective = std::get_if<Collective>(&op.body);
    if (collective == nullptr) return;
    const Communicator& communicator =
        program_.communicators[index_.communicators[collective->communicator]];
    if (!uses_symmetric_memory(communicator) || !findings_.wants("MF205")) return;
    const std::string why = obstacle(*collective, communicator);
    if (why.empty()) return;
    const std::size_t stream = index_.streams[op.stream];
    findings_.add(
        {.rule = "MF205",
         .message = fmt::format("op {} ({}) asks for transport {}, but {}", op.id.value, op.name,
                                to_string(communicator.transport), why),
         .places = {place_in_plan(plan, op, std::string(to_string(program_.streams[stream].role)))},
         .buffer =
             collective->output.stated() ? collective->output.buffer : collective->input.buffer});
  }

  /// Why NCCL would not use symmetric memory; empty where it would.
  [[nodiscard]] std::string obstacle(const Collective& collective,
                                     const Communicator& communicator) const {
    if (!mixed_.empty())
      return mixed_.contains(communicator.id)
                 ? "its ranks are of several classes, whose pools differ"
                 : "";
    if (is_point_to_point(collective.kind)) return "send and recv have no symmetric memory";
    if (grouped_) return "it is in a group of collectives";
    if (const std::string cannot = inability(collective, communicator); !cannot.empty())
      return cannot;
    for (const Operand* operand : {&collective.input, &collective.output})
      if (const std::string where = misplaced(*operand, communicator); !where.empty()) return where;
    return {};
  }

  static std::string inability(const Collective& collective, const Communicator& communicator) {
    const bool by_engines = communicator.transport == Transport::copy_engine;
    if (collective.kind == CollectiveKind::shift) return "a shift is sends and receives";
    if (collective.kind == CollectiveKind::all_to_all && !by_engines)
      return "no symmetric kernel does an all_to_all";
    if (collective.reduction == Reduction::none) return {};
    if (by_engines) return "copy engines cannot add";
    if (collective.reduction == Reduction::max) return "no symmetric kernel takes a maximum";
    const bool adds = collective.dtype == DType::fp32 || collective.dtype == DType::bf16 ||
                      collective.dtype == DType::fp16;
    return adds ? "" : fmt::format("no symmetric kernel sums {}", to_string(collective.dtype));
  }

  [[nodiscard]] std::string misplaced(const Operand& operand,
                                      const Communicator& communicator) const {
    const Buffer& buffer = program_.buffers[index_.buffers[operand.buffer]];
    const Pool& pool = program_.pools[index_.pools[buffer.pool]];
    if (pool.registered != communicator.id)
      return fmt::format("its {} is in pool '{}', which is not registered with the communicator",
                         operand.role, pool.name);
    for (const RankStride& stride : operand.rank_strides)
      if (stride.bytes != 0 &&
          std::ranges::find(communicator.axes, stride.axis) != communicator.axes.end())
        return fmt::format(
            "its {} is at another offset on each rank: {} bytes further for each rank of {}",
            operand.role, stride.bytes, to_string(stride.axis));
    return {};
  }

  const Program& program_;
  const ProgramIndex& index_;
  FindingList& findings_;
  std::set<CommunicatorId> mixed_;
  bool grouped_ = false;
};

}  // namespace

void check_symmetric_memory(const Program& program, const ProgramIndex& index,
                            FindingList& findings) {
  if (std::ranges::any_of(program.communicators, uses_symmetric_memory))
    SymmetricMemoryCheck(program, index, findings).run();
}

void check_symmetric_classes(const Program& program, const ProgramIndex& index,
                             std::span<const std::uint32_t> class_of, FindingList& findings) {
  std::set<CommunicatorId> mixed;
  for (const Communicator& communicator : program.communicators)
    if (uses_symmetric_memory(communicator) &&
        is_mixed(communicator, program.config.mesh, class_of))
      mixed.insert(communicator.id);
  if (!mixed.empty()) SymmetricMemoryCheck(program, index, findings, std::move(mixed)).run();
}

}  // namespace mfsdp
