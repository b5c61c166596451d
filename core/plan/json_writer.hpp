// Writes described structs (describe.hpp) as canonical JSON.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/plan/describe.hpp"
#include "core/plan/text_stream.hpp"

namespace mfsdp {

class JsonWriter {
 public:
  /// The text without meta is hashed.
  JsonWriter(TextStream& out, bool with_meta) : out_(out), with_meta_(with_meta) {}

  // Keys are literals: inlined, each is copied as a constant of known size.
  [[gnu::always_inline]] void operator()(std::string_view key, auto& value) {
    put_key(key);
    put(value);
  }

  [[gnu::always_inline]] void sparse(std::string_view key, auto& value) {
    if (!is_absent(value)) (*this)(key, value);
  }

  void meta(std::string_view key, Meta& value) {
    if (with_meta_) (*this)(key, value);
  }

  void schema(std::string_view key);

  void put_object(auto& value) {
    open();
    describe::fields(*this, value);
    close();
  }

 private:
  void open() {
    out_.put('{');
    first_ = true;
  }
  void close() {
    out_.put('}');
    first_ = false;
  }

  [[gnu::always_inline]] void put_key(std::string_view key) {
    char* at = out_.room(key.size() + 4);
    if (!first_) *at++ = ',';
    first_ = false;
    *at++ = '"';
    std::memcpy(at, key.data(), key.size());
    at += key.size();
    *at++ = '"';
    *at++ = ':';
    out_.advance(at);
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
  static bool is_absent(std::int64_t value) { return value == 0; }
  static bool is_absent(const describe::Signed& value) { return value.value == 0; }
  static bool is_absent(const Rational& value) { return value.num == 0; }
  static bool is_absent(RopeKind value) { return value == RopeKind{}; }
  static bool is_absent(Activation value) { return value == Activation{}; }
  static bool is_absent(const Operand& value) { return !value.stated(); }
  static bool is_absent(const std::string& value) { return value.empty(); }
  static bool is_absent(StateDtype value) { return value == StateDtype::full; }
  static bool is_absent(BaseDType value) { return value == BaseDType::compute; }
  static bool is_absent(CollectivePlacement value) { return value == CollectivePlacement{}; }
  static bool is_absent(Transport value) { return value == Transport{}; }
  static bool is_absent(Fp8Recipe value) { return value == Fp8Recipe{}; }
  static bool is_absent(Fp8Accumulate value) { return value == Fp8Accumulate{}; }
  static bool is_absent(Fp8Amax value) { return value == Fp8Amax{}; }
  static bool is_absent(ContextExchange value) { return value == ContextExchange{}; }
  static bool is_absent(PipelineSchedule value) { return value == PipelineSchedule{}; }

  void put(std::int64_t value) {
    char* at = out_.room(most_digits);
    out_.advance(std::to_chars(at, at + most_digits, value).ptr);
  }
  void put(const describe::Number& value) {
    if (value.value.den == 1)
      put(value.value.num);
    else
      put_object(value.value);
  }
  void put(const describe::Signed& value) { put(value.value); }
  void put(bool value) { out_.put(value ? std::string_view("true") : "false"); }
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
    put_plain(to_string(value));
  }
  template <class T>
  void put(std::optional<T>& value) {
    put(*value);
  }
  template <class T>
  void put(std::vector<T>& values) {
    out_.put('[');
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_.put(',');
      put(values[i]);
    }
    out_.put(']');
  }
  void put(OpBody& body) {
    open();
    put_key(Names<OpKind>::values.at(body.index()));
    std::visit([this](auto& alternative) { put(alternative); }, body);
    close();
  }
  template <class T>
    requires requires(JsonWriter& io, T& value) { describe::fields(io, value); }
  void put(T& value) {
    put_object(value);
  }

  /// Text that needs no escapes, in quotes.
  void put_plain(std::string_view text) {
    if (text.size() + 2 > TextStream::kLargest) {
      out_.put('"');
      out_.put(text);
      out_.put('"');
      return;
    }
    char* at = out_.room(text.size() + 2);
    *at++ = '"';
    std::memcpy(at, text.data(), text.size());
    at += text.size();
    *at++ = '"';
    out_.advance(at);
  }

  static constexpr std::size_t most_digits = 24;

  TextStream& out_;
  bool with_meta_;
  bool first_ = true;  ///< the open object is empty so far
};

}  // namespace mfsdp
