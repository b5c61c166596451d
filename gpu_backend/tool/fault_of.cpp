#include "gpu_backend/tool/fault_of.hpp"

#include <fmt/format.h>

#include "core/cli/format.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/job.hpp"

namespace mfsdp {
namespace {

InjectedFault::Kind kind_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::fail: return InjectedFault::Kind::fail;
    case FaultKind::stop: return InjectedFault::Kind::stop;
    case FaultKind::kill: return InjectedFault::Kind::kill;
    case FaultKind::miscount: break;
  }
  return InjectedFault::Kind::miscount;
}

}  // namespace

Result<const Op*> find_op(const Program& program, const std::string& name,
                          const std::string& flag) {
  for (const Op& op : ops_of(*program.find_plan(PlanRole::train)))
    if (op.name == name && (op.kind() == OpKind::kernel || op.kind() == OpKind::collective))
      return &op;
  return fail(flag, in_quotes(name) +
                        " is no kernel or collective of the train plan (--plan-out lists them)");
}

Result<InjectedFault> fault_of(const FaultFlag& flag, std::span<const Program> programs) {
  const std::int64_t ranks = programs.front().config.mesh.world_size();
  if (flag.rank >= ranks)
    return fail("--fault",
                fmt::format("there is no rank {}: expected 0 to {}", flag.rank, ranks - 1));
  MFSDP_LET(op, find_op(program_of(programs, flag.rank), flag.op, "--fault"));
  if (flag.kind == FaultKind::miscount && op->kind() != OpKind::collective)
    return fail("--fault", in_quotes(flag.op) + " is no collective: it counts nothing");
  return InjectedFault{
      .kind = kind_of(flag.kind), .rank = flag.rank, .op = op->id, .step = flag.step - 1};
}

}  // namespace mfsdp
