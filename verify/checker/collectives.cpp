#include "verify/checker/collectives.hpp"

#include "verify/checker/json.hpp"

namespace mfsdp::checker {
namespace {

/// NCCL counts elements: all_gather per rank sent, reduce_scatter per rank received.
bool fits(const Op& op, std::int64_t ranks) {
  const Operand& input = *op.operand("input");
  const Operand& output = *op.operand("output");
  if (op.does != "all_gather" && op.does != "all_reduce" && op.does != "reduce_scatter") return false;
  if (op.does == "all_reduce") ranks = 1;
  const bool gathers = op.does == "all_gather";
  const Operand& whole = gathers ? output : input;
  const Operand& part = gathers ? input : output;
  return part.elements == op.count && op.count <= kMost / ranks && whole.elements == op.count * ranks &&
         input.dtype == op.dtype && output.dtype == op.dtype && input.dense && output.dense &&
         (op.reduction == "none") == gathers;
}

}  // namespace

void check_collectives(const PlanView& view, const Plan& plan, const Json& sequences,
                       CheckedPlan& figures) {
  const auto where = [&] { return fmt::format("plan '{}'", plan.name); };
  std::vector<Json> issued(view.communicators.size(), Json::array());
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      if (op.kind != Kind::collective) continue;
      const int c = op.communicator;
      if (!fits(op, view.communicators[c].size))
        throw Refusal{fmt::format("{}, op {} ({})", where(), op.id, op.name),
                      fmt::format("{} of {} {} does not fit its operands, its reduction or {} ranks",
                                  op.does, op.count, op.dtype, view.communicators[c].size)};
      issued[c].push_back({op.does, op.count, op.dtype, op.reduction, segment.repeat});
      ++figures.collectives;
    }
  if (!sequences.is_array() || sequences.size() != issued.size())
    throw Refusal{where(), fmt::format("expected {} sequences of collectives", issued.size())};
  for (std::size_t c = 0; c < issued.size(); ++c) {
    const Json so{{"count", issued[c].size()}, {"hash", hash_of(issued[c])}};
    if (sequences[c] != so)
      throw Refusal{where(), fmt::format("communicator {} is claimed to issue {}, where {} is so", c,
                                         sequences[c].dump().substr(0, 80), so.dump())};
  }
}

}  // namespace mfsdp::checker
