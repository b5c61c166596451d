// Runs of other trainers, converted to results of mfsdp.
//
//   a log of torchtitan or Megatron-LM ─┐
//   TensorBoard event files            ─┤
//   lines of JSON, a step each         ─┼─► steps ─► RunResult: measured, its engine named
//   a trainer_state.json of HF         ─┤
//   a memory snapshot of PyTorch       ─┤
//   a trace of PyTorch's profiler      ─┘
//   results and stores of mfsdp        ──────────► as they were saved
//
// Figures that a file does not state are absent, never zero. The facts "missing" and "left_out" of
// topic "import" name the absent figures, and the data of the file that is not used. Runs that
// mfsdp itself exported to such a file stay simulated or measured (reports/record/origin.hpp).
//
// One file is a format's reader: a new format is its reader, a name in ImportFormat and a line in
// detect_format().
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

enum class ImportFormat {
  automatic,
  result,
  store,
  tensorboard,
  torchtitan,
  megatron,
  memory_snapshot,
  kineto,
  steps,
  trainer_state
};

constexpr auto value_names(ImportFormat) {
  return name_array("auto", "result", "store", "tensorboard", "torchtitan", "megatron",
                    "memory-snapshot", "kineto", "steps", "trainer-state");
}

/// Facts of topic "import": figures of a training that the file does not state, and data of the
/// file that is not used. Each is a list of names.
inline constexpr std::string_view kMissingFigures = "missing";
inline constexpr std::string_view kLeftOutFigures = "left_out";

/// Facts that the user knows and the file may lack. They do not change results and stores of mfsdp.
struct ImportSettings {
  ImportFormat format = ImportFormat::automatic;
  std::optional<std::string> engine = {};
  std::optional<std::string> model = {};
  std::optional<std::string> name = {};
  std::optional<std::string> gpu = {};
  std::optional<std::int64_t> gpus = {};
};

/// The runs that a file (of TensorBoard also a folder) holds, in order. The run_id of a foreign
/// file is a hash of its bytes and of the settings, so that it is imported once. Errors name the
/// file, and the line or byte of what is wrong in it; a file in which no run is found is one.
[[nodiscard]] Result<std::vector<RunResult>> import_file(const std::filesystem::path& path,
                                                         const ImportSettings& settings);

}  // namespace mfsdp
