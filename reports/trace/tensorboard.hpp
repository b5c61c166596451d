// A run's steps as an event file of TensorBoard, with the tags of torchtitan.
//
//   file     record*             record: length, its checksum, event, its checksum
//   event    wall time, step, scalars by tag (a protocol buffer)
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The text with "_" for all but letters, digits and "-".
[[nodiscard]] std::string file_name_part(std::string_view text);

/// "events.out.tfevents.<seconds>.<run_id>": TensorBoard looks for that name.
[[nodiscard]] std::string tensorboard_file_name(const RunHead& run);

/// Writes the results of each step of a measured run, or of the one step of a predicted run. Tags:
/// loss_metrics/global_avg_loss, grad_norm, lr, throughput(tps), tflops, mfu(%),
/// time_metrics/end_to_end(s), memory/max_active(GiB), memory/max_reserved(GiB) and their (%), and
/// validation_metrics/loss. Figures that are not stored have no value. Rates are per GPU. The times
/// of steps are consecutive from the run's creation on. A text contains the run's origin
/// (reports/record/origin.hpp).
/// Error: a file that cannot be written.
[[nodiscard]] Result<void> write_tensorboard(const RunResult& run,
                                             const std::filesystem::path& path);

}  // namespace mfsdp
