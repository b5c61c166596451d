// Files that a command writes must not be those that it reads, nor the store.
#pragma once

#include <span>
#include <string>

#include "core/base/error.hpp"

namespace mfsdp {

struct OutputName {
  std::string flag;  ///< that named the file, for errors
  std::string path;
};

/// Whether each file may be written. Errors name the flag: the file is the store `db` or one of
/// SQLite's beside it, one of `inputs`, or what another flag writes. Links are followed: it is the
/// file that counts, not its name. Devices and pipes may be written by several flags.
[[nodiscard]] Result<void> check_outputs(std::span<const OutputName> outputs, const std::string& db,
                                         std::span<const std::string> inputs = {});

}  // namespace mfsdp
