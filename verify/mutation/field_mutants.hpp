// Every field of a plan's JSON, changed: what the fields are, the document itself says.
//
// No list of fields stands here, so that a field that plans come to have is changed from then on.
// A field is named by its path without indices; objects that are of several kinds are told apart by
// what they say of themselves:
//
//   plans[].segments[].ops[]{kernel}.body.kernel{gemm}.operands[]{weight}.access
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

enum class FieldEdit {
  drop,         ///< the field, or the entry of a list
  add,          ///< where it is left out, with a value that it has elsewhere
  twice_there,  ///< the entry of a list, once more after itself
  copy,         ///< a value that the same field has elsewhere
  exchange,     ///< with the same field elsewhere; of lists, with another entry
  empty,        ///< a list or text
  flip,         ///< true and false
  rename,       ///< another name of an enumeration that the value is a name of
  zero,
  one,
  minus_one,
  one_more,
  one_less,
  doubled,
  halved,
  two_to_31,
  two_to_63_less_1,
  pair  ///< two edits that are to hide each other (edit_pairs.hpp)
};

template <>
struct Names<FieldEdit> {
  static constexpr std::array<std::string_view, 18> values{
      "dropped",  "added",   "there twice", "copied", "exchanged", "emptied",
      "flipped",  "renamed", "0",           "1",      "-1",        "one more",
      "one less", "doubled", "halved",      "2^31",   "2^63-1",    "two edits"};
};

/// One change of a plan's JSON.
struct FieldMutant {
  std::int64_t number = 0;  ///< among all of the plan, for the same `per_field` and seed
  std::string field;        ///< path without indices
  std::string place;        ///< path with indices
  FieldEdit edit = FieldEdit::drop;
  std::string before;  ///< JSON, shortened; empty where nothing was
  std::string after;   ///< likewise, where nothing is left
  std::string patch;   ///< the change itself: a JSON patch (RFC 6902)

  friend bool operator==(const FieldMutant&, const FieldMutant&) = default;
};

struct FieldMutants {
  std::int64_t fields = 0;        ///< that the document has
  std::vector<FieldMutant> list;  ///< by field
};

/// At most `per_field` changes of every field, all different, drawn with `seed`: a function of
/// these three.
[[nodiscard]] FieldMutants field_mutants(const nlohmann::json& plan, std::size_t per_field,
                                         std::uint64_t seed);

/// The text of the plan that a mutant stands for. `plan` is the document that it was made of.
[[nodiscard]] std::string altered_text(const nlohmann::json& plan, const FieldMutant& mutant);

}  // namespace mfsdp
