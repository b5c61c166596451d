#include "verify/mutation/mutate_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "core/plan/job.hpp"
#include "core/plan/plan_json.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/mutation/edit_pairs.hpp"
#include "verify/mutation/inert_fields.hpp"
#include "verify/mutation/run_apart.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/job.hpp"

namespace mfsdp {
namespace {

using FieldJson = nlohmann::json;
using Tell = std::function<void(std::string_view)>;

/// The errors' rules, ascending; as mfsdp-verify finds them.
Result<std::vector<std::string>> error_rules(const Job& job) {
  constexpr ProofSettings kOneOfEachRule{.steps = 2, .repetitions = 2, .most_findings = 1};
  MFSDP_LET(proof, prove_job(job, kOneOfEachRule));
  std::set<std::string> rules;
  for (const Finding& finding : proof.findings)
    if (is_error(finding.rule)) rules.insert(finding.rule);
  return std::vector<std::string>(rules.begin(), rules.end());
}

/// The first few results that are not as they should be; empty where all are.
std::string difference(const Results& right, const Results& got) {
  constexpr std::size_t kMostNamed = 3;
  std::vector<std::string> names;
  for (const auto& [name, bits] : right) {
    const auto found = got.find(name);
    if (found == got.end() || found->second != bits) names.push_back(name);
  }
  for (const auto& [name, bits] : got)
    if (!right.contains(name)) names.push_back(name);
  if (names.empty()) return {};
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostNamed, names.size()); ++i)
    text += (i > 0 ? "; " : "") + names[i];
  return names.size() > kMostNamed ? fmt::format("{}; {} results in all", text, names.size())
                                   : text;
}

/// Whether the checker accepts a certificate that is forged for a job.
bool is_forged(const Job& job, const Job& right, bool ids_resolve) {
  const std::string plan = to_canonical_json(job);
  const auto accepts = [&](const Result<std::string>& certificate) {
    return certificate && check_certificate(plan, *certificate);
  };
  return (ids_resolve && accepts(unproved_certificate(job))) ||
         accepts(forged_certificate(job, right));
}

/// Judges a certificate forged for a job that the proofs refuse. If the checker accepts it, a run
/// decides.
Forgery forgery_of(const FieldVerdict& verdict, const Job& job, const RightResults& right,
                   const Machines& machines, const Tell& tell) {
  tell("check\n");
  if (!is_forged(job, right.job, verdict.rules.front() >= "MF006")) return Forgery::refused;
  for (const auto& [run, expected] :
       {std::pair(&machines.once, &right.once), std::pair(&machines.shaken, &right.shaken)}) {
    const auto results = (*run)(job);
    if (!results || !difference(*expected, *results).empty()) return Forgery::accepted;
  }
  return Forgery::same;
}

FieldVerdict run_altered(FieldVerdict verdict, const Job& job, const RightResults& right,
                         const Machines& machines, const Tell& tell) {
  tell("run\n");
  const auto ends = [&](FieldFate fate, std::string why) {
    verdict.fate = fate;
    verdict.why = std::move(why);
    return verdict;
  };
  const InertField* inert = find_inert(verdict.mutant.field);
  for (const auto& [run, expected] :
       {std::pair(&machines.once, &right.once), std::pair(&machines.shaken, &right.shaken)}) {
    const auto results = (*run)(job);
    if (!results)  // another model may be one that no run of this machine, or no export, can be of
      return ends(inert != nullptr && inert->is_input ? FieldFate::other_model : FieldFate::not_run,
                  results.error().message());
    std::string differs = difference(*expected, *results);
    if (differs.empty()) continue;
    if (inert != nullptr && inert->is_input)
      return ends(FieldFate::other_model, std::string(inert->reason));
    tell("check\n");
    verdict.forgery = is_forged(job, right.job, true) ? Forgery::accepted : Forgery::refused;
    return ends(FieldFate::differs, std::move(differs));
  }
  if (inert == nullptr)
    return ends(verdict.mutant.edit == FieldEdit::pair ? FieldFate::same : FieldFate::not_listed,
                "no result differs");
  return ends(FieldFate::same, std::string(inert->reason));
}

/// A verdict less its mutant, as a line between processes.
std::string line_of(const FieldVerdict& verdict) {
  return FieldJson{{"fate", to_string(verdict.fate)},
                   {"forgery", to_string(verdict.forgery)},
                   {"rules", verdict.rules},
                   {"why", verdict.why}}
             .dump(-1, ' ', true, FieldJson::error_handler_t::replace) +
         "\n";
}

/// The last line is the verdict, or the stage in which the process ended.
FieldVerdict verdict_of(const FieldMutant& mutant, const ApartEnd& end,
                        std::chrono::milliseconds limit) {
  std::string_view told = end.told;
  if (told.ends_with('\n')) told.remove_suffix(1);
  const std::string last(told.substr(told.rfind('\n') + 1));
  FieldVerdict verdict{.mutant = mutant, .fate = FieldFate::crashed};
  const FieldJson line = FieldJson::parse(last, nullptr, false);
  if (line.is_object()) {
    verdict.fate = parse<FieldFate>(line["fate"].get<std::string>()).value();
    verdict.forgery = parse<Forgery>(line["forgery"].get<std::string>()).value();
    verdict.rules = line["rules"].get<std::vector<std::string>>();
    verdict.why = line["why"].get<std::string>();
  } else if (end.late) {
    verdict.why = fmt::format("{}: no end within {} s", last, limit.count() / 1000);
  } else {
    verdict.why = fmt::format("{}: ended by signal {}", last, end.signal);
  }
  return verdict;
}

/// All, or `most` with each as likely as any other, in their order.
std::vector<const FieldMutant*> drawn(const std::vector<FieldMutant>& list,
                                      const FieldMutationSettings& settings) {
  std::vector<const FieldMutant*> all;
  for (const FieldMutant& mutant : list) all.push_back(&mutant);
  std::vector<const FieldMutant*> some;
  std::mt19937_64 random(settings.seed);
  const std::size_t most = std::min(settings.most.value_or(all.size()), all.size());
  std::ranges::sample(all, std::back_inserter(some), static_cast<std::ptrdiff_t>(most), random);
  return some;
}

Result<RightResults> right_results(const Job& job, const Machines& machines) {
  MFSDP_LET(rules, error_rules(job));
  if (!rules.empty())
    return fail("plan", fmt::format("expected one without errors, got {}", rules.front()));
  MFSDP_LET(once, machines.once(job));
  MFSDP_LET(shaken, machines.shaken(job));
  MFSDP_LET(again, machines.shaken(job));
  if (const std::string differs = difference(shaken, again); !differs.empty())
    return fail("plan", fmt::format("its own results differ from run to run: {}", differs));
  return RightResults{.once = std::move(once), .shaken = std::move(shaken), .job = job};
}

}  // namespace

std::int64_t FieldMutationReport::defects() const {
  return std::ranges::count_if(verdicts, &FieldVerdict::is_defect);
}

FieldVerdict judge_altered(const std::string& text, const FieldMutant& mutant,
                           const RightResults& right, const Machines& machines, const Tell& tell) {
  FieldVerdict verdict{.mutant = mutant};
  tell("read\n");
  auto job = job_from_json(text, "plan");
  if (!job) {
    verdict.why = job.error().message();
    return verdict;
  }
  tell("prove\n");
  auto rules = error_rules(*job);
  if (!rules) {
    verdict.why = rules.error().message();
    return verdict;
  }
  verdict.fate = FieldFate::found;
  verdict.rules = std::move(*rules);
  if (!verdict.rules.empty()) {
    verdict.forgery = forgery_of(verdict, *job, right, machines, tell);
    return verdict;
  }
  return run_altered(std::move(verdict), *job, right, machines, tell);
}

namespace {

/// Changes of `plan`, the text of the job that is right.
Result<FieldMutationReport> judge_all(const RightResults& right, const FieldJson& plan,
                                      const FieldMutants& all,
                                      const FieldMutationSettings& settings) {
  const std::vector<const FieldMutant*> mutants = drawn(all.list, settings);
  std::vector<std::optional<FieldVerdict>> verdicts(mutants.size());
  std::size_t done = 0;
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  MFSDP_TRY(run_apart(
      mutants.size(),
      {.at_once = settings.workers == 0 ? 2 * threads : settings.workers, .limit = settings.limit},
      [&](std::size_t i, const Tell& tell) {
        tell(line_of(judge_altered(altered_text(plan, *mutants[i]), *mutants[i], right,
                                   settings.machines, tell)));
      },
      [&](std::size_t i, const ApartEnd& end) {
        verdicts[i] = verdict_of(*mutants[i], end, settings.limit);
        return !settings.progress || settings.progress(++done, mutants.size());
      }));
  FieldMutationReport report;
  report.plan_hash = plan_hash(right.job);
  report.fields = all.fields;
  report.mutants = std::ssize(all.list);
  for (auto& verdict : verdicts) {
    if (!verdict) continue;
    ++report.total[verdict->fate];
    ++report.forged[verdict->forgery];
    ++report.by_field[verdict->mutant.field][verdict->fate];
    for (const std::string& rule : verdict->rules) ++report.by_rule[rule];
    report.verdicts.push_back(std::move(*verdict));
  }
  return report;
}

}  // namespace

Result<FieldMutationReport> mutate_fields(const Job& job, const FieldMutationSettings& settings) {
  MFSDP_LET(right, right_results(job, settings.machines));
  const FieldJson plan = FieldJson::parse(to_canonical_json(job));
  return judge_all(right, plan, field_mutants(plan, settings.per_field, settings.seed), settings);
}

Result<FieldMutationReport> mutate_pairs(const Program& program,
                                         const FieldMutationSettings& settings) {
  MFSDP_LET(right, right_results(Job{.programs = {program}}, settings.machines));
  FieldMutants all{.list = pair_mutants(program, settings.per_field, settings.seed)};
  std::set<std::string> patterns;
  for (const FieldMutant& mutant : all.list) patterns.insert(mutant.field);
  all.fields = std::ssize(patterns);
  return judge_all(right, FieldJson::parse(to_canonical_json(program)), all, settings);
}

}  // namespace mfsdp
