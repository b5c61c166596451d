#include "verify/proof/prove.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "verify/proof/order/expand_instances.hpp"
#include "verify/proof/passes.hpp"

namespace mfsdp {
namespace {

/// Instances take up to a hundred bytes each with their clocks.
constexpr Int128 kMostInstances = 20'000'000;

Result<void> check_size(const Plan& plan, const ProofSettings& settings) {
  Int128 instances = 0;
  for (const Segment& segment : plan.segments)
    instances += Int128{std::ssize(segment.ops)} * std::min(segment.repeat, settings.repetitions) *
                 settings.steps;
  if (instances > kMostInstances)
    return fail(fmt::format("plan '{}'", plan.name),
                fmt::format("expected at most {} ops when it is unrolled over {} steps",
                            static_cast<std::int64_t>(kMostInstances), settings.steps));
  return {};
}

/// Each rank has a few counters for each communicator.
constexpr Int128 kMostRanks = 1 << 17;

void count_ops(const Program& program, Proof& proof) {
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments) {
      proof.ops += std::ssize(segment.ops);
      for (const Op& op : segment.ops)
        if (op.kind() == OpKind::wait || op.kind() == OpKind::host_wait) ++proof.waits;
    }
}

Result<Proof> prove_program(const Program& program, const ProofSettings& settings,
                            bool all_classes) {
  if (settings.steps < 1 || settings.repetitions < 1)
    return fail("settings", "expected at least one step and one repetition");
  for (const Plan& plan : program.plans) MFSDP_TRY(check_size(plan, settings));
  Proof proof;
  count_ops(program, proof);
  FindingList findings(settings.most_findings);
  check_program_structure(program, findings);
  proof.only_structure = findings.has_errors();
  std::optional<ExpandedProgram> expanded;
  if (!proof.only_structure) {
    if (settings.expand_ranks) MFSDP_TRY(check_world(program.config.mesh));
    try {
      if (has_instances(program)) MFSDP_SET(expanded, expand_instances(program));
      run_passes(expanded ? expanded->program : program, settings, all_classes, findings, proof);
    } catch (const OverflowError& error) {
      return fail("plan", fmt::format("a size is too large: {}", error.what()));
    }
  }
  proof.findings = findings.take();
  if (expanded) {
    proof.bounds.redundant_waits = expanded->redundant_waits(proof.bounds.redundant_waits);
    for (Finding& finding : proof.findings) expanded->restore(finding);
  }
  std::ranges::stable_sort(proof.findings, {}, &Finding::rule);
  return proof;
}

}  // namespace

Result<void> check_world(const Mesh& mesh) {
  Int128 ranks = 1;
  for (const MeshAxis& on : mesh.dense) ranks = std::min(ranks * on.size, kMostRanks + 1);
  if (ranks > kMostRanks)
    return fail("config.mesh", fmt::format("expected at most {} ranks where each rank is checked",
                                           static_cast<std::int64_t>(kMostRanks)));
  return {};
}

Result<Proof> prove_part(const Program& program, const ProofSettings& settings) {
  return prove_program(program, settings, false);
}

Result<Proof> prove(const Program& program, const ProofSettings& settings) {
  return prove_program(program, settings, true);
}

}  // namespace mfsdp
