// The format of a save: its files and their JSON.
//
//   DIR/latest ──────────────► step-00000200          (a link, replaced at once)
//   DIR/step-00000100/  manifest.json  rank-00000.state  rank-00001.state ...
//   DIR/step-00000200/  manifest.json ...
//
// manifest.json has a checksum of each file's header, and a header has the checksums of its data.
// The last line of manifest.json is the checksum of all bytes before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/runtime/step_block.hpp"
#include "core/shard/flat_layout.hpp"
#include "gpu_backend/train/train_position.hpp"

namespace mfsdp {

inline constexpr std::string_view kCheckpointSchema = "mfsdp.checkpoint/2";
/// Has no checksum of its own and no `began`; read, but no longer written.
inline constexpr std::string_view kOldCheckpointSchema = "mfsdp.checkpoint/1";
inline constexpr std::string_view kStateSchema = "mfsdp.state/1";

/// Kinds of saved state of a parameter: the weight that the optimizer updates, and the optimizer's
/// states by the names of OptimizerState::saved, with scales of byte states by saved_scale.
inline constexpr std::string_view kSavedWeight = "weight";

/// Consecutive elements of a parameter in a file. They are stored in pieces of piece_elements, each
/// with its checksum, so that a part can be read and checked without the rest.
struct StateEntry {
  std::string parameter;
  std::string kind{kSavedWeight};
  DType dtype = DType::fp32;
  Interval
      elements;  ///< in the ElementOrder of the saving run's ranks of tp (for scales: blocks of
                 ///< the parameter), never empty
  std::int64_t offset = 0;                    ///< from the first byte after the header
  std::vector<std::uint64_t> checksums = {};  ///< by piece

  friend bool operator==(const StateEntry&, const StateEntry&) = default;
};

/// The JSON at the beginning of a rank's file.
struct StateHeader {
  std::int64_t step = 0;
  std::int64_t rank = 0;
  std::int64_t piece_elements = 0;
  std::vector<StateEntry> entries;  ///< consecutive, from offset 0 on

  friend bool operator==(const StateHeader&, const StateHeader&) = default;
};

struct SavedFile {
  std::string name;            ///< in the manifest's folder
  std::int64_t bytes = 0;      ///< size of the file
  std::uint64_t checksum = 0;  ///< of all bytes before the data

  friend bool operator==(const SavedFile&, const SavedFile&) = default;
};

/// Identifies a dataset, independent of its location.
struct DataIdentity {
  std::string description;        ///< for users
  std::int64_t samples = 0;       ///< in one epoch
  std::uint64_t fingerprint = 0;  ///< of some samples

  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
};

/// Properties of a run that determine its state.
struct RunIdentity {
  std::string model_name;
  std::int64_t parameters = 0;
  PlanConfig config;
  OptimizerSettings optimizer;
  std::uint64_t seed = 0;
  DataIdentity data;
  std::string plan_hash;
  std::string run_id;
};

struct Manifest {
  TrainPosition position;
  TrainPosition began;  ///< where the saving run began; later steps used its batch size
  RunIdentity run;
  std::vector<SavedFile> files;
  bool has_checksum = true;  ///< false for the old schema
};

/// One line. Its length does not depend on the values of checksums.
[[nodiscard]] std::string to_json(const StateHeader& header);
/// Errors name `where` and the field. After success, numbers are in range, and entries follow each
/// other without gaps.
[[nodiscard]] Result<StateHeader> state_header_from_json(std::string_view text,
                                                         const std::string& where);

/// In the current schema, with its checksum.
[[nodiscard]] std::string to_json(const Manifest& manifest);
/// Additional errors: a changed byte; a position that does not follow from the steps of the run.
[[nodiscard]] Result<Manifest> manifest_from_json(std::string_view text, const std::string& where);

/// 64 bits (XXH3).
[[nodiscard]] std::uint64_t checksum_of(std::span<const std::byte> bytes);
[[nodiscard]] std::string checksum_text(std::uint64_t checksum);  ///< 16 hexadecimal digits

/// Number of pieces of an entry's elements.
[[nodiscard]] std::int64_t pieces_of(const Interval& elements, std::int64_t piece_elements);
[[nodiscard]] std::int64_t bytes_of(const StateEntry& entry);

}  // namespace mfsdp
