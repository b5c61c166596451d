#include "verify/proof/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <utility>

#include "core/plan/structure_faults.hpp"
#include "verify/proof/ledger/checks.hpp"
#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/ledger/gradient_scaling.hpp"
#include "verify/proof/ledger/gradients.hpp"
#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/memory/registered_memory.hpp"
#include "verify/proof/memory/shared_bytes.hpp"
#include "verify/proof/memory/symmetric_memory.hpp"
#include "verify/proof/order/accesses.hpp"
#include "verify/proof/order/races.hpp"
#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/ranks/collectives.hpp"
#include "verify/proof/ranks/rank_sequences.hpp"
#include "verify/proof/ranks/rank_slices.hpp"
#include "verify/proof/values/configured_model.hpp"
#include "verify/proof/values/host_ports.hpp"
#include "verify/proof/values/kernels.hpp"
#include "verify/proof/values/values.hpp"

namespace mfsdp {
namespace {

/// A pass that may run on a second thread, with findings of its own.
struct Concurrent {
  const PassInfo* pass = nullptr;
  std::future<FindingList> findings;
};

struct ProgramState {
  const Program& program;
  const ProofSettings& settings;
  bool all_classes;
  FindingList& findings;
  Proof& proof;
  ProgramIndex index{program};
  std::vector<AccessTable> tables = access_tables(program, index);  ///< by plan
  bool of_model = computes_model(program, index);
  std::optional<Layouts> layouts{};            ///< after pass "layouts"
  std::vector<std::vector<PoolPeak>> peaks{};  ///< by plan, after its pass "live memory"
  std::vector<Concurrent> concurrent{};

  [[nodiscard]] bool is_large() const {
    return std::ranges::any_of(tables, [&](const AccessTable& table) {
      return table.first.size() > settings.ops_for_two_threads;
    });
  }
};

struct PlanState {
  ProgramState& of;
  const Plan& plan;
  const AccessTable& table;
  UnrolledPlan unrolled{};             ///< after pass "waits and records"
  FollowedOps followed{};              ///< likewise
  std::span<const SegmentRun> runs{};  ///< of an unfolded plan, by segment
  std::vector<Concurrent> concurrent{};

  [[nodiscard]] bool is_large() const {
    return table.first.size() > of.settings.ops_for_two_threads;
  }
};

template <class State>
struct ProofPass {
  PassInfo info;
  void (*run)(State&, FindingList&);
  bool is_long = false;  ///< takes as long as all passes after it: runs concurrently with them
};

// ---- passes of a program -----------------------------------------------------------------------

constexpr PassInfo kStructure{"structure", "MF001 MF002 MF003 MF004 MF005"};

constexpr std::array kProgramPasses{
    ProofPass<ProgramState>{
        {"places of persistent buffers", "MF103"},
        [](ProgramState& s, FindingList& found) { check_persistent_places(s.program, found); }},
    ProofPass<ProgramState>{
        {"axes of the mesh", "MF113"},
        [](ProgramState& s, FindingList& found) { check_axes(s.program, s.of_model, found); }},
    ProofPass<ProgramState>{{"shapes of collectives", "MF204"},
                            [](ProgramState& s, FindingList& found) {
                              check_collective_shapes(s.program, s.index, s.of_model, found);
                            }},
    ProofPass<ProgramState>{{"operands that share bytes", "MF007 MF204 MF505"},
                            [](ProgramState& s, FindingList& found) {
                              check_shared_bytes(s.program, s.index, s.tables, found);
                            }},
    ProofPass<ProgramState>{{"symmetric memory", "MF205"},
                            [](ProgramState& s, FindingList& found) {
                              check_symmetric_memory(s.program, s.index, found);
                            }},
    ProofPass<ProgramState>{
        {"kernels against their specs", "MF007"},
        [](ProgramState& s, FindingList& found) { check_kernels(s.program, s.index, found); },
        true},
    ProofPass<ProgramState>{
        {"layouts", "MF303 MF501 MF502 MF503"},
        [](ProgramState& s, FindingList& found) { s.layouts.emplace(s.program, s.index, found); }},
    ProofPass<ProgramState>{
        {"configured dtypes", "MF502", {.model = true}},
        [](ProgramState& s, FindingList& found) { check_configured_dtypes(s.program, found); }},
    ProofPass<ProgramState>{
        {"slices of updates", "MF504"},
        [](ProgramState& s, FindingList& found) { check_updates(s.program, *s.layouts, found); }},
    ProofPass<ProgramState>{{"plans that train and evaluate", "MF115", {.all_classes = true}},
                            [](ProgramState& s, FindingList& found) {
                              const Program* only = &s.program;
                              check_trains_model({&only, 1}, found);
                            }},
};

// ---- passes of each plan -----------------------------------------------------------------------

void unroll_plan(PlanState& s, FindingList& found) {
  s.unrolled = unroll(s.of.program, s.of.index, s.plan, s.of.settings, found, s.runs);
  s.followed = followed_ops(s.of.program, s.plan, *s.of.layouts, s.table);
  s.of.proof.instances += std::ssize(s.unrolled.instances);
}

void measure_live_memory(PlanState& s, FindingList& /*finds nothing*/) {
  Bounds& bounds = s.of.proof.bounds;
  s.of.peaks.push_back(pool_peaks(s.unrolled));
  bounds.concurrent_collectives =
      std::max(bounds.concurrent_collectives, concurrent_collectives(s.unrolled));
  bounds.redundant_waits.insert(bounds.redundant_waits.end(), s.unrolled.redundant_waits.begin(),
                                s.unrolled.redundant_waits.end());
}

void find_redundant_waits(PlanState& s, FindingList& found) {
  const UnrolledPlan& unrolled = s.unrolled;
  if (unrolled.redundant_waits.empty()) return;
  std::vector<bool> noted(unrolled.redundant_waits.size());
  for (std::size_t i = 0; i < unrolled.instances.size(); ++i) {
    const Instance& instance = unrolled.instances[i];
    const OpKind kind = unrolled.facts(i).kind;
    if (kind != OpKind::wait && kind != OpKind::host_wait) continue;
    const auto wait = std::ranges::lower_bound(unrolled.redundant_waits, instance.op->id);
    if (wait == unrolled.redundant_waits.end() || *wait != instance.op->id) continue;
    const auto number = static_cast<std::size_t>(wait - unrolled.redundant_waits.begin());
    if (noted[number]) continue;
    if (!found.wants("MF604")) return;
    noted[number] = true;
    const Place place = place_of(unrolled, i);
    found.add({.rule = "MF604",
               .message = fmt::format(
                   "op {}, {}, can be removed: all ops that it orders are ordered without it",
                   place.op.value, to_text(place)),
               .places = {place}});
  }
}

void compare_all_ranks(PlanState& s, FindingList& found) {
  Expansion& expansion = s.of.proof.expansion;
  expansion.ranks = s.of.program.config.mesh.world_size();
  const std::vector<std::uint32_t> class_of(static_cast<std::size_t>(expansion.ranks), 0);
  const UnrolledPlan* only = &s.unrolled;
  expansion.collectives += check_every_rank({&only, 1}, class_of, found);
}

constexpr std::array kPlanPasses{
    ProofPass<PlanState>{{"waits and records", "MF104 MF105 MF108"}, unroll_plan},
    ProofPass<PlanState>{{"values", "MF111 MF112 MF113", {.order = true, .all_classes = true}},
                         [](PlanState& s, FindingList& found) {
                           check_values(s.unrolled, s.table, *s.of.layouts, found);
                         },
                         true},
    ProofPass<PlanState>{
        {"races and lifetimes", "MF006 MF101 MF102 MF103 MF106 MF107"},
        [](PlanState& s, FindingList& found) { check_races(s.unrolled, s.table, found); }},
    ProofPass<PlanState>{{"registered memory", "MF205"},
                         [](PlanState& s, FindingList& found) {
                           check_registered_memory(s.unrolled, s.table, found);
                         }},
    ProofPass<PlanState>{
        {"gradients", "MF301 MF302 MF303 MF304 MF305 MF306 MF308 MF309 MF310 MF505"},
        [](PlanState& s, FindingList& found) {
          check_gradients(s.unrolled, *s.of.layouts, s.followed, found);
        }},
    ProofPass<PlanState>{{"versions of weights", "MF401 MF402 MF403 MF404"},
                         [](PlanState& s, FindingList& found) {
                           check_weights(s.unrolled, *s.of.layouts, s.followed, found);
                         }},
    ProofPass<PlanState>{{"directions of Muon", "MF405"},
                         [](PlanState& s, FindingList& found) {
                           check_directions(s.unrolled, *s.of.layouts, s.followed, found);
                         }},
    ProofPass<PlanState>{
        {"1/T, norm and loss scale", "MF115 MF307 MF308 MF311 MF312 MF313", {.all_classes = true}},
        [](PlanState& s, FindingList& found) {
          check_gradient_scaling(s.unrolled, s.followed, found);
        }},
    ProofPass<PlanState>{{"memory of the host", "MF115 MF313"},
                         [](PlanState& s, FindingList& found) {
                           check_host_ports(s.of.program, s.of.index, s.plan, found);
                         }},
    ProofPass<PlanState>{{"live memory", ""}, measure_live_memory},
    ProofPass<PlanState>{{"redundant waits", "MF604"}, find_redundant_waits},
    ProofPass<PlanState>{
        {"sequences of all ranks", "MF201 MF202 MF203 MF206", {.every_rank = true}},
        compare_all_ranks},
    ProofPass<PlanState>{{"slices of all ranks", "MF506", {.every_rank = true}},
                         [](PlanState& s, FindingList& found) {
                           s.of.proof.expansion.parameter_intervals +=
                               check_rank_slices(s.unrolled, *s.of.layouts, s.followed, found);
                         }},
};

constexpr PassInfo kBounds{"bounds", "MF601 MF602 MF603"};

// ---- running them ------------------------------------------------------------------------------

/// With a race, or a lifetime that is wrong, the order of ops in host order proves nothing.
bool order_holds(const FindingList& findings) {
  return std::ranges::none_of(findings.list(), [](const Finding& finding) {
    return (finding.rule.starts_with("MF00") || finding.rule.starts_with("MF10")) &&
           is_error(finding.rule);
  });
}

bool may_run(const PassNeeds& needs, const ProgramState& state) {
  return (!needs.model || state.of_model) && (!needs.all_classes || state.all_classes) &&
         (!needs.every_rank || state.settings.expand_ranks);
}

template <class State>
std::future<FindingList> start(const ProofPass<State>& pass, State& state,
                               std::size_t most_findings) {
  const std::launch deferred = std::launch::deferred;  // also where no other thread starts
  return std::async(state.is_large() ? std::launch::async | deferred : deferred,
                    [run = pass.run, &state, most_findings] {
                      FindingList findings(most_findings);
                      run(state, findings);
                      return findings;
                    });
}

void run_all(const auto& passes, auto& state, const ProgramState& program) {
  for (const auto& pass : passes) {
    if (!may_run(pass.info.needs, program)) continue;
    if (pass.is_long)
      state.concurrent.push_back({&pass.info, start(pass, state, program.settings.most_findings)});
    else
      pass.run(state, program.findings);
  }
}

/// Adds what concurrent passes find, or runs them now if no thread has.
void join(std::vector<Concurrent>& concurrent, FindingList& findings) {
  for (Concurrent& one : concurrent) {
    if (one.pass->needs.order && !order_holds(findings)) continue;
    for (Finding& finding : one.findings.get().take()) findings.add(std::move(finding));
  }
  concurrent.clear();
}

}  // namespace

std::vector<PassInfo> passes() {
  std::vector<PassInfo> all{kStructure};
  for (const auto& pass : kProgramPasses) all.push_back(pass.info);
  for (const auto& pass : kPlanPasses) all.push_back(pass.info);
  all.push_back(kBounds);
  return all;
}

void check_program_structure(const Program& program, FindingList& findings) {
  constexpr std::array<const char*, 5> kRules{"MF001", "MF002", "MF003", "MF004", "MF005"};
  for (const StructureFault& fault : structure_faults(program, findings.most()))
    findings.add({.rule = kRules.at(static_cast<std::size_t>(fault.kind)),
                  .message = fault.where + ": " + fault.what,
                  .buffer = fault.buffer});
}

void run_passes(const Program& program, std::span<const std::vector<SegmentRun>> runs,
                const ProofSettings& settings, bool all_classes, FindingList& findings,
                Proof& proof) {
  ProgramState state{.program = program,
                     .settings = settings,
                     .all_classes = all_classes,
                     .findings = findings,
                     .proof = proof};
  proof.of_model = is_of_model(program, state.index);
  run_all(kProgramPasses, state, state);
  for (std::size_t p = 0; p < program.plans.size(); ++p) {
    PlanState plan{.of = state, .plan = program.plans[p], .table = state.tables[p]};
    if (!runs.empty()) plan.runs = runs[p];
    run_all(kPlanPasses, plan, state);
    join(state.concurrent, findings);
    join(plan.concurrent, findings);
  }
  join(state.concurrent, findings);
  Bounds bounds = bounds_of(program, state.index, state.peaks, findings);
  bounds.concurrent_collectives = proof.bounds.concurrent_collectives;
  bounds.redundant_waits = std::move(proof.bounds.redundant_waits);
  proof.bounds = std::move(bounds);
}

}  // namespace mfsdp
