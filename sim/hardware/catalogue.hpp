// A folder of TOML files that users name: scenarios/gpus, scenarios/clusters.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/toml_fields.hpp"

namespace mfsdp {

// What fields of these files may hold.
inline constexpr FieldRange kCountRange{1, 65536};
inline constexpr FieldRange kBandwidthRange{0.01, 1e6};  ///< GB/s
inline constexpr FieldRange kNanosecondRange{0, 1e9};    ///< up to a second

struct Catalogue {
  std::filesystem::path folder;
  std::string thing;      ///< what its files describe, for errors: "GPU"
  std::string flag;       ///< that takes a name: "--gpu"
  std::string list_flag;  ///< that lists them: "--list-gpus"
};

/// Names in it (<name>.toml), sorted. An unreadable folder is a fault of the environment.
[[nodiscard]] Result<std::vector<std::string>> list_catalogue(const Catalogue& catalogue);

/// True of what holds a slash or ends in ".toml"; anything else is a catalogue name.
[[nodiscard]] bool names_a_file(const std::string& name_or_path);

/// The entry that was most likely meant: the longest that the name contains ("H100-SXM" has h100),
/// else one that differs in spelling and not in its number, as another number is another product
/// ("h800" is no h100). Empty if there is none.
[[nodiscard]] std::string meant_entry(std::string_view asked,
                                      const std::vector<std::string>& names);

/// The file of a catalogue name, or the path itself. Capitals and dashes do not matter
/// ("DGX-H100"), nor does "GB" at the end. A name that stands for several ("a100") is answered with
/// these, an unknown one with the one that was most likely meant.
[[nodiscard]] Result<std::filesystem::path> find_in_catalogue(const std::string& name_or_path,
                                                              const Catalogue& catalogue);

/// The texts of [source], each the origin of one of the keys that were asked for so far; another
/// key is a mistake.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> read_sources(TomlFields& fields);

}  // namespace mfsdp
