// Changes of every field of a plan's JSON. The fields are those of the document.
//
// There is no list of fields, so new fields of plans are changed without further work. A field is
// named by its path without indices. Objects of several kinds are distinguished by the kind that
// they contain:
//
//   plans[].segments[].ops[]{kernel}.body.kernel{gemm}.operands[]{weight}.access
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

enum class FieldEdit {
  drop,         ///< the field, or the entry of a list
  add,          ///< where it is absent, with its value elsewhere
  twice_there,  ///< the entry of a list, once more after itself
  copy,         ///< the value of the same field elsewhere
  exchange,     ///< with the same field elsewhere; an entry of a list with another entry
  empty,        ///< a list or text
  flip,         ///< true and false
  rename,       ///< another name of the same enumeration
  zero,
  one,
  minus_one,
  one_more,
  one_less,
  doubled,
  halved,
  two_to_31,
  two_to_63_less_1,
  pair  ///< two edits that try to hide each other (edit_pairs.hpp)
};

constexpr auto value_names(FieldEdit) {
  return name_array("dropped", "added", "there twice", "copied", "exchanged", "emptied", "flipped",
                    "renamed", "0", "1", "-1", "one more", "one less", "doubled", "halved", "2^31",
                    "2^63-1", "two edits");
}

/// One change of a plan's JSON.
struct FieldMutant {
  std::int64_t number = 0;  ///< among all mutants of the plan with this `per_field` and seed
  std::string field;        ///< path without indices
  std::string place;        ///< path with indices
  FieldEdit edit = FieldEdit::drop;
  std::string before;  ///< JSON, shortened; empty if there was no value
  std::string after;   ///< JSON, shortened; empty if there is no value
  std::string patch;   ///< the change itself: a JSON patch (RFC 6902)

  friend bool operator==(const FieldMutant&, const FieldMutant&) = default;
};

struct FieldMutants {
  std::int64_t fields = 0;        ///< number of fields in the document
  std::vector<FieldMutant> list;  ///< by field
};

/// At most `per_field` different changes of every field, drawn with `seed`. The result depends only
/// on the arguments.
[[nodiscard]] FieldMutants field_mutants(const nlohmann::json& plan, std::size_t per_field,
                                         std::uint64_t seed);

/// The text of the changed plan. `plan` is the document from which the mutant was made.
[[nodiscard]] std::string altered_text(const nlohmann::json& plan, const FieldMutant& mutant);

}  // namespace mfsdp
