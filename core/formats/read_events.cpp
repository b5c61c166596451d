#include "core/formats/read_events.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/file_kind.hpp"
#include "core/formats/crc32c.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kHead = 12;  ///< length and its checksum
constexpr std::size_t kTail = 4;   ///< the data's checksum

/// Little-endian, like the files.
template <class Value>
Value value_at(std::string_view bytes, std::size_t at) {
  static_assert(std::endian::native == std::endian::little);
  Value value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// One field of a protocol buffer.
struct ProtoField {
  std::uint64_t number = 0;
  std::uint64_t integer = 0;    ///< of a varint, or the bits of a fixed-width number
  std::string_view bytes = {};  ///< of a string or a message
  int wire_type = 0;
};

constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kBytes = 2;
constexpr int kFixed32 = 5;

/// Takes fields from the front; none at the end, or if the bytes are not a protocol buffer.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : rest_(bytes) {}

  std::optional<ProtoField> next() {
    if (rest_.empty()) return std::nullopt;
    const auto key = varint();
    if (!key) return broken();
    ProtoField field{.number = *key >> 3U, .wire_type = static_cast<int>(*key & 7U)};
    switch (field.wire_type) {
      case kVarint: {
        const auto value = varint();
        if (!value) return broken();
        field.integer = *value;
        return field;
      }
      case kFixed64:
        if (rest_.size() < 8) return broken();
        field.integer = value_at<std::uint64_t>(rest_, 0);
        rest_.remove_prefix(8);
        return field;
      case kFixed32:
        if (rest_.size() < 4) return broken();
        field.integer = value_at<std::uint32_t>(rest_, 0);
        rest_.remove_prefix(4);
        return field;
      case kBytes: {
        const auto size = varint();
        if (!size || *size > rest_.size()) return broken();
        field.bytes = rest_.substr(0, *size);
        rest_.remove_prefix(*size);
        return field;
      }
      default: return broken();
    }
  }
  [[nodiscard]] bool is_broken() const { return broken_; }

 private:
  std::optional<ProtoField> broken() {
    broken_ = true;
    rest_ = {};
    return std::nullopt;
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return std::nullopt;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    return std::nullopt;
  }

  std::string_view rest_;
  bool broken_ = false;
};

double double_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }
double float_of(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

/// The value of a TensorProto with one number or string.
struct TensorValue {
  std::optional<double> number;
  std::optional<std::string_view> text;
};

/// DT_FLOAT = 1 or DT_DOUBLE = 2, as raw bytes (4), or packed floats (5) or doubles (6); DT_STRING
/// = 7, as string_val (8). None for any other tensor.
TensorValue value_of_tensor(std::string_view bytes, bool& good) {
  ProtoReader reader(bytes);
  std::uint64_t type = 0;
  std::string_view raw;
  std::string_view floats;
  std::string_view doubles;
  std::optional<std::string_view> text;
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->wire_type == kVarint) type = field->integer;
    if (field->wire_type != kBytes) continue;
    if (field->number == 4) raw = field->bytes;
    if (field->number == 5) floats = field->bytes;
    if (field->number == 6) doubles = field->bytes;
    if (field->number == 8) text = field->bytes;
  }
  good = good && !reader.is_broken();
  if (type == 1 && floats.empty()) floats = raw;
  if (type == 2 && doubles.empty()) doubles = raw;
  if (type == 1 && floats.size() == 4) return {.number = value_at<float>(floats, 0), .text = {}};
  if (type == 2 && doubles.size() == 8) return {.number = value_at<double>(doubles, 0), .text = {}};
  if (type == 7) return {.number = {}, .text = text};
  return {};
}

/// False if the bytes are not a value of a summary.
bool add_value(std::string_view bytes, EventScalar scalar, Events& events) {
  ProtoReader reader(bytes);
  TensorValue value;
  bool good = true;
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->wire_type == kBytes) scalar.tag = std::string(field->bytes);
    if (field->number == 2 && field->wire_type == kFixed32) value.number = float_of(field->integer);
    if (field->number == 8 && field->wire_type == kBytes && !value.number)
      value = value_of_tensor(field->bytes, good);
  }
  if (value.text && !scalar.tag.empty())
    events.texts.push_back({.tag = scalar.tag, .text = std::string(*value.text)});
  if (value.number && !scalar.tag.empty()) {
    scalar.value = *value.number;
    events.scalars.push_back(std::move(scalar));
  }
  return good && !reader.is_broken();
}

/// False if the bytes are not an event.
bool add_event(std::string_view bytes, Events& events) {
  ProtoReader reader(bytes);
  EventScalar scalar;
  std::vector<std::string_view> summaries;
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->wire_type == kFixed64)
      scalar.wall_time = double_of(field->integer);
    if (field->number == 2 && field->wire_type == kVarint)
      scalar.step = static_cast<std::int64_t>(field->integer);
    if (field->number == 5 && field->wire_type == kBytes) summaries.push_back(field->bytes);
  }
  bool good = !reader.is_broken();
  for (const std::string_view summary : summaries) {
    ProtoReader values(summary);
    while (const auto value = values.next())
      if (value->number == 1 && value->wire_type == kBytes)
        good = add_value(value->bytes, scalar, events) && good;
    good = good && !values.is_broken();
  }
  return good;
}

}  // namespace

Result<Events> read_events(std::string_view bytes, const std::string& where) {
  Events events;
  const auto wrong = [&](std::size_t at, std::string what) {
    if (auto other = expected_other_kind(bytes, FileKind::tensorboard_events,
                                         "an event file of TensorBoard"))
      return fail(where, std::move(*other));
    return fail(fmt::format("{}: byte {}", where, at), std::move(what));
  };
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string_view rest = bytes.substr(at);
    if (rest.size() < kHead) {
      if (at == 0) return wrong(at, "is no event file: expected a record, found its beginning");
      break;  // cut off
    }
    const auto size = value_at<std::uint64_t>(rest, 0);
    if (value_at<std::uint32_t>(rest, 8) != masked_crc32c(rest.substr(0, 8)))
      return wrong(at, at == 0 ? "is no event file: the first record's length has a wrong CRC"
                               : "the record's length has a wrong CRC");
    if (rest.size() - kHead < kTail || size > rest.size() - kHead - kTail) break;  // cut off
    const std::string_view data = rest.substr(kHead, size);
    if (value_at<std::uint32_t>(rest, kHead + size) != masked_crc32c(data))
      return wrong(at, "the record's data has a wrong CRC");
    if (!add_event(data, events)) return wrong(at, "the record is no event");
    at += kHead + size + kTail;
  }
  return events;
}

}  // namespace mfsdp
