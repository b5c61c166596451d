// Reads fields of a config.json of Hugging Face: each with its range, errors with their place.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/rational.hpp"

namespace mfsdp {

/// The fields of one JSON object. Null counts as absent, as in Hugging Face's files. Readers leave
/// `value` as it is when the field is absent, and name "file: field" in errors.
class HfFields {
 public:
  using Json = nlohmann::json;

  /// The object and the file's name outlive this.
  HfFields(const Json& object, const std::string& where, std::string prefix = {});

  [[nodiscard]] const Json* find(const char* name) const;
  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view name, std::string_view expected) const;

  [[nodiscard]] Result<void> integer(const char* name, std::int64_t most,
                                     std::int64_t& value) const;
  [[nodiscard]] Result<void> integer_between(std::int64_t least, std::int64_t most,
                                             const char* name, std::int64_t& value) const;
  [[nodiscard]] Result<void> required_integer(const char* name, std::int64_t most,
                                              std::int64_t& value) const;
  /// An error where the field is absent. Null is there: it says that there is none.
  [[nodiscard]] Result<void> stated(const char* name, std::string_view expected) const;
  /// A positive number, exactly as its decimal digits say.
  [[nodiscard]] Result<void> number(const char* name, Rational& value) const;
  [[nodiscard]] Result<void> required_number(const char* name, Rational& value) const;
  [[nodiscard]] Result<void> boolean(const char* name, bool& value) const;
  /// An error unless the field is absent or false.
  [[nodiscard]] Result<void> off(const char* name, std::string_view what) const;
  /// The object under `name`, if there is one.
  [[nodiscard]] Result<std::optional<HfFields>> object(const char* name) const;

  [[nodiscard]] const Json& raw() const { return object_; }

 private:
  const Json& object_;
  const std::string& where_;
  std::string prefix_;
};

}  // namespace mfsdp
