#include "verify/proof/prove.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/plan/instances.hpp"
#include "verify/proof/order/unfolded_program.hpp"
#include "verify/proof/passes.hpp"

namespace mfsdp {
namespace {

/// Instances take up to a hundred bytes each with their clocks.
constexpr Int128 kMostInstances = 20'000'000;

Result<void> check_size(const Program& program, const ProofSettings& settings) {
  for (const Plan& plan : program.plans) {
    Int128 instances = 0;
    for (std::size_t s = 0; s < plan.segments.size(); ++s)
      instances += Int128{ops_in_run(plan, s)} *
                   std::min(plan.segments[s].repeat, settings.repetitions) * settings.steps;
    if (instances > kMostInstances)
      return fail(fmt::format("plan '{}'", plan.name),
                  fmt::format("expected at most {} ops when it is unrolled over {} steps",
                              static_cast<std::int64_t>(kMostInstances), settings.steps));
  }
  return {};
}

/// Each rank has a few counters for each communicator.
constexpr Int128 kMostRanks = 1 << 17;

void count_ops(const Program& program, Proof& proof) {
  for (const Plan& plan : program.plans)
    for (const Op& op : ops_of(plan)) {
      ++proof.ops;
      if (op.kind() == OpKind::wait || op.kind() == OpKind::host_wait) ++proof.waits;
    }
}

/// A program in which nothing rotates is followed as it is.
Result<void> run_passes_unfolded(const Program& program, const ProofSettings& settings,
                                 bool all_classes, FindingList& findings, Proof& proof) {
  if (!has_rotation(program)) {
    MFSDP_TRY(check_size(program, settings));
    run_passes(program, {}, settings, all_classes, findings, proof);
    return {};
  }
  MFSDP_LET(unfolded, unfolded_program(program));
  MFSDP_TRY(check_size(unfolded.program, settings));
  run_passes(unfolded.program, unfolded.runs, settings, all_classes, findings, proof);
  // An op's fault is found in each of its variants.
  for (Finding& finding : findings.take()) {
    unfolded.restore(finding);
    if (std::ranges::find(proof.findings, finding) == proof.findings.end())
      proof.findings.push_back(std::move(finding));
  }
  return {};
}

Result<Proof> prove_program(const Program& program, const ProofSettings& settings,
                            bool all_classes) {
  if (settings.steps < 1 || settings.repetitions < 1)
    return fail("settings", "expected at least one step and one repetition");
  if (program.config.base_dtype != BaseDType::compute)
    return fail("config.base_dtype",
                fmt::format("expected compute: no proof follows weights of {}, which mfsdp-sim "
                            "predicts",
                            to_string(program.config.base_dtype)));
  Proof proof;
  count_ops(program, proof);
  FindingList findings(settings.most_findings);
  check_program_structure(program, findings);
  proof.only_structure = findings.has_errors();
  if (!proof.only_structure) {
    if (settings.expand_ranks) MFSDP_TRY(check_world(program.config.mesh));
    try {
      MFSDP_TRY(run_passes_unfolded(program, settings, all_classes, findings, proof));
    } catch (const OverflowError& error) {
      return fail("plan", fmt::format("a size is too large: {}", error.what()));
    }
  }
  if (proof.findings.empty()) proof.findings = findings.take();
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
