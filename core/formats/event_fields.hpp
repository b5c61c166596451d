// The fields of one entry of "traceEvents". Private to the reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/quantity.hpp"

namespace mfsdp::traces {

/// The keys of an event and of its "args" that are read.
enum class Field {
  none,
  name,
  phase,
  category,
  begin,
  duration,
  process,
  thread,
  args,
  device,
  in_device,
  stream,
  correlation,
  collective,
  in_elements,
  out_elements,
  group_size,
  dtype,
  group,
  description,
  external_id,
  wait_on_stream,
  record_correlation,
  dims,
  bytes
};

[[nodiscard]] Field event_field(std::string_view key);
[[nodiscard]] Field args_field(std::string_view key);
[[nodiscard]] std::string_view key_of(Field field);

/// Values in the order of the file. "cat" may come last, so whether a missing or wrong value
/// matters is known only at the event's end.
struct EventFields {
  std::string name;
  std::string phase;
  std::string category;
  std::string collective;
  std::string dtype;
  std::string group;
  std::string description;  ///< of the group
  std::optional<Nanos> begin;
  std::optional<Nanos> duration;
  std::optional<std::int64_t> process;
  std::optional<std::int64_t> thread;
  std::optional<std::int64_t> device;
  std::optional<std::int64_t> in_device;
  std::optional<std::int64_t> stream;
  std::optional<std::int64_t> correlation;
  std::optional<std::int64_t> in_elements;
  std::optional<std::int64_t> out_elements;
  std::optional<std::int64_t> group_size;
  std::optional<std::int64_t> external_id;
  std::optional<std::int64_t> wait_on_stream;
  std::optional<std::int64_t> record_correlation;
  std::optional<std::int64_t> bytes;
  std::vector<std::vector<std::int64_t>> dims;  ///< of an operator's inputs; none: no tensor
  std::uint32_t seen = 0;                       ///< one bit for each Field
  std::uint32_t wrong = 0;                      ///< fields with a value of the wrong type

  void clear();
  /// False if the event has the field already.
  [[nodiscard]] bool begin_field(Field field);
  void set_text(Field field, std::string& text);
  void set_integer(Field field, std::int64_t value);
  void set_time(Field field, std::string_view microseconds);
  void set_wrong(Field field);
  [[nodiscard]] bool is_wrong(Field field) const;
  [[nodiscard]] bool has(Field field) const;
};

}  // namespace mfsdp::traces
