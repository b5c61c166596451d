#include "core/formats/event_fields.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {
namespace {

struct Key {
  std::string_view key;
  Field field;
};

constexpr std::array kEventKeys{
    Key{"name", Field::name},  Key{"ph", Field::phase},     Key{"cat", Field::category},
    Key{"ts", Field::begin},   Key{"dur", Field::duration}, Key{"pid", Field::process},
    Key{"tid", Field::thread}, Key{"args", Field::args},
};
constexpr std::array kArgsKeys{
    Key{"device", Field::device},
    Key{"inDevice", Field::in_device},
    Key{"stream", Field::stream},
    Key{"correlation", Field::correlation},
    Key{"Collective name", Field::collective},
    Key{"In msg nelems", Field::in_elements},
    Key{"Out msg nelems", Field::out_elements},
    Key{"Group size", Field::group_size},
    Key{"dtype", Field::dtype},
    Key{"Process Group Name", Field::group},
    Key{"Process Group Description", Field::description},
    Key{"External id", Field::external_id},
    Key{"wait_on_stream", Field::wait_on_stream},
    Key{"wait_on_cuda_event_record_corr_id", Field::record_correlation},
    Key{"Input Dims", Field::dims},
    Key{"bytes", Field::bytes},
};

Field find(const auto& keys, std::string_view key) {
  const auto* found = std::ranges::find(keys, key, &Key::key);
  return found == keys.end() ? Field::none : found->field;
}

constexpr std::uint32_t bit(Field field) {
  return std::uint32_t{1} << static_cast<unsigned>(field);
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

Field event_field(std::string_view key) { return find(kEventKeys, key); }
Field args_field(std::string_view key) { return find(kArgsKeys, key); }

std::string_view key_of(Field field) {
  for (const Key& row : kEventKeys)
    if (row.field == field) return row.key;
  for (const Key& row : kArgsKeys)
    if (row.field == field) return row.key;
  return "";
}

void EventFields::clear() {
  for (std::string* text : {&name, &phase, &category, &collective, &dtype, &group, &description})
    text->clear();
  begin = duration = std::nullopt;
  for (auto* number :
       {&process, &thread, &device, &in_device, &stream, &correlation, &in_elements, &out_elements,
        &group_size, &external_id, &wait_on_stream, &record_correlation, &bytes})
    number->reset();
  dims.clear();
  seen = wrong = 0;
}

bool EventFields::begin_field(Field field) {
  if (field == Field::none) return true;
  return (std::exchange(seen, seen | bit(field)) & bit(field)) == 0;
}

void EventFields::set_wrong(Field field) { wrong |= bit(field); }
bool EventFields::is_wrong(Field field) const { return (wrong & bit(field)) != 0; }
bool EventFields::has(Field field) const { return (seen & bit(field)) != 0; }

void EventFields::set_text(Field field, std::string& text) {
  switch (field) {
    case Field::none: return;
    case Field::name: name.swap(text); return;
    case Field::phase: phase.swap(text); return;
    case Field::category: category.swap(text); return;
    case Field::collective: collective.swap(text); return;
    case Field::dtype: dtype.swap(text); return;
    case Field::group: group.swap(text); return;
    case Field::description: description.swap(text); return;
    // Tracks that are not threads of a process: "pid": "Spans".
    case Field::process:
    case Field::thread:
    case Field::args: return;
    case Field::begin:
    case Field::duration: set_wrong(field); return;
    default: break;
  }
  if (const auto number = whole_number(text)) {
    set_integer(field, *number);  // some versions quote the counts of a collective
  } else {
    set_wrong(field);
  }
}

void EventFields::set_integer(Field field, std::int64_t value) {
  switch (field) {
    case Field::none:
    case Field::args: return;
    case Field::process: process = value; return;
    case Field::thread: thread = value; return;
    case Field::device: device = value; return;
    case Field::in_device: in_device = value; return;
    case Field::stream: stream = value; return;
    case Field::correlation: correlation = value; return;
    case Field::in_elements: in_elements = value; return;
    case Field::out_elements: out_elements = value; return;
    case Field::group_size: group_size = value; return;
    case Field::external_id: external_id = value; return;
    case Field::wait_on_stream: wait_on_stream = value; return;
    case Field::record_correlation: record_correlation = value; return;
    case Field::bytes: bytes = value; return;
    default: set_wrong(field); return;
  }
}

void EventFields::set_time(Field field, std::string_view microseconds) {
  const auto time = parse_microseconds(microseconds);
  if (!time) return set_wrong(field);
  (field == Field::begin ? begin : duration) = *time;
}

}  // namespace mfsdp::traces
