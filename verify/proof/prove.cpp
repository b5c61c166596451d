#include "verify/proof/prove.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/bounds.hpp"
#include "verify/proof/collectives.hpp"
#include "verify/proof/followed_ops.hpp"
#include "verify/proof/gradients.hpp"
#include "verify/proof/kernel_forms.hpp"
#include "verify/proof/layouts.hpp"
#include "verify/proof/races.hpp"
#include "verify/proof/registered.hpp"
#include "verify/proof/reports.hpp"
#include "verify/proof/scales.hpp"
#include "verify/proof/structure.hpp"
#include "verify/proof/unrolled_plan.hpp"
#include "verify/proof/updates.hpp"
#include "verify/proof/values.hpp"
#include "verify/proof/weights.hpp"

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

void count_ops(const Program& program, Proof& proof) {
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments) {
      proof.ops += std::ssize(segment.ops);
      for (const Op& op : segment.ops)
        if (op.kind() == OpKind::wait || op.kind() == OpKind::host_wait) ++proof.waits;
    }
}

void note_redundant(const UnrolledPlan& unrolled, FindingList& findings) {
  const auto redundant = [&](OpId id) {
    return std::ranges::binary_search(unrolled.redundant_waits, id);
  };
  std::vector<bool> noted(unrolled.redundant_waits.empty() ? 0 : unrolled.instances.size());
  if (noted.empty()) return;
  for (std::size_t i = 0; i < unrolled.instances.size(); ++i) {
    const Instance& instance = unrolled.instances[i];
    const OpKind kind = instance.op->kind();
    if ((kind != OpKind::wait && kind != OpKind::host_wait) || noted[instance.op_index]) continue;
    if (!redundant(instance.op->id) || !findings.wants("MF604")) continue;
    noted[instance.op_index] = true;
    Finding finding;
    finding.rule = "MF604";
    finding.places = {place_of(unrolled, i)};
    finding.message = fmt::format("op {}, {}, orders nothing that is not ordered without it",
                                  instance.op->id.value, to_text(finding.places.front()));
    findings.add(std::move(finding));
  }
}

Bounds prove_plans(const Program& program, const ProgramIndex& index,
                   const std::vector<AccessTable>& tables, const ProofSettings& settings,
                   FindingList& findings, std::int64_t& instances) {
  std::vector<std::vector<PoolPeak>> peaks;
  std::vector<OpId> redundant;
  std::int64_t concurrent = 0;
  const Layouts layouts(program, index, findings);
  check_updates(program, layouts, findings);
  for (std::size_t p = 0; p < program.plans.size(); ++p) {
    const UnrolledPlan unrolled = unroll(program, index, program.plans[p], settings, findings);
    instances += std::ssize(unrolled.instances);
    check_races(unrolled, tables[p], findings);
    check_registered(unrolled, tables[p], findings);
    const auto followed = followed_ops(program.plans[p], layouts, tables[p]);
    check_gradients(unrolled, layouts, followed, findings);
    check_weights(unrolled, layouts, followed, findings);
    check_scales(unrolled, followed, findings);
    check_reports(program, index, program.plans[p], findings);
    check_values(unrolled, tables[p], layouts, findings);
    peaks.push_back(pool_peaks(unrolled));
    concurrent = std::max(concurrent, concurrent_collectives(unrolled));
    redundant.insert(redundant.end(), unrolled.redundant_waits.begin(),
                     unrolled.redundant_waits.end());
    note_redundant(unrolled, findings);
  }
  Bounds bounds = bounds_of(program, index, peaks, findings);
  bounds.concurrent_collectives = concurrent;
  bounds.redundant_waits = std::move(redundant);
  return bounds;
}

}  // namespace

Result<Proof> prove(const Program& program, const ProofSettings& settings) {
  if (settings.steps < 1 || settings.repetitions < 1)
    return fail("settings", "expected at least one step and one repetition");
  for (const Plan& plan : program.plans) MFSDP_TRY(check_size(plan, settings));
  Proof proof;
  count_ops(program, proof);
  FindingList findings(settings.most_findings);
  const ProgramIndex index(program);
  std::vector<AccessTable> tables;
  check_program(program, index, tables, findings);
  if (!findings.has_errors()) {
    try {
      check_persistent_places(program, findings);
      check_collective_shapes(program, index, findings);
      check_kernel_forms(program, index, findings);
      proof.bounds = prove_plans(program, index, tables, settings, findings, proof.instances);
    } catch (const OverflowError& error) {
      return fail("plan", fmt::format("a size is too large: {}", error.what()));
    }
  }
  proof.findings = findings.take();
  std::ranges::stable_sort(proof.findings, {}, &Finding::rule);
  return proof;
}

}  // namespace mfsdp
