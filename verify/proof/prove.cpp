#include "verify/proof/prove.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <iterator>

#include "verify/proof/ledger/directions.hpp"
#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/ledger/gradients.hpp"
#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/ledger/scales.hpp"
#include "verify/proof/ledger/updates.hpp"
#include "verify/proof/ledger/weights.hpp"
#include "verify/proof/memory/bounds.hpp"
#include "verify/proof/memory/registered.hpp"
#include "verify/proof/memory/shared_bytes.hpp"
#include "verify/proof/memory/windows.hpp"
#include "verify/proof/order/races.hpp"
#include "verify/proof/order/structure.hpp"
#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/order/write_out.hpp"
#include "verify/proof/ranks/collectives.hpp"
#include "verify/proof/ranks/rank_sequences.hpp"
#include "verify/proof/ranks/rank_slices.hpp"
#include "verify/proof/values/configured_model.hpp"
#include "verify/proof/values/kernel_forms.hpp"
#include "verify/proof/values/reports.hpp"
#include "verify/proof/values/values.hpp"

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

void note_redundant(const UnrolledPlan& unrolled, FindingList& findings) {
  std::vector<bool> noted(unrolled.redundant_waits.empty() ? 0 : unrolled.instances.size());
  if (noted.empty()) return;
  for (std::size_t i = 0; i < unrolled.instances.size(); ++i) {
    const Instance& instance = unrolled.instances[i];
    const OpKind kind = unrolled.facts(i).kind;
    if ((kind != OpKind::wait && kind != OpKind::host_wait) || noted[instance.op_index]) continue;
    if (!std::ranges::binary_search(unrolled.redundant_waits, instance.op->id)) continue;
    if (!findings.wants("MF604")) return;
    noted[instance.op_index] = true;
    Finding finding;
    finding.rule = "MF604";
    finding.places = {place_of(unrolled, i)};
    finding.message = fmt::format("op {}, {}, orders nothing that is not ordered without it",
                                  instance.op->id.value, to_text(finding.places.front()));
    findings.add(std::move(finding));
  }
}

/// Findings of a check that has a list of its own: made beside what follows, or when asked for.
template <class Check>
std::future<FindingList> start(bool at_one_time, const ProofSettings& settings, Check check) {
  const std::launch deferred = std::launch::deferred;  // also where no other thread starts
  return std::async(at_one_time ? std::launch::async | deferred : deferred,
                    [most = settings.most_findings, check] {
                      FindingList findings(most);
                      check(findings);
                      return findings;
                    });
}

void add_all(FindingList from, FindingList& findings) {
  for (Finding& finding : from.take()) findings.add(std::move(finding));
}

/// With a race or a lifetime that is wrong, host order stands for nothing.
bool host_order_counts(const FindingList& findings) {
  return std::ranges::none_of(findings.list(), [](const Finding& finding) {
    return (finding.rule.starts_with("MF00") || finding.rule.starts_with("MF10")) &&
           is_error(finding.rule);
  });
}

/// What is looked at for each rank of one plan.
void expand(const UnrolledPlan& unrolled, const Layouts& layouts, const FollowedOps& followed,
            FindingList& findings, Expansion& expansion) {
  expansion.ranks = unrolled.program->config.mesh.world_size();
  const std::vector<std::uint32_t> class_of(static_cast<std::size_t>(expansion.ranks), 0);
  const UnrolledPlan* only = &unrolled;
  expansion.collectives += check_every_rank({&only, 1}, class_of, findings);
  expansion.parameter_intervals += check_rank_slices(unrolled, layouts, followed, findings);
}

/// `ledger` is for findings of what weights and gradients hold: other rules than all the rest.
Bounds prove_plans(const Program& program, const ProgramIndex& index,
                   const std::vector<AccessTable>& tables, const ProofSettings& settings,
                   bool whole, FindingList& findings, FindingList& ledger, Proof& proof) {
  std::vector<std::vector<PoolPeak>> peaks;
  std::vector<OpId> redundant;
  std::int64_t concurrent = 0;
  const auto is_large = [&](const AccessTable& table) {
    return table.first.size() > settings.ops_for_two_threads;
  };
  std::future<FindingList> forms =
      start(std::ranges::any_of(tables, is_large), settings,
            [&](FindingList& list) { check_kernel_forms(program, index, list); });
  const Layouts layouts(program, index, findings);
  if (computes_model(program, index)) check_configured_dtypes(program, findings);
  check_updates(program, layouts, findings);
  const Program* only = &program;
  if (whole) check_whole({&only, 1}, ledger);
  for (std::size_t p = 0; p < program.plans.size(); ++p) {
    const UnrolledPlan unrolled = unroll(program, index, program.plans[p], settings, findings);
    const FollowedOps followed = followed_ops(program, program.plans[p], layouts, tables[p]);
    proof.instances += std::ssize(unrolled.instances);
    // As long as all the rest, and judged after it.
    std::future<FindingList> values = start(is_large(tables[p]), settings, [&](FindingList& list) {
      if (whole) check_values(unrolled, tables[p], layouts, list);
    });
    check_races(unrolled, tables[p], findings);
    check_registered(unrolled, tables[p], findings);
    check_gradients(unrolled, layouts, followed, ledger);
    check_weights(unrolled, layouts, followed, ledger);
    check_directions(unrolled, layouts, followed, ledger);
    if (whole) check_scales(unrolled, followed, ledger);
    check_reports(program, index, program.plans[p], ledger);
    peaks.push_back(pool_peaks(unrolled));
    concurrent = std::max(concurrent, concurrent_collectives(unrolled));
    if (forms.valid()) add_all(forms.get(), findings);
    if (host_order_counts(findings)) add_all(values.get(), findings);
    note_redundant(unrolled, findings);
    if (settings.expand_ranks) expand(unrolled, layouts, followed, findings, proof.expansion);
    redundant.insert(redundant.end(), unrolled.redundant_waits.begin(),
                     unrolled.redundant_waits.end());
  }
  Bounds bounds = bounds_of(program, index, peaks, findings);
  bounds.concurrent_collectives = concurrent;
  bounds.redundant_waits = std::move(redundant);
  return bounds;
}

/// Proves a program whose ids resolve, written out if things of it take turns.
void prove_sound(const Program& program, const ProofSettings& settings, bool whole,
                 FindingList& findings, FindingList& ledger, Proof& proof) {
  const ProgramIndex index(program);
  const std::vector<AccessTable> tables = access_tables(program, index);
  check_persistent_places(program, findings);
  check_collective_shapes(program, index, computes_model(program, index), findings);
  check_shared_bytes(program, index, tables, findings);
  check_windows(program, index, findings);
  proof.of_model = is_of_model(program, index);
  proof.bounds = prove_plans(program, index, tables, settings, whole, findings, ledger, proof);
}

void prove_written_out(const WrittenOut& written, const ProofSettings& settings, bool whole,
                       FindingList& findings, FindingList& ledger, Proof& proof) {
  prove_sound(written.program, settings, whole, findings, ledger, proof);
  proof.bounds.redundant_waits = written.redundant_waits(proof.bounds.redundant_waits);
}

Result<Proof> prove_program(const Program& program, const ProofSettings& settings, bool whole) {
  if (settings.steps < 1 || settings.repetitions < 1)
    return fail("settings", "expected at least one step and one repetition");
  for (const Plan& plan : program.plans) MFSDP_TRY(check_size(plan, settings));
  Proof proof;
  count_ops(program, proof);
  FindingList findings(settings.most_findings);
  FindingList ledger(settings.most_findings);
  std::optional<WrittenOut> written;
  check_program(program, findings);
  proof.only_structure = findings.has_errors();
  if (settings.expand_ranks && !proof.only_structure) MFSDP_TRY(check_world(program.config.mesh));
  if (!proof.only_structure) {
    try {
      if (takes_turns(program)) {
        MFSDP_LET(made, write_out(program));
        written = std::move(made);
        prove_written_out(*written, settings, whole, findings, ledger, proof);
      } else {
        prove_sound(program, settings, whole, findings, ledger, proof);
      }
    } catch (const OverflowError& error) {
      return fail("plan", fmt::format("a size is too large: {}", error.what()));
    }
  }
  proof.findings = findings.take();
  std::ranges::move(ledger.take(), std::back_inserter(proof.findings));
  if (written)
    for (Finding& finding : proof.findings) written->restore(finding);
  std::ranges::stable_sort(proof.findings, {}, &Finding::rule);
  return proof;
}

}  // namespace

Result<void> check_world(const Mesh& mesh) {
  Int128 ranks = 1;
  for (const MeshAxis& on : mesh.dense) ranks = std::min(ranks * on.size, kMostRanks + 1);
  if (ranks > kMostRanks)
    return fail("config.mesh", fmt::format("expected at most {} ranks to look at one by one",
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
