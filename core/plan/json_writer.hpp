// Writes described structs (describe.hpp) as canonical JSON.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/plan/describe.hpp"

namespace mfsdp {

class JsonWriter {
 public:
  /// Appends to `out`. Without meta the text is what gets hashed.
  JsonWriter(std::string& out, bool with_meta) : out_(out), with_meta_(with_meta) {}

  template <class T>
  void operator()(std::string_view key, T& value) {
    put_key(key);
    put(value);
  }

  template <class T>
  void sparse(std::string_view key, T& value) {
    if (!is_absent(value)) (*this)(key, value);
  }

  void meta(std::string_view key, Meta& value) {
    if (with_meta_) (*this)(key, value);
  }

  void schema(std::string_view key);

  template <class T>
  void put_object(T& value) {
    out_ += '{';
    describe::fields(*this, value);
    out_ += '}';
  }

 private:
  void put_key(std::string_view key) {
    if (out_.back() != '{') out_ += ',';
    out_ += '"';
    out_ += key;
    out_ += "\":";
  }

  template <class T>
  static bool is_absent(const std::vector<T>& value) {
    return value.empty();
  }
  template <class T>
  static bool is_absent(const std::optional<T>& value) {
    return !value.has_value();
  }
  static bool is_absent(bool value) { return !value; }

  void put(std::int64_t value) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    out_.append(digits, end);
  }
  void put(bool value) { out_ += value ? "true" : "false"; }
  void put(const std::string& value);
  template <class Dimension>
  void put(const Quantity<Dimension>& value) {
    put(value.value);
  }
  template <class Kind>
  void put(const Id<Kind>& value) {
    put(static_cast<std::int64_t>(value.value));
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void put(const Enum& value) {
    out_ += '"';
    out_ += to_string(value);
    out_ += '"';
  }
  template <class T>
  void put(std::optional<T>& value) {
    put(*value);
  }
  template <class T>
  void put(std::vector<T>& values) {
    out_ += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ',';
      put(values[i]);
    }
    out_ += ']';
  }
  void put(OpBody& body) {
    out_ += '{';
    put_key(Names<OpKind>::values.at(body.index()));
    std::visit([this](auto& alternative) { put(alternative); }, body);
    out_ += '}';
  }
  template <class T>
    requires requires(JsonWriter& io, T& value) { describe::fields(io, value); }
  void put(T& value) {
    put_object(value);
  }

  std::string& out_;
  bool with_meta_;
};

}  // namespace mfsdp
