// A tool's manual in the forms of --help-format: manual page, completion of shells, JSON.
#pragma once

#include <filesystem>
#include <string>

#include "core/cli/help.hpp"

namespace mfsdp {

/// Adds the names of the catalogues to the values: models, GPUs, clusters below `scenarios`. A
/// catalogue that cannot be read adds none.
[[nodiscard]] Manual with_catalogues(Manual manual, const std::filesystem::path& scenarios);

[[nodiscard]] std::string render_manual(const Manual& manual, HelpFormat format);

// The formats, one file each.

/// A manual page (troff with the macros of man) of section 1.
[[nodiscard]] std::string render_man_page(const Manual& manual);

// Completion of flags, values, names of catalogues, and files where a path is expected. Each is a
// script to be sourced or to be installed in the shell's completion folder.
[[nodiscard]] std::string render_bash_completion(const Manual& manual);
[[nodiscard]] std::string render_zsh_completion(const Manual& manual);
[[nodiscard]] std::string render_fish_completion(const Manual& manual);

/// One JSON object, schema "mfsdp.help/1", indented by two spaces.
[[nodiscard]] std::string render_help_json(const Manual& manual);

}  // namespace mfsdp
