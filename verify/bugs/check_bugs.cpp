#include "verify/bugs/check_bugs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/read_file.hpp"
#include "core/plan/plan_json.hpp"
#include "verify/bugs/bug_row.hpp"
#include "verify/bugs/edit_program.hpp"
#include "verify/proof/classes.hpp"
#include "verify/proof/job.hpp"

namespace mfsdp::bugs {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRowBytes = std::size_t{1} << 20;

/// Called after the edits: if the planner has changed, the error about the first name that no
/// longer fits is more useful.
Result<void> check_hash(const BasePlan& base, const Job& job, const std::string& where) {
  if (const std::string hash = plan_hash(job); hash != base.hash)
    return fail(where + ".plan_hash",
                fmt::format("the plan has hash {}, expected {}: it was changed, so see whether "
                            "the edits still mean the bug",
                            hash, base.hash));
  return {};
}

/// Number of findings of each rule.
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

/// The row's correct plan, and the one with the bug.
struct Twins {
  Job fixed;
  Job broken;
};

Result<Twins> make_twins(const BugRow& row, const BugFolders& folders) {
  const BasePlan& broken_base = row.broken_base.value_or(row.base);
  const std::string where = row.file + ": base";
  const std::string broken_where = row.broken_base ? row.file + ": broken.base" : where;
  MFSDP_LET(fixed, load_base(row.base, folders, where));
  MFSDP_LET(start, load_base(broken_base, folders, broken_where));
  MFSDP_LET(broken, edit_job(start, row.edits, row.file + ": broken plan"));
  MFSDP_TRY(check_hash(row.base, fixed, where));
  MFSDP_TRY(check_hash(broken_base, start, broken_where));
  return Twins{.fixed = std::move(fixed), .broken = std::move(broken)};
}

Result<std::vector<Finding>> findings_of(const BugRow& row, const Twins& twins) {
  MFSDP_LET(proof, prove_job(twins.broken));
  std::vector<Finding> findings = std::move(proof.findings);
  if (row.some_ranks) {
    if (twins.fixed.programs.size() > 1)
      return fail(row.file + ": broken.ranks",
                  "a job states the ranks of each plan by its classes");
    MFSDP_LET(between,
              compare_classes(std::array{twins.fixed.programs[0], twins.broken.programs[0]}));
    findings.insert(findings.end(), between.begin(), between.end());
  }
  return findings;
}

Result<BugVerdict> judge(const BugRow& row, const BugFolders& folders) {
  MFSDP_LET(twins, make_twins(row, folders));
  MFSDP_LET(clean, prove_job(twins.fixed));
  MFSDP_LET(findings, findings_of(row, twins));
  BugVerdict verdict;
  verdict.row = row.number;
  verdict.file = row.file;
  verdict.title = row.title;
  verdict.thread = row.thread;
  verdict.bug = row.bug;
  Counts before = counts_of(clean.findings);
  Counts after = counts_of(findings);
  verdict.fixed = errors_of(before);
  verdict.broken = errors_of(after);
  for (const std::string& note : row.notes)
    if (after[note] > before[note]) verdict.broken.push_back(note);
  verdict.expected = row.rules;
  verdict.expected.insert(verdict.expected.end(), row.notes.begin(), row.notes.end());
  std::ranges::sort(verdict.expected);
  std::ranges::sort(verdict.broken);
  verdict.good = verdict.broken == verdict.expected && verdict.fixed.empty();

  std::set<std::string> shown;
  for (Finding& finding : findings)
    if (std::ranges::binary_search(verdict.broken, finding.rule) &&
        std::ranges::find(clean.findings, finding) == clean.findings.end() &&
        shown.insert(finding.rule).second)
      verdict.findings.push_back(std::move(finding));
  return verdict;
}

Result<std::vector<fs::path>> row_files(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".json") files.push_back(entry->path());
  if (error) return fail(folder.string(), "cannot be listed: " + error.message());
  if (files.empty()) return fail(folder.string(), "expected rows of the bug corpus, NN-name.json");
  std::ranges::sort(files);
  return files;
}

}  // namespace

Result<std::vector<BugVerdict>> check_bugs(const BugFolders& folders) {
  MFSDP_LET(files, row_files(folders.rows));
  std::vector<BugVerdict> verdicts;
  for (const fs::path& file : files) {
    MFSDP_LET(text, read_file(file, "a row of the bug corpus", kMostRowBytes));
    MFSDP_LET(row, read_bug_row(text, file.string()));
    for (const BugVerdict& other : verdicts)
      if (other.row == row.number)
        return fail(row.file + ": row",
                    fmt::format("{} is also the row of '{}'", row.number, other.file));
    MFSDP_LET(verdict, judge(row, folders));
    verdicts.push_back(std::move(verdict));
  }
  std::ranges::sort(verdicts, {}, &BugVerdict::row);
  return verdicts;
}

}  // namespace mfsdp::bugs
