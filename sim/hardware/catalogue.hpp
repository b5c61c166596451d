// A folder of TOML files that users refer to by name: scenarios/gpus, scenarios/clusters.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/toml_fields.hpp"

namespace mfsdp {

// Valid ranges of fields in these files.
inline constexpr FieldRange kCountRange{1, 65536};
inline constexpr FieldRange kBandwidthRange{0.01, 1e6};  ///< GB/s
inline constexpr FieldRange kNanosecondRange{0, 1e9};    ///< up to a second

struct Catalogue {
  std::filesystem::path folder;
  std::string thing;      ///< what its files describe, for errors: "GPU"
  std::string flag;       ///< that takes a name: "--gpu"
  std::string list_flag;  ///< that lists them: "--list-gpus"
};

/// Names in the folder (<name>.toml), sorted. An unreadable folder is an environment error.
[[nodiscard]] Result<std::vector<std::string>> list_catalogue(const Catalogue& catalogue);

/// True if the name contains a slash or ends in ".toml"; all others are catalogue names.
[[nodiscard]] bool names_a_file(const std::string& name_or_path);

/// The entry that was most likely meant: the longest entry contained in the name ("H100-SXM"
/// contains h100), else one with similar spelling and the same number. Another number is another
/// GPU: "h800" does not match h100. Empty if there is none.
[[nodiscard]] std::string meant_entry(std::string_view asked,
                                      const std::vector<std::string>& names);

/// The file of a catalogue name, or the path itself. Case, dashes and a final "GB" are ignored
/// ("DGX-H100"). For an ambiguous name ("a100") the error lists the candidates; for an unknown name
/// it suggests the closest one.
[[nodiscard]] Result<std::filesystem::path> find_in_catalogue(const std::string& name_or_path,
                                                              const Catalogue& catalogue);

/// The texts of [source], each the origin of a key that was read so far; any other key is an error.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> read_sources(TomlFields& fields);

}  // namespace mfsdp
