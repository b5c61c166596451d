// Whether every field of a plan is proved: each is changed, and a change that neither the reader of
// plans nor the proofs refuse has to change nothing when the plan is run. For those that are wrong
// certificates are forged, which the checker has to refuse.
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
#include "core/plan/plan.hpp"
#include "verify/mutation/field_mutants.hpp"

namespace mfsdp {

enum class FieldFate {
  refused,      ///< by the reader of plans, which all tools share
  found,        ///< the proofs find an error
  same,         ///< no bit differs when it is run, and the field is listed (inert_fields.hpp)
  other_model,  ///< something else is computed, as asked: the field is listed as an input
  not_listed,   ///< no bit differs, but why that is so is written nowhere
  differs,      ///< the proofs find nothing, and something else is computed
  not_run,      ///< the proofs find nothing, and the machine refuses or cannot end it
  crashed       ///< reader, proofs or machine crash, or do not end
};

template <>
struct Names<FieldFate> {
  static constexpr std::array<std::string_view, 8> values{
      "refused", "found", "same", "other_model", "not_listed", "differs", "not_run", "crashed"};
};

/// Whether a mutant of that fate shows that something is missing in reader, proofs or list.
[[nodiscard]] constexpr bool is_defect(FieldFate fate) { return fate > FieldFate::other_model; }

/// What the checker says of certificates that are forged for a mutant: all that can truly be said
/// for it, and what was so of the plan before the change.
enum class Forgery {
  none,     ///< the reader of plans refuses the mutant, or nothing is wrong with it
  refused,  ///< by the checker
  same,     ///< accepted, and no bit differs when the mutant is run
  accepted  ///< and something else is computed, or nothing
};

template <>
struct Names<Forgery> {
  static constexpr std::array<std::string_view, 4> values{"none", "refused", "same", "accepted"};
};

struct FieldVerdict {
  FieldMutant mutant;
  FieldFate fate = FieldFate::refused;
  Forgery forgery = Forgery::none;
  std::vector<std::string> rules{};  ///< of found
  std::string why{};  ///< the refusal; which results differ; the reason in the list; the crash

  friend bool operator==(const FieldVerdict&, const FieldVerdict&) = default;

  /// Whether something is missing in reader, proofs, list or checker.
  [[nodiscard]] bool is_defect() const {
    return mfsdp::is_defect(fate) || forgery == Forgery::accepted;
  }
};

/// All that runs of a program compute, in 64 bits each, by names for people.
using Results = std::map<std::string, std::uint64_t>;

/// Runs of programs. Errors: what the machine refuses, and runs that fail.
struct Machines {
  std::function<Result<Results>(const Program&)> once;    ///< quick: what differs mostly does here
  std::function<Result<Results>(const Program&)> shaken;  ///< every way to run it
};

struct FieldMutationSettings {
  Machines machines;
  std::size_t per_field = 32;            ///< or of each pattern of pairs
  std::optional<std::size_t> most = {};  ///< judge so many of all, drawn with `seed`
  std::uint64_t seed = 0;
  std::size_t workers =
      0;  ///< processes; 0: twice as many as the machine has threads, as runs wait
  std::chrono::milliseconds limit{60'000};  ///< for one mutant
  /// Called after each; no further mutants are judged once it says false.
  std::function<bool(std::size_t done, std::size_t of)> progress = {};
};

struct FieldMutationReport {
  std::string plan_hash;
  std::int64_t fields = 0;
  std::int64_t mutants = 0;                 ///< of all fields
  std::map<FieldFate, std::int64_t> total;  ///< of those that were judged
  std::map<Forgery, std::int64_t> forged;   ///< likewise
  std::map<std::string, std::map<FieldFate, std::int64_t>> by_field;
  std::map<std::string, std::int64_t> by_rule;
  std::vector<FieldVerdict> verdicts;  ///< by number

  [[nodiscard]] std::int64_t judged() const { return std::ssize(verdicts); }
  [[nodiscard]] std::int64_t defects() const;
};

/// Judges one plan text; `tell` hears of each stage that is begun. `right`: what the unaltered plan
/// computes, and the plan.
struct RightResults {
  Results once;
  Results shaken;
  Program program{};
};
[[nodiscard]] FieldVerdict judge_altered(const std::string& text, const FieldMutant& mutant,
                                         const RightResults& right, const Machines& machines,
                                         const std::function<void(std::string_view)>& tell);

/// Judges the changes of all fields, each in a process of its own. To be called while there is one
/// thread. Errors: a plan that does not prove clean or does not run itself.
[[nodiscard]] Result<FieldMutationReport> mutate_fields(const Program& program,
                                                        const FieldMutationSettings& settings);

/// The same of pairs of edits (edit_pairs.hpp), by pattern. A pair that leaves the plan right is
/// one with which no bit differs.
[[nodiscard]] Result<FieldMutationReport> mutate_pairs(const Program& program,
                                                       const FieldMutationSettings& settings);

}  // namespace mfsdp
