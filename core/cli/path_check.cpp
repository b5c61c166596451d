#include "core/cli/path_check.hpp"

#include <fmt/format.h>

#include <system_error>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// A file and the flag or text by which the user named it.
struct NamedFile {
  std::string flag;  ///< as an error names it
  std::string text;  ///< as it was given
  fs::path place;    ///< canonical; empty for what may repeat
};

/// Resolves links also if the file does not exist yet, or if a link's target does not exist yet.
fs::path canonical_place(fs::path path) {
  constexpr int most_links = 40;  // as Linux follows
  std::error_code error;
  for (int links = 0; links < most_links && fs::is_symlink(path, error); ++links) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / target;
  }
  const fs::path absolute = fs::absolute(path, error);
  const fs::path place = fs::weakly_canonical(absolute, error);
  return error ? absolute.lexically_normal() : place;
}

bool is_same_place(const fs::path& a, const fs::path& b) {
  if (a == b) return true;
  std::error_code error;  // hard links; false where one does not exist
  return fs::equivalent(a, b, error) && !error;
}

bool may_repeat(const fs::path& path) {
  std::error_code ignored;
  // /dev/stdout may be a link to a regular file.
  if (path.lexically_normal().string().starts_with("/dev/")) return true;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

NamedFile output(const std::string& flag, const std::string& path) {
  return {
      .flag = flag, .text = path, .place = may_repeat(path) ? fs::path() : canonical_place(path)};
}

/// Whether the file exists and is in that folder.
bool is_inside(const NamedFile& file, const NamedFile& folder) {
  std::error_code ignored;
  return !file.place.empty() && fs::exists(file.place, ignored) &&
         fs::is_directory(folder.place, ignored) && lies_in(file.place, folder.place);
}

bool one_file(const NamedFile& a, const NamedFile& b) {
  return !a.place.empty() && !b.place.empty() && is_same_place(a.place, b.place);
}

/// Each file that has its own flag; none if the flag was not given.
std::vector<FlagFile> output_files(const CommonOptions& options, const ToolFiles& tool) {
  std::vector<FlagFile> files{{"--trace", options.trace},
                              {"--memory-trace", options.memory_trace},
                              {"--plan-out", options.plan_out}};
  files.insert(files.end(), tool.written.begin(), tool.written.end());
  return files;
}

/// The error names the flag and the folder, or contains the system's message.
Result<void> check_can_write(const FlagFile& file) {
  if (!file.path) return {};
  if (*file.path == "-")
    return fail(file.flag, "expected a file, got '-': nothing is written to standard output");
  std::error_code ignored;
  const fs::path folder = fs::path(*file.path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    return fail(file.flag, printable(folder.string()) + " is no folder", Fault::environment);
  auto checked = check_can_be_written(*file.path);
  if (checked) return {};
  return fail(file.flag, checked.error().message(), checked.error().fault);
}

/// The files that the run writes; the store first.
std::vector<NamedFile> written(const CommonOptions& options, const ToolFiles& tool) {
  std::vector<NamedFile> files;
  if (!options.no_save) {
    const std::string flag = options.db ? "--db" : "the default of --db,";
    const std::string store = options.store_path();
    files.push_back(output(flag, store));
    for (const char* of_sqlite : {"-wal", "-shm", "-journal"})
      files.push_back(output(flag + " (SQLite)", store + of_sqlite));
  }
  for (const FlagFile& file : output_files(options, tool))
    if (file.path) files.push_back(output(file.flag, *file.path));
  return files;
}

/// The files that the run reads.
std::vector<NamedFile> read(const CommonOptions& options, const fs::path& scenarios,
                            const ToolFiles& tool) {
  std::vector<NamedFile> files;
  const auto input = [&](const std::string& flag, const std::string& text, const fs::path& path) {
    files.push_back({.flag = flag, .text = text, .place = canonical_place(path)});
  };
  std::error_code ignored;
  if (!options.model.empty()) {
    const bool plain = options.model.find('/') == std::string::npos;
    const fs::path built_in = scenarios / "models" / options.model / "config.json";
    const fs::path given = options.model;
    const fs::path inside = fs::is_directory(given, ignored) ? given / "config.json" : given;
    input("--model", options.model, plain && fs::exists(built_in, ignored) ? built_in : inside);
  }
  if (options.plan) input("--plan", *options.plan, *options.plan);
  if (options.options_file) input("--options", *options.options_file, *options.options_file);
  const auto catalogued = [&](const char* flag, const std::string& name, const char* folder) {
    const bool file = name.find('/') != std::string::npos || name.ends_with(".toml");
    input(flag, name, file ? fs::path(name) : scenarios / folder / (name + ".toml"));
  };
  if (options.cluster)
    catalogued("--cluster", *options.cluster, "clusters");
  else
    catalogued("--gpu", options.gpu, "gpus");
  for (const FlagFile& file : tool.read)
    if (file.path) input(file.flag, *file.path, *file.path);
  return files;
}

}  // namespace

bool is_same_file(const fs::path& a, const fs::path& b) {
  return is_same_place(canonical_place(a), canonical_place(b));
}

bool lies_in(const fs::path& inner, const fs::path& outer) {
  const fs::path from_there = inner.lexically_relative(outer);
  return !from_there.empty() && *from_there.begin() != "..";
}

Result<void> check_paths(const CommonOptions& options, const fs::path& scenarios,
                         const ToolFiles& tool) {
  const std::vector<NamedFile> inputs = read(options, scenarios, tool);
  std::vector<NamedFile> others = inputs;
  const auto with = [](const NamedFile& file) {
    return fmt::format("{} {}", file.flag, in_quotes(file.text));
  };
  for (const NamedFile& file : written(options, tool)) {
    for (const NamedFile& other : others)
      if (one_file(file, other))
        return fail("", fmt::format("{} and {} are one file; name another for one of them",
                                    with(file), with(other)));
    others.push_back(file);
  }
  for (const FlagFile& file : output_files(options, tool)) {
    if (!file.path) continue;
    const NamedFile named = output(file.flag, *file.path);
    for (const NamedFile& input : inputs)
      if (is_inside(named, input))
        return fail("", fmt::format("{} is a file of {}, which is read; name another", with(named),
                                    with(input)));
    MFSDP_TRY(check_can_write(file));
  }
  return {};
}

}  // namespace mfsdp
