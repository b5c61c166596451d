#include "verify/bugs/check_bugs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/read_file.hpp"
#include "core/cli/common_options.hpp"
#include "core/cli/plan_options.hpp"
#include "core/model/hf_config.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "verify/bugs/bug_row.hpp"
#include "verify/bugs/plan_document.hpp"
#include "verify/proof/classes.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp::bugs {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRowBytes = std::size_t{1} << 20;
constexpr std::size_t kMostPlanBytes = std::size_t{64} << 20;

Result<Program> build_base(const std::vector<std::string>& flags, const fs::path& models) {
  CommonOptions options;
  const std::vector<FlagGroup> groups = common_flags(options);
  MFSDP_LET(given, parse_flags(groups, flags));
  MFSDP_TRY(check_common(options, groups, given));
  MFSDP_LET(model, load_model(options.model, models));
  MFSDP_LET(config, make_plan_config(options, model.shape));
  return build_program(config, {});
}

Result<Program> load_base(const BasePlan& base, const fs::path& folder, const fs::path& models,
                          const std::string& where) {
  if (base.plan) {
    const fs::path path = folder / *base.plan;
    MFSDP_LET(text, read_file(path, "a plan", kMostPlanBytes));
    return program_from_json(text, path.string());
  }
  auto built = build_base(base.flags, models);
  if (!built) return fail(where + ".flags: " + built.error().where, built.error().what);
  return built;
}

/// After the edits: where the planner has changed, the first name that no longer fits says more.
Result<void> check_hash(const BasePlan& base, const Program& program, const std::string& where) {
  if (const std::string hash = plan_hash(program); hash != base.hash)
    return fail(where + ".plan_hash",
                fmt::format("the plan has hash {}, expected {}: it was changed, so see whether "
                            "the edits still mean the bug",
                            hash, base.hash));
  return {};
}

/// How many findings of each rule.
using Counts = std::map<std::string, std::size_t>;

Counts counts_of(const std::vector<Finding>& findings) {
  Counts counts;
  for (const Finding& finding : findings) ++counts[finding.rule];
  return counts;
}

std::vector<std::string> errors_of(const Counts& counts) {
  std::vector<std::string> rules;
  for (const auto& [rule, count] : counts)
    if (is_error(rule)) rules.push_back(rule);
  return rules;
}

Result<BugVerdict> judge(const BugRow& row, const fs::path& folder, const fs::path& models) {
  const BasePlan& broken_base = row.broken_base.value_or(row.base);
  const std::string where = row.file + ": base";
  const std::string broken_where = row.broken_base ? row.file + ": broken.base" : where;
  MFSDP_LET(fixed, load_base(row.base, folder, models, where));
  MFSDP_LET(start, load_base(broken_base, folder, models, broken_where));
  PlanDocument document(start);
  for (const Edit& edit : row.edits) MFSDP_TRY(document.apply(edit));
  MFSDP_TRY(check_hash(row.base, fixed, where));
  MFSDP_TRY(check_hash(broken_base, start, broken_where));
  MFSDP_LET(broken, document.program(row.file + ": broken plan"));

  MFSDP_LET(clean_proof, prove(fixed));
  MFSDP_LET(proof, prove(broken));
  std::vector<Finding> findings = std::move(proof.findings);
  if (row.some_ranks) {
    MFSDP_LET(between, compare_classes(std::array{fixed, broken}));
    findings.insert(findings.end(), between.begin(), between.end());
  }
  BugVerdict verdict;
  verdict.row = row.number;
  verdict.file = row.file;
  verdict.title = row.title;
  verdict.thread = row.thread;
  verdict.bug = row.bug;
  verdict.expected = row.rules;
  const Counts before = counts_of(clean_proof.findings);
  const Counts after = counts_of(findings);
  verdict.fixed = errors_of(before);
  verdict.broken = errors_of(after);
  for (const std::string& note : row.notes) {
    verdict.expected.push_back(note);
    const auto count = [&](const Counts& counts) {
      const auto found = counts.find(note);
      return found == counts.end() ? 0 : found->second;
    };
    if (count(after) > count(before)) verdict.broken.push_back(note);
  }
  std::ranges::sort(verdict.expected);
  std::ranges::sort(verdict.broken);
  const auto is_of_bug = [&](const Finding& finding) {
    return std::ranges::binary_search(verdict.broken, finding.rule) &&
           std::ranges::find(clean_proof.findings, finding) == clean_proof.findings.end();
  };
  std::set<std::string> shown;
  for (Finding& finding : findings)
    if (is_of_bug(finding) && shown.insert(finding.rule).second)
      verdict.findings.push_back(std::move(finding));
  verdict.good = verdict.broken == verdict.expected && verdict.fixed.empty();
  return verdict;
}

Result<std::vector<fs::path>> row_files(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".json") files.push_back(entry->path());
  if (error) return fail(folder.string(), error.message(), Fault::environment);
  if (files.empty()) return fail(folder.string(), "expected rows of the bug corpus, NN-name.json");
  std::ranges::sort(files);
  return files;
}

}  // namespace

Result<std::vector<BugVerdict>> check_bugs(const fs::path& folder, const fs::path& models) {
  MFSDP_LET(files, row_files(folder));
  std::vector<BugVerdict> verdicts;
  for (const fs::path& file : files) {
    MFSDP_LET(text, read_file(file, "a row of the bug corpus", kMostRowBytes));
    MFSDP_LET(row, read_bug_row(text, file.string()));
    for (const BugVerdict& other : verdicts)
      if (other.row == row.number)
        return fail(row.file + ": row",
                    fmt::format("{} is the row of '{}' too", row.number, other.file));
    MFSDP_LET(verdict, judge(row, folder, models));
    verdicts.push_back(std::move(verdict));
  }
  std::ranges::stable_sort(verdicts, {}, &BugVerdict::row);
  return verdicts;
}

}  // namespace mfsdp::bugs
