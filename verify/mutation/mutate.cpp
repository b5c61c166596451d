#include "verify/mutation/mutate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "core/plan/plan_json.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

/// One finding of each rule is enough to know all broken rules.
constexpr ProofSettings kOneOfEach{.steps = 2, .repetitions = 2, .most_findings = 1};

Result<void> certified(const Program& program, const Certify& certify) {
  if (certify) return certify(program);
  MFSDP_LET(certificate, certificate_of(program));
  MFSDP_TRY(check_certificate(to_canonical_json(program), certificate));
  return {};
}

/// The errors' rules, ascending.
std::vector<std::string> rules_against(const Program& program) {
  const auto proof = prove(program, kOneOfEach);
  if (!proof) return {"refused"};
  std::set<std::string> rules;
  for (const Finding& finding : proof->findings)
    if (is_error(finding.rule)) rules.insert(finding.rule);
  return {rules.begin(), rules.end()};
}

std::vector<Mutant> all_mutants(const Program& program) {
  std::vector<Mutant> list;
  for_each_mutant(program, [&](const Mutant& mutant) { return list.push_back(mutant), true; });
  return list;
}

/// The mutants to judge, in the order of for_each_mutant.
struct Choice {
  std::vector<Mutant> mutants;
  std::int64_t unchanged = 0;  ///< others that were drawn: they change nothing
};

/// All mutants, or `most` of those that change the program, each as likely as any other.
Choice chosen(const Program& program, const MutationSettings& settings, std::vector<Mutant> all) {
  if (!settings.most) return {.mutants = std::move(all)};
  std::vector<std::size_t> places(all.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::mt19937_64 random(settings.seed);
  Choice choice;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < places.size() && kept.size() < *settings.most; ++i) {
    std::swap(places[i], places[i + random() % (places.size() - i)]);
    if (apply(program, all[places[i]]))
      kept.push_back(places[i]);
    else
      ++choice.unchanged;
  }
  std::ranges::sort(kept);
  for (const std::size_t place : kept) choice.mutants.push_back(all[place]);
  return choice;
}

class Judgement {
 public:
  Judgement(const Program& program, const MutationSettings& settings,
            const std::vector<Mutant>& mutants)
      : program_(program), settings_(settings), mutants_(mutants), verdicts_(mutants.size()) {}

  void run() {
    const std::size_t hardware = std::max(1U, std::thread::hardware_concurrency());
    const std::size_t workers = settings_.workers == 0 ? hardware : settings_.workers;
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(workers, mutants_.size()); ++i)
      threads.emplace_back([this] { work(); });
    work();
  }

  /// By mutant; nothing for those that change nothing or were not come to.
  [[nodiscard]] const std::vector<std::optional<MutantVerdict>>& verdicts() const {
    return verdicts_;
  }
  [[nodiscard]] std::int64_t unchanged() const { return unchanged_; }

 private:
  void work() {
    for (std::size_t i = 0; !stopped_ && (i = next_++) < mutants_.size();) {
      if (const auto altered = apply(program_, mutants_[i]))
        verdicts_[i] = judge(*altered, mutants_[i], settings_.certify);
      else
        ++unchanged_;
      tell();
    }
  }

  void tell() {
    const std::size_t done = ++done_;
    if (!settings_.progress || (done % 64 != 0 && done != mutants_.size())) return;
    const std::scoped_lock one(telling_);
    if (!settings_.progress(done, mutants_.size())) stopped_ = true;
  }

  const Program& program_;
  const MutationSettings& settings_;
  const std::vector<Mutant>& mutants_;
  std::vector<std::optional<MutantVerdict>> verdicts_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::int64_t> unchanged_{0};
  std::atomic<bool> stopped_{false};
  std::mutex telling_;
};

void count(FateCounts& counts, Fate fate) {
  switch (fate) {
    case Fate::killed: ++counts.killed; return;
    case Fate::correct: ++counts.correct; return;
    case Fate::uncertified: ++counts.uncertified; return;
  }
}

}  // namespace

MutantVerdict judge(const Program& altered, const Mutant& mutant, const Certify& certify) {
  MutantVerdict verdict{
      .mutant = mutant, .fate = Fate::killed, .rules = rules_against(altered), .refusal = {}};
  if (!verdict.rules.empty()) return verdict;
  const auto outcome = certified(altered, certify);
  verdict.fate = outcome ? Fate::correct : Fate::uncertified;
  if (!outcome) verdict.refusal = outcome.error().message();
  return verdict;
}

Result<MutationReport> mutate(const Program& program, const MutationSettings& settings) {
  const MutantVerdict self = judge(program, {}, settings.certify);
  if (self.fate == Fate::killed)
    return fail("plan", fmt::format("expected one without errors, got {}", self.rules.front()));
  if (self.fate == Fate::uncertified) return fail("plan", self.refusal);
  std::vector<Mutant> all = all_mutants(program);
  MutationReport report;
  report.mutants = std::ssize(all);
  const Choice choice = chosen(program, settings, std::move(all));
  Judgement judgement(program, settings, choice.mutants);
  judgement.run();
  report.unchanged = choice.unchanged + judgement.unchanged();
  for (const auto& verdict : judgement.verdicts()) {
    if (!verdict) continue;
    count(report.total, verdict->fate);
    count(report.by_kind[verdict->mutant.kind], verdict->fate);
    for (const std::string& rule : verdict->rules) ++report.by_rule[rule];
    report.verdicts.push_back(*verdict);
  }
  return report;
}

}  // namespace mfsdp
