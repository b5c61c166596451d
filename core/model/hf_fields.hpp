// Reads fields of Hugging Face's config.json with their ranges; errors name file and field.
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

/// The fields of a config.json that were read. A field of an object inside it has the object's name
/// and a dot before it: "rope_scaling.factor".
class AskedFields {
 public:
  void add(std::string name) { names_.insert(std::move(name)); }
  /// Adds an object whose fields are read one by one.
  void add_object(std::string name) { objects_.insert(std::move(name)); }
  [[nodiscard]] bool has(std::string_view name) const { return names_.contains(name); }
  [[nodiscard]] bool has_object(std::string_view name) const { return objects_.contains(name); }

 private:
  std::set<std::string, std::less<>> names_;
  std::set<std::string, std::less<>> objects_;
};

/// The fields of one JSON object. Null counts as absent, as in Hugging Face's files. Readers do not
/// change `value` when the field is absent, and name "file: field" in errors.
class HfFields {
 public:
  using Json = nlohmann::json;

  /// The object, the file's name and `asked`, which may be null, must outlive this.
  HfFields(const Json& object, const std::string& where, std::string prefix = {},
           AskedFields* asked = nullptr);

  [[nodiscard]] const Json* find(const char* name) const;
  /// Whether the field exists; it may be null.
  [[nodiscard]] bool contains(const char* name) const;
  /// Marks fields as read that change nothing here, or that a gap reports.
  void know(std::initializer_list<const char*> names) const;
  void know_all() const;
  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view name, std::string_view expected) const;
  /// The name with the object's before it: "text_config.head_dim".
  [[nodiscard]] std::string named(std::string_view name) const;

  [[nodiscard]] Result<void> integer(const char* name, std::int64_t most,
                                     std::int64_t& value) const;
  [[nodiscard]] Result<void> integer_between(std::int64_t least, std::int64_t most,
                                             const char* name, std::int64_t& value) const;
  [[nodiscard]] Result<void> required_integer(const char* name, std::int64_t most,
                                              std::int64_t& value) const;
  /// An error if the field is absent. An explicit null is allowed.
  [[nodiscard]] Result<void> stated(const char* name, std::string_view expected) const;
  /// A positive number, exactly as its decimal digits.
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
