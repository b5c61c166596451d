// Fields of a plan whose changes the proofs need not find, with reasons. The proofs must find
// changes of all other fields: a change that passes is a defect of the proofs, even if no bit
// differs.
#pragma once

#include <span>
#include <string_view>

namespace mfsdp {

struct InertField {
  std::string_view field;   ///< FieldMutant::field; a * matches any text
  std::string_view reason;  ///< why no result depends on it
  /// Results may depend on it: it is an input of the plan, and no other field repeats it.
  bool is_input = false;
};

[[nodiscard]] std::span<const InertField> inert_fields();

/// The entry that matches `field`, or null.
[[nodiscard]] const InertField* find_inert(std::string_view field);

}  // namespace mfsdp
