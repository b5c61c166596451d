// Results of the proofs: rules with stable ids, and findings that show two ops, a place in memory
// and a concrete order in which it goes wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// A note is worth knowing, but the plan is right; an error is a plan that can go wrong.
enum class Severity { error, note };

constexpr auto value_names(Severity) { return name_array("error", "note"); }

struct RuleInfo {
  std::string_view id;    ///< "MF101", stable
  std::string_view name;  ///< "race"
  std::string_view text;  ///< one sentence: what the rule finds
  Severity severity = Severity::error;
};

/// All rules of the proofs, ascending by id.
///   MF0xx the plan itself    MF1xx races, values      MF2xx collectives   MF3xx gradients
///   MF4xx weights            MF5xx tiling             MF6xx bounds        MF7xx configuration
///   MF8xx a recorded run: of mfsdp to MF809, of other trainers from MF810
[[nodiscard]] std::span<const RuleInfo> rules();

/// The rule of that id, or null.
[[nodiscard]] const RuleInfo* find_rule(std::string_view id);

/// One instance of an op in the unrolled plan.
struct Place {
  std::string plan;
  std::string segment;
  std::int64_t step = 0;        ///< from 0; place_names.hpp formats it for messages
  std::int64_t repetition = 0;  ///< of the segment in this step, from 0
  OpId op;
  std::string name;  ///< of the op, with its kind where the name alone is ambiguous: "wait used.w"
  std::string stream = {};  ///< "compute", ..., or "host"

  friend bool operator==(const Place&, const Place&) = default;
};

struct Finding {
  std::string rule;                ///< "MF101"
  std::string message;             ///< one line: both ops, what is missing, buffer and bytes
  std::vector<Place> places = {};  ///< the two ops first; empty where the plan itself is at fault
  std::optional<BufferId> buffer = {};
  std::int64_t begin = 0;  ///< bytes of the buffer, half-open; both 0 where none are meant
  std::int64_t end = 0;
  std::string missing = {};  ///< the edge: "gather (all_gather) -> gemm (compute)"
  /// A short order of ops that the plan allows and that shows it.
  std::vector<Place> interleaving = {};

  friend bool operator==(const Finding&, const Finding&) = default;
};

/// One that is about no op and no bytes.
[[nodiscard]] Finding finding_without_ops(std::string_view rule, std::string message);

/// A rule that what was read could not decide: it is neither kept nor broken.
struct NotJudged {
  std::string rule;    ///< "MF813"
  std::string reason;  ///< one line: what is missing, and what would have it

  friend bool operator==(const NotJudged&, const NotJudged&) = default;
};

/// The verdict of the rules on one subject.
struct RuleVerdict {
  std::vector<Finding> findings;
  std::vector<NotJudged> not_judged;

  void add(RuleVerdict other);
  /// No error, and nothing left undecided.
  [[nodiscard]] bool good() const;
};

/// "MF813 serialised-gather"
[[nodiscard]] std::string title_of_rule(std::string_view rule);

/// Whether a finding of that rule makes a plan wrong; a rule that is not in the table does.
[[nodiscard]] bool is_error(std::string_view rule);

/// Whether some finding makes the plan wrong.
[[nodiscard]] bool has_errors(std::span<const Finding> findings);

}  // namespace mfsdp
