// What a save consists of, and its JSON.
//
//   DIR/latest ──────────────► step-00000200          (a link, replaced at once)
//   DIR/step-00000100/  manifest.json  rank-00000.state  rank-00001.state ...
//   DIR/step-00000200/  manifest.json ...
//
// manifest.json has a checksum of each file's header, a header has those of its data. Its last line
// is the checksum of all its bytes before.
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
/// Without a checksum of its own and without `began`; read, no longer written.
inline constexpr std::string_view kOldCheckpointSchema = "mfsdp.checkpoint/1";
inline constexpr std::string_view kStateSchema = "mfsdp.state/1";

/// What is kept of a parameter: what the optimizer updates, and its states by the names that
/// OptimizerState::saved has for them, scales of those in bytes by saved_scale.
inline constexpr std::string_view kSavedWeight = "weight";

/// A run of a parameter's elements in a file. They lie there in pieces of piece_elements, each with
/// its checksum, so that a part can be read and trusted without the rest.
struct StateEntry {
  std::string parameter;
  std::string kind{kSavedWeight};
  DType dtype = DType::fp32;
  Interval elements;                     ///< of the parameter (of scales: its blocks), never empty
  std::int64_t offset = 0;               ///< from the first byte behind the header
  std::vector<std::uint64_t> checksums;  ///< by piece

  friend bool operator==(const StateEntry&, const StateEntry&) = default;
};

/// The JSON at the beginning of a rank's file.
struct StateHeader {
  std::int64_t step = 0;
  std::int64_t rank = 0;
  std::int64_t piece_elements = 0;
  std::vector<StateEntry> entries;  ///< one behind the other, from offset 0 on

  friend bool operator==(const StateHeader&, const StateHeader&) = default;
};

struct SavedFile {
  std::string name;            ///< in the manifest's folder
  std::int64_t bytes = 0;      ///< of all of it
  std::uint64_t checksum = 0;  ///< of all bytes before the data

  friend bool operator==(const SavedFile&, const SavedFile&) = default;
};

/// What tells one dataset from another, wherever it lies.
struct DataIdentity {
  std::string description;        ///< for people
  std::int64_t samples = 0;       ///< of one epoch
  std::uint64_t fingerprint = 0;  ///< of some of them

  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
};

/// What a run is, as far as the state that it leaves depends on it.
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
  TrainPosition began;  ///< where the run that saved began; steps since then are of its batch
  RunIdentity run;
  std::vector<SavedFile> files;
  bool has_checksum = true;  ///< false for those of the old schema
};

/// One line. A checksum takes the same number of bytes whatever it is.
[[nodiscard]] std::string to_json(const StateHeader& header);
/// Errors name `where` and the field; numbers are in their ranges, and entries follow each other
/// without gaps, in what is read without error.
[[nodiscard]] Result<StateHeader> state_header_from_json(std::string_view text,
                                                         const std::string& where);

/// In the present schema, with its checksum.
[[nodiscard]] std::string to_json(const Manifest& manifest);
/// Also errors: a byte that is not as it was written; a position that the steps of the run do not
/// lead to.
[[nodiscard]] Result<Manifest> manifest_from_json(std::string_view text, const std::string& where);

/// 64 bits (XXH3).
[[nodiscard]] std::uint64_t checksum_of(std::span<const std::byte> bytes);
[[nodiscard]] std::string checksum_text(std::uint64_t checksum);  ///< 16 hexadecimal digits

/// How many pieces the elements of an entry have.
[[nodiscard]] std::int64_t pieces_of(const Interval& elements, std::int64_t piece_elements);
[[nodiscard]] std::int64_t bytes_of(const StateEntry& entry);

}  // namespace mfsdp
