// Fields of a plan that may be changed without a word from the proofs, and why. All others are
// proved: a change that the proofs let pass is a defect of theirs, even if no bit differs.
#pragma once

#include <span>
#include <string_view>

namespace mfsdp {

struct InertField {
  std::string_view field;   ///< as of FieldMutant; a * stands for any text
  std::string_view reason;  ///< why nothing that is computed depends on it
  /// What is computed may depend on it: it says what is wanted, and no other field says it too.
  bool is_input = false;
};

[[nodiscard]] std::span<const InertField> inert_fields();

/// The entry that `field` belongs to, or null.
[[nodiscard]] const InertField* find_inert(std::string_view field);

}  // namespace mfsdp
