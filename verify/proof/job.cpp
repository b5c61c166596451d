#include "verify/proof/job.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "core/plan/instances.hpp"
#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/ledger/gradient_scaling.hpp"
#include "verify/proof/memory/symmetric_memory.hpp"
#include "verify/proof/order/unfolded_program.hpp"
#include "verify/proof/ranks/rank_sequences.hpp"
#include "verify/proof/shared_groups.hpp"
#include "verify/proof/values/host_ports.hpp"
#include "verify/proof/values/values.hpp"

namespace mfsdp {
namespace {

/// A class's program with what the proofs made of it, which prove_part() has found sound.
struct ProvedClass {
  explicit ProvedClass(std::string its_role, UnfoldedProgram program)
      : role(std::move(its_role)),
        unfolded(std::move(program)),
        index(unfolded.program),
        tables(access_tables(unfolded.program, index)),
        layouts(unfolded.program, index, ignored) {}

  std::string role;
  UnfoldedProgram unfolded;
  FindingList ignored{0};
  ProgramIndex index;
  std::vector<AccessTable> tables;
  Layouts layouts;
};

std::string role_of(const Program& program) {
  return program.classes.empty() ? "rank" : program.classes.front().role;
}

/// One plan of a class.
struct FollowedPlan {
  const ProvedClass* of = nullptr;
  const AccessTable* table = nullptr;
  UnrolledPlan unrolled;
  FollowedOps followed;
};

FollowedPlan followed_plan(const ProvedClass& of, std::string_view name,
                           const ProofSettings& settings) {
  FindingList ignored(0);
  const Program& program = of.unfolded.program;
  std::size_t p = 0;
  while (program.plans[p].name != name) ++p;
  return {.of = &of,
          .table = &of.tables[p],
          .unrolled =
              unroll(program, of.index, program.plans[p], settings, ignored, of.unfolded.runs[p]),
          .followed = followed_ops(program, program.plans[p], of.layouts, of.tables[p])};
}

/// Calls run(i) for each i below `count`: on two threads, unless `alone` or no other thread starts.
template <class Run>
void run_each(std::size_t count, bool alone, const Run& run) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) run(i);
  };
  const std::launch deferred = std::launch::deferred;
  std::future<void> other = std::async(alone ? deferred : std::launch::async | deferred, work);
  work();
  other.get();
}

/// Adds a class's findings, which name its role.
void add_of_class(const std::string& role, std::vector<Finding> found,
                  std::vector<Finding>& findings) {
  for (Finding& finding : found) {
    for (Place& place : finding.places) place.stream = role + " " + place.stream;
    for (Place& place : finding.interleaving) place.stream = role + " " + place.stream;
    finding.message = role + ": " + finding.message;
    findings.push_back(std::move(finding));
  }
}

/// Has every class go on until none can: all are then at their end, unless receives wait for sends
/// that never come, which rank_sequences.hpp finds.
template <class Run, class Payload>
void run_together(std::vector<Run>& runs, const PeerClasses& peers,
                  MessageQueues<Payload>& queues) {
  std::vector<bool> ended(runs.size(), false);
  // A class that waits is looked at again once all others had their turn. Each turn of all classes
  // brings at least one of them on.
  for (std::size_t turns = 0; turns < ended.size();) {
    for (std::uint32_t c = 0; c < runs.size(); ++c) {
      Mailbox<Payload> ends(queues, peers, c);
      const bool was_ended = ended[c];
      if (!was_ended) ended[c] = runs[c].go_on(&ends);
      turns = was_ended || (!ended[c] && !ends.used()) ? turns + 1 : 0;
      if (turns >= ended.size()) break;
    }
  }
}

class JobCheck {
 public:
  JobCheck(const Job& job, const ProofSettings& settings, bool is_small)
      : settings_(settings),
        is_small_(is_small),
        mesh_(job.programs[0].config.mesh),
        class_of_(class_of_ranks(job)),
        peers_(mesh_, class_of_) {}

  Result<void> add_classes(const Job& job) {
    classes_.resize(job.programs.size());
    std::vector<Result<void>> errors(classes_.size());
    run_each(classes_.size(), is_small_, [&](std::size_t c) {
      const Program& program = job.programs[c];
      auto unfolded = unfolded_program(program, Repetitions::all);
      if (unfolded)
        classes_[c] = std::make_unique<ProvedClass>(role_of(program), *std::move(unfolded));
      else
        errors[c] = tl::unexpected<Error>(std::move(unfolded.error()));
    });
    for (Result<void>& error : errors) MFSDP_TRY(error);
    return {};
  }

  void check(std::string_view name, bool sound, std::vector<Finding>& findings) {
    std::vector<std::optional<FollowedPlan>> made(classes_.size());
    run_each(classes_.size(), is_small_,
             [&](std::size_t c) { made[c].emplace(followed_plan(*classes_[c], name, settings_)); });
    std::vector<FollowedPlan> plans;
    for (std::optional<FollowedPlan>& plan : made) plans.push_back(*std::move(plan));
    FindingList between(settings_.most_findings);
    std::vector<const UnrolledPlan*> unrolled;
    for (const FollowedPlan& plan : plans) unrolled.push_back(&plan.unrolled);
    check_every_rank(unrolled, class_of_, between);
    const bool all_meet = !between.has_errors();
    std::ranges::move(between.take(), std::back_inserter(findings));
    if (all_meet) follow_contents(plans, sound, findings);
  }

 private:
  void follow_contents(const std::vector<FollowedPlan>& plans, bool sound,
                       std::vector<Finding>& findings) {
    std::vector<FindingList> of_values(plans.size(), FindingList(settings_.most_findings));
    std::vector<FindingList> of_scaling = of_values;
    std::vector<ValueRun> values;
    std::vector<GradientScaling> scales;
    for (std::size_t c = 0; c < plans.size(); ++c) {
      values.emplace_back(plans[c].unrolled, *plans[c].table, plans[c].of->layouts, of_values[c]);
      scales.emplace_back(plans[c].unrolled, plans[c].followed, of_scaling[c]);
    }
    MessageQueues<SentValues> sent_values;
    MessageQueues<SentScaling> sent_scaling;
    run_each(2, is_small_, [&](std::size_t which) {
      if (which == 0)
        run_together(values, peers_, sent_values);
      else
        run_together(scales, peers_, sent_scaling);
    });
    for (std::size_t c = 0; c < plans.size(); ++c) {
      if (sound) add(*plans[c].of, of_values[c].take(), findings);
      add(*plans[c].of, of_scaling[c].take(), findings);
    }
  }

  static void add(const ProvedClass& of, std::vector<Finding> found,
                  std::vector<Finding>& findings) {
    for (Finding& finding : found) of.unfolded.restore(finding);
    add_of_class(of.role, std::move(found), findings);
  }

  ProofSettings settings_;
  bool is_small_;
  Mesh mesh_;
  std::vector<std::uint32_t> class_of_;
  PeerClasses peers_;
  std::vector<std::unique_ptr<ProvedClass>> classes_;
};

/// Whether it is not worth a thread.
bool is_small(const Job& job, const ProofSettings& settings) {
  std::int64_t ops = 0;
  for (const Program& program : job.programs)
    for (const Plan& plan : program.plans) ops += count_ops(plan);
  return static_cast<std::size_t>(ops) <= settings.ops_for_two_threads;
}

bool sends(const Program& program) {
  return std::ranges::any_of(program.plans, [](const Plan& plan) {
    return std::ranges::any_of(ops_of(plan), [](const Op& op) {
      const auto* collective = std::get_if<Collective>(&op.body);
      return collective != nullptr && is_point_to_point(collective->kind);
    });
  });
}

}  // namespace

Result<JobProof> prove_job(const Job& job, const ProofSettings& settings) {
  JobProof proof;
  if (job.programs.size() == 1 && !sends(job.programs[0])) {
    MFSDP_LET(only, prove(job.programs[0], settings));
    proof.findings = std::exchange(only.findings, {});
    proof.classes.push_back(std::move(only));
    return proof;
  }
  ProofSettings of_class = settings;
  of_class.expand_ranks = false;
  MFSDP_TRY(check_world(job.programs[0].config.mesh));
  const bool small = is_small(job, settings);
  bool resolves = true;
  bool sound = true;  // what races or lives wrongly is followed by no contents
  std::vector<std::optional<Result<Proof>>> parts(job.programs.size());
  run_each(parts.size(), small,
           [&](std::size_t c) { parts[c].emplace(prove_part(job.programs[c], of_class)); });
  for (std::size_t c = 0; c < parts.size(); ++c) {
    const Program& program = job.programs[c];
    MFSDP_LET(part, *std::move(parts[c]));
    resolves = resolves && !part.only_structure;
    for (const Finding& finding : part.findings) {
      const bool of_order = finding.rule.starts_with("MF00") || finding.rule.starts_with("MF10");
      sound = sound && !(of_order && is_error(finding.rule));
    }
    add_of_class(role_of(program), std::exchange(part.findings, {}), proof.findings);
    proof.classes.push_back(std::move(part));
  }
  if (resolves) {
    JobCheck check(job, of_class, small);
    MFSDP_TRY(check.add_classes(job));
    for (const Plan& plan : job.programs[0].plans) check.check(plan.name, sound, proof.findings);
    FindingList of_all(settings.most_findings);
    const std::vector<std::uint32_t> class_of = class_of_ranks(job);
    std::vector<const Program*> classes;
    for (const Program& program : job.programs) {
      check_symmetric_classes(program, ProgramIndex(program), class_of, of_all);
      classes.push_back(&program);
    }
    check_shared_groups(job, of_all);
    check_trains_model(classes, of_all);
    std::ranges::move(of_all.take(), std::back_inserter(proof.findings));
  }
  std::ranges::stable_sort(proof.findings, {}, &Finding::rule);
  return proof;
}

}  // namespace mfsdp
