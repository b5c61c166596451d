// Fields of a config.json that the readers of families do not read: some change what a model
// computes, others change nothing.
//
// A field that neither the family's readers nor these two tables know is ignored, and a note names
// it. To model a field: read it in its family's readers and remove its row here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

namespace mfsdp {

/// Values of a field that change nothing. Null, false, 0 and empty values never do.
enum class Neutral : std::uint8_t {
  off,          ///< no other value
  one,          ///< 1, or a list that has only 1
  rms_norm,     ///< a name of RMSNorm
  rotary,       ///< a name of RoPE
  softmax,      ///< "softmax"
  per_head,     ///< "per_head"
  silu,         ///< SiLU or the tanh form of GELU: the family's reader decides which it accepts
  attention,    ///< only layers with full or sliding attention
  not_stated,   ///< none: a file with this field has such a part
  not_enabled,  ///< an object whose `enabled` is false
};

/// The models to which a row applies.
enum class ForeignTo : std::uint8_t {
  all,             ///< every family: a value that is not neutral is an error
  other_families,  ///< every family except those whose readers read the field
  left_out,        ///< no family: the part is left out, and a note states it
  unknown_types    ///< only model types without a family here, as a reason of the refusal: classes
                   ///< of modelled families ignore the field, or their readers read it
};

/// A field, or all fields with one prefix, and the part of a model that it configures.
struct ForeignField {
  std::string_view name;  ///< "mamba_*": all fields with that prefix
  std::string_view what;  ///< "state-space layers"
  Neutral neutral = Neutral::off;
  ForeignTo to = ForeignTo::all;

  [[nodiscard]] bool matches(std::string_view field) const;
  /// Whether that value changes the computation.
  [[nodiscard]] bool counts(const nlohmann::json& value) const;
};

/// The first row that matches a field applies.
[[nodiscard]] std::span<const ForeignField> foreign_fields();
[[nodiscard]] const ForeignField* find_foreign_field(std::string_view field);

/// Whether a field changes neither memory, nor time, nor training: token ids, settings of text
/// generation, initialisation, version of the writer.
[[nodiscard]] bool is_harmless_field(std::string_view field);

}  // namespace mfsdp
