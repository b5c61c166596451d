// TensorBoard's event files (events.out.tfevents.*), reduced to their scalars and texts.
//
// A file is a list of TFRecords: a length of 8 bytes, its masked CRC-32C, the data, the data's
// (tensorflow/core/lib/io/record_writer.h). The data is a protocol buffer `Event`: wall_time = 1,
// step = 2, summary = 5; a summary's values are `tag` = 1 with `simple_value` = 2 or, since
// TensorFlow 2, a `tensor` = 8 of one number or string (tensorflow/core/framework/summary.proto).
// PyTorch's SummaryWriter.add_scalar writes simple_value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

struct EventScalar {
  std::string tag;
  std::int64_t step = 0;
  double value = 0;
  double wall_time = 0;  ///< unix seconds
};

struct EventText {
  std::string tag;
  std::string text;
};

struct Events {
  std::vector<EventScalar> scalars;
  std::vector<EventText> texts;
};

/// Reads all scalars and texts in the order of the file. An incomplete last record, as of a killed
/// trainer, and other kinds of summaries are ignored. Errors name `where` and the byte: a wrong
/// checksum, an impossible length or protocol buffer.
[[nodiscard]] Result<Events> read_events(std::string_view bytes, const std::string& where);

}  // namespace mfsdp
