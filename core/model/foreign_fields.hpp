// Fields of a config.json beyond those that the readers of families take: which of them change what
// a model computes, and which change nothing.
//
// A field is read by its family's readers, or stands in one of these two tables, or is named to the
// user as passed over. To model what a field says: its readers take it, and its row goes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

namespace mfsdp {

/// Which values of a field change nothing, beside null, false, 0 and what is empty.
enum class Neutral : std::uint8_t {
  off,          ///< no other value
  one,          ///< 1, or a list of nothing but 1
  rms_norm,     ///< a name of RMSNorm
  rotary,       ///< a name of RoPE
  softmax,      ///< "softmax"
  per_head,     ///< "per_head"
  silu,         ///< SiLU or the tanh form of GELU: a reader says which of them its family takes
  attention,    ///< layers that have full or sliding attention alone
  not_stated,   ///< none: that the field is there says that the model has such a part
  not_enabled,  ///< an object whose `enabled` is false
};

/// Where a row counts.
enum class ForeignTo : std::uint8_t {
  all,             ///< every family: a value that is not neutral is an error
  other_families,  ///< the same, but for families whose readers take the field
  unknown_types    ///< models of no family here, of which it is a reason: classes of families that
                   ///< are modelled ignore the field, or their readers take it
};

/// A field, or fields of one beginning, and what a model has that says so.
struct ForeignField {
  std::string_view name;  ///< "mamba_*": all that begin so
  std::string_view what;  ///< "state-space layers"
  Neutral neutral = Neutral::off;
  ForeignTo to = ForeignTo::all;

  [[nodiscard]] bool matches(std::string_view field) const;
  /// Whether that value changes what is computed.
  [[nodiscard]] bool counts(const nlohmann::json& value) const;
};

/// Of fields that several rows match the first counts.
[[nodiscard]] std::span<const ForeignField> foreign_fields();
[[nodiscard]] const ForeignField* find_foreign_field(std::string_view field);

/// Whether a field changes neither memory, nor time, nor what training computes: ids of tokens,
/// how text is generated, how weights begin, who wrote the file.
[[nodiscard]] bool is_harmless_field(std::string_view field);

}  // namespace mfsdp
