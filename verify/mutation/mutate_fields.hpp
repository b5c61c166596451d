// Tests whether every field of a plan is proved. Each field is changed. If neither the reader of
// plans nor the proofs find an error, the run must have the same results. For wrong plans,
// certificates are forged, which the checker must refuse.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "verify/mutation/field_mutants.hpp"

namespace mfsdp {

enum class FieldFate {
  refused,      ///< by the reader of plans, which all tools share
  found,        ///< the proofs find an error
  same,         ///< no bit of the run differs, and the field is listed (inert_fields.hpp)
  other_model,  ///< results differ as expected: the field is listed as an input
  not_listed,   ///< no bit differs, but the field is not listed
  differs,      ///< the proofs find nothing, and results differ
  not_run,      ///< the proofs find nothing, and the machine refuses or cannot finish the run
  crashed       ///< reader, proofs or machine crash, or do not end
};

constexpr auto value_names(FieldFate) {
  return name_array("refused", "found", "same", "other_model", "not_listed", "differs", "not_run",
                    "crashed");
}

/// Whether that fate is a defect of the reader, the proofs or the list.
[[nodiscard]] constexpr bool is_defect(FieldFate fate) { return fate > FieldFate::other_model; }

/// The checker's answer to forged certificates of a mutant: one with all statements that are true
/// of the mutant, and the certificate of the unchanged plan.
enum class Forgery {
  none,     ///< not forged: the reader of plans refuses the mutant, or the mutant is correct
  refused,  ///< by the checker
  same,     ///< accepted, and no bit of the mutant's run differs
  accepted  ///< accepted, and results differ or the run fails
};

constexpr auto value_names(Forgery) { return name_array("none", "refused", "same", "accepted"); }

struct FieldVerdict {
  FieldMutant mutant;
  FieldFate fate = FieldFate::refused;
  Forgery forgery = Forgery::none;
  std::vector<std::string> rules{};  ///< of found
  std::string why{};                 ///< refusal, differing results, reason in the list, or crash

  friend bool operator==(const FieldVerdict&, const FieldVerdict&) = default;

  /// Whether the verdict is a defect of reader, proofs, list or checker.
  [[nodiscard]] bool is_defect() const {
    return mfsdp::is_defect(fate) || forgery == Forgery::accepted;
  }
};

/// All results of a job's runs, 64 bits each, by names for messages.
using Results = std::map<std::string, std::uint64_t>;

/// Functions that run a job. Errors: the machine refuses the job, or the run fails.
struct Machines {
  std::function<Result<Results>(const Job&)> once;    ///< quick; shows most differences
  std::function<Result<Results>(const Job&)> shaken;  ///< thorough
};

struct FieldMutationSettings {
  Machines machines;
  std::size_t per_field = 32;            ///< changes of each field, or of each pattern of pairs
  std::optional<std::size_t> most = {};  ///< judges at most this number, drawn with `seed`
  std::uint64_t seed = 0;
  std::size_t workers =
      0;  ///< processes; 0: twice as many as the machine has threads, as runs wait
  std::chrono::milliseconds limit{60'000};  ///< for one mutant
  /// Called after each mutant. After it returns false, no further mutants are judged.
  std::function<bool(std::size_t done, std::size_t of)> progress = {};
};

struct FieldMutationReport {
  std::string plan_hash;
  std::int64_t fields = 0;
  std::int64_t mutants = 0;                 ///< of all fields
  std::map<FieldFate, std::int64_t> total;  ///< counts of judged mutants
  std::map<Forgery, std::int64_t> forged;   ///< counts of judged mutants
  std::map<std::string, std::map<FieldFate, std::int64_t>> by_field;
  std::map<std::string, std::int64_t> by_rule;
  std::vector<FieldVerdict> verdicts;  ///< by number

  [[nodiscard]] std::int64_t judged() const { return std::ssize(verdicts); }
  [[nodiscard]] std::int64_t defects() const;
};

/// Judges one plan text. `tell` receives the name of each stage when it begins. `right`: the
/// unchanged plan and its results.
struct RightResults {
  Results once;
  Results shaken;
  Job job{};
};
[[nodiscard]] FieldVerdict judge_altered(const std::string& text, const FieldMutant& mutant,
                                         const RightResults& right, const Machines& machines,
                                         const std::function<void(std::string_view)>& tell);

/// Judges the changes of all fields, each in a separate process. Call it only while the program has
/// one thread. Errors: the unchanged plan has findings or does not run.
[[nodiscard]] Result<FieldMutationReport> mutate_fields(const Job& job,
                                                        const FieldMutationSettings& settings);

/// The same for pairs of edits (edit_pairs.hpp) of a plan of one class, by pattern. If a pair leaves
/// a correct plan, no bit differs.
[[nodiscard]] Result<FieldMutationReport> mutate_pairs(const Program& program,
                                                       const FieldMutationSettings& settings);

}  // namespace mfsdp
