// The additional fields of plans with several classes and microbatches are proved: each of these
// fields, altered by one, is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/plan/instances.hpp"
#include "tests/support/pipeline.hpp"
#include "verify/mutation/mutant.hpp"
#include "verify/proof/job.hpp"

namespace mfsdp {
namespace {

using enum MutantKind;

bool is_right(const Job& job) {
  const ProofSettings one_of_each{.steps = 2, .repetitions = 2, .most_findings = 1};
  const auto proof = prove_job(job, one_of_each);
  return proof && !has_errors(proof->findings);
}

bool takes_turns(const Program& program, BufferId id) {
  return std::ranges::find(program.buffers, id, &Buffer::id)->instances.has_value();
}

/// Whether the op touches a buffer of which there are several: its lag means nothing otherwise.
bool depends_on_lag(const Program& program, const Op& op) {
  if (const auto* acquire = std::get_if<Acquire>(&op.body))
    return takes_turns(program, acquire->buffer);
  if (const auto* release = std::get_if<Release>(&op.body))
    return takes_turns(program, release->buffer);
  const auto* kernel = std::get_if<Kernel>(&op.body);
  return kernel != nullptr && std::ranges::any_of(kernel->operands, [&](const Operand& operand) {
           return takes_turns(program, operand.buffer);
         });
}

bool call_depends_on_lag(const Program& program, const Plan& plan, const Mutant& mutant) {
  const ListCall call = calls_of(plan, mutant.list)[mutant.part];
  return std::ranges::any_of(op_list(plan, call.list),
                             [&](const Op& op) { return depends_on_lag(program, op); });
}

/// More instances than needed are harmless, as are those of an event that the class does not use.
bool is_wrong(const Program& program, const Mutant& mutant) {
  const Plan& plan = program.plans[mutant.plan];
  switch (mutant.kind) {
    case change_lag: return depends_on_lag(program, op_list(plan, mutant.list)[mutant.index]);
    case change_call_lag: return call_depends_on_lag(program, plan, mutant);
    case change_instances: return mutant.part == 0 && mutant.by < 0;
    case change_distance:
    case change_peer: return true;
    default: return false;
  }
}

TEST(PipelineMutants, FieldsOfClassesAndTurnsAreFound) {
  const Job job = test::pipeline();
  std::set<MutantKind> judged;
  for (std::size_t c = 0; c < job.programs.size(); ++c) {
    for_each_mutant(job.programs[c], [&](const Mutant& mutant) {
      if (!is_wrong(job.programs[c], mutant)) return true;
      Job altered = job;
      altered.programs[c] = apply(job.programs[c], mutant).value();
      judged.insert(mutant.kind);
      EXPECT_FALSE(is_right(altered)) << describe(job.programs[c], mutant);
      return true;
    });
  }
  EXPECT_THAT(judged, testing::ElementsAre(change_instances, change_distance, change_peer,
                                           change_call_lag));
}

}  // namespace
}  // namespace mfsdp
