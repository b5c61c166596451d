// Reads fields of a config.json of Hugging Face: each with its range, errors with their place.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/json_text.hpp"
#include "core/base/rational.hpp"

namespace mfsdp {

/// The fields of one JSON object. Null counts as absent, as in Hugging Face's files. Readers leave
/// `value` as it is when the field is absent, and name "file: field" in errors.
class HfFields {
 public:
  using Json = nlohmann::json;

  HfFields(const Json& object, const std::string& where, std::string prefix = {})
      : object_(object), where_(where), prefix_(std::move(prefix)) {}

  [[nodiscard]] const Json* find(const char* name) const {
    const auto at = object_.find(name);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }

  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view name,
                                            std::string_view expected) const {
    const auto at = object_.find(name);
    return fail(where_, fmt::format("{}{}: expected {}, got {}", prefix_, name, expected,
                                    at == object_.end() ? "nothing" : json_excerpt(*at)));
  }

  [[nodiscard]] Result<void> integer(const char* name, std::int64_t most,
                                     std::int64_t& value) const {
    return integer_between(1, most, name, value);
  }

  [[nodiscard]] Result<void> integer_between(std::int64_t least, std::int64_t most,
                                             const char* name, std::int64_t& value) const {
    const Json* field = find(name);
    if (field == nullptr) return {};
    const auto out_of_range = [&] {
      return wrong(name, fmt::format("an integer from {} to {}", least, most));
    };
    if (!field->is_number_integer()) return out_of_range();
    // Above 2^63 only the unsigned reading is right; a negative one is not unsigned.
    if (field->is_number_unsigned() ? field->get<std::uint64_t>() > static_cast<std::uint64_t>(most)
                                    : field->get<std::int64_t>() > most)
      return out_of_range();
    if (field->get<std::int64_t>() < least) return out_of_range();
    value = field->get<std::int64_t>();
    return {};
  }

  [[nodiscard]] Result<void> required_integer(const char* name, std::int64_t most,
                                              std::int64_t& value) const {
    if (find(name) == nullptr) return wrong(name, fmt::format("an integer from 1 to {}", most));
    return integer(name, most, value);
  }

  /// A positive number, exactly as its decimal digits say.
  [[nodiscard]] Result<void> number(const char* name, Rational& value) const {
    const Json* field = find(name);
    if (field == nullptr) return {};
    constexpr std::string_view kExpected = "a positive number of at most 18 digits";
    if (!field->is_number()) return wrong(name, kExpected);
    const Result<Rational> exact = field->is_number_float()
                                       ? rational_from_double(field->get<double>(), name)
                                       : parse_rational(field->dump(), name);
    if (!exact || exact->num <= 0) return wrong(name, kExpected);
    value = *exact;
    return {};
  }

  [[nodiscard]] Result<void> required_number(const char* name, Rational& value) const {
    if (find(name) == nullptr) return wrong(name, "a number");
    return number(name, value);
  }

  [[nodiscard]] Result<void> boolean(const char* name, bool& value) const {
    const Json* field = find(name);
    if (field == nullptr) return {};
    if (!field->is_boolean()) return wrong(name, "true or false");
    value = field->get<bool>();
    return {};
  }

  /// An error unless the field is absent or false.
  [[nodiscard]] Result<void> off(const char* name, std::string_view what) const {
    bool on = false;
    MFSDP_TRY(boolean(name, on));
    if (on) return wrong(name, fmt::format("false ({} are not supported)", what));
    return {};
  }

  /// The object under `name`, if there is one.
  [[nodiscard]] Result<std::optional<HfFields>> object(const char* name) const {
    const Json* field = find(name);
    if (field == nullptr) return std::optional<HfFields>{};
    if (!field->is_object()) return wrong(name, "an object or null");
    return std::optional<HfFields>(std::in_place, *field, where_, prefix_ + name + ".");
  }

  [[nodiscard]] const Json& raw() const { return object_; }

 private:
  const Json& object_;
  const std::string& where_;
  std::string prefix_;
};

}  // namespace mfsdp
