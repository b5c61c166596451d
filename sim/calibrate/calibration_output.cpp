// Report of a calibration, and writing of its files.
#include <fmt/format.h>

#include <utility>

#include "core/base/atomic_file.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "sim/calibrate/calibrate.hpp"
#include "sim/calibrate/machine_files.hpp"

namespace mfsdp {
namespace {

/// An error if a calibration may not replace the file.
Result<void> check_replaceable(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const auto text = read_file(path, "a file of a calibration", std::size_t{64} << 20);
  if (text && text->starts_with(kCalibratedMark)) return {};
  return fail(path.string(),
              "exists and was not written by a calibration; remove it, or choose another output");
}

/// The flags for predictions with the written files. --gpus-per-node is 8 by default.
std::string usage_text(const Calibration& calibration) {
  constexpr std::int64_t kUsualNode = 8;
  const std::int64_t node = calibration.gpu.gpus_per_node;
  return fmt::format(
      "use it with --gpu {}{}\n", printable(calibration.files.back().path.string()),
      calibration.network && node != kUsualNode ? fmt::format(" --gpus-per-node {}", node) : "");
}

}  // namespace

Result<void> write_calibration(const Calibration& calibration) {
  std::vector<AtomicFile> open;
  for (std::size_t i = 0; i < calibration.files.size(); ++i) {
    const CalibrationFile& file = calibration.files[i];
    const bool stated = i + 1 == calibration.files.size();
    if (!stated) MFSDP_TRY(check_replaceable(file.path));
    MFSDP_LET(output, AtomicFile::create(file.path));
    MFSDP_TRY(output.write(file.content));
    open.push_back(std::move(output));
  }
  for (AtomicFile& file : open) MFSDP_TRY(file.commit());
  return {};
}

std::string calibration_text(const Calibration& calibration) {
  const Gpu& gpu = calibration.gpu;
  std::string text =
      fmt::format("{} ({}), calibration {}\n\n", gpu.name, gpu.title, gpu.calibration);
  for (const FittedValue& value : calibration.values)
    text += fmt::format("{:<24} {:>12.6g}  (was {:.6g})  {}\n", value.key, value.value, value.base,
                        value.source);
  text += fmt::format("\n{:<58} {:>5} {:>9} {:>9} {:>9}\n", "error of time", "rows", "mean",
                      "worst", "bias");
  for (const FidelityRow& row : calibration.errors)
    text += fmt::format("{:<58} {:>5} {:>7.2f} % {:>7.2f} % {:>+7.2f} %\n",
                        fmt::format("{} {}, {}", row.group, row.what, to_string(row.evaluation)),
                        row.error.rows, 100 * row.error.mean, 100 * row.error.worst,
                        100 * row.error.bias);
  text += '\n';
  for (const std::string& note : calibration.notes) text += fmt::format("note: {}\n", note);
  for (const CalibrationFile& file : calibration.files)
    text += fmt::format("wrote {}\n", file.path.string());
  return text + usage_text(calibration);
}

}  // namespace mfsdp
