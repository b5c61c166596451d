// Reads fields of a config.json of Hugging Face: each with its range, errors with their place.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/rational.hpp"

namespace mfsdp {

/// Which fields of a config.json readers have asked for, with those of objects inside it after a
/// dot: "rope_scaling.factor".
class AskedFields {
 public:
  void add(std::string name) { names_.insert(std::move(name)); }
  /// An object whose fields are read one by one.
  void add_object(std::string name) { objects_.insert(std::move(name)); }
  [[nodiscard]] bool has(std::string_view name) const { return names_.contains(name); }
  [[nodiscard]] bool has_object(std::string_view name) const { return objects_.contains(name); }

 private:
  std::set<std::string, std::less<>> names_;
  std::set<std::string, std::less<>> objects_;
};

/// The fields of one JSON object. Null counts as absent, as in Hugging Face's files. Readers leave
/// `value` as it is when the field is absent, and name "file: field" in errors.
class HfFields {
 public:
  using Json = nlohmann::json;

  /// The object, the file's name and `asked`, which may be null, outlive this.
  HfFields(const Json& object, const std::string& where, std::string prefix = {},
           AskedFields* asked = nullptr);

  [[nodiscard]] const Json* find(const char* name) const;
  /// Whether the field is there, be it null.
  [[nodiscard]] bool contains(const char* name) const;
  /// Counts fields as asked for that change nothing here, or of which a gap speaks.
  void know(std::initializer_list<const char*> names) const;
  void know_all() const;
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
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  const Json& object_;
  const std::string& where_;
  std::string prefix_;
  AskedFields* asked_;
};

}  // namespace mfsdp
