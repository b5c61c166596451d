// Built-in models and paths: which file a name stands for.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "core/base/closest.hpp"
#include "core/base/read_file.hpp"
#include "core/model/hf_config.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// Far above any config.json; keeps a mistyped path to weights from being read whole.
constexpr std::size_t kLargestFile = std::size_t{16} << 20;
constexpr std::size_t kSuggestions = 3;

Result<NamedModel> read_model(std::string name, const fs::path& path) {
  MFSDP_LET(text, read_file(path, "a config.json", kLargestFile));
  MFSDP_LET(shape, parse_hf_config(text, path.string()));
  return NamedModel{.name = std::move(name), .shape = shape};
}

/// "runs/my_model/config.json" and "runs/my_model/" are my_model, "small.json" is small.
std::string name_of_path(const fs::path& path, bool directory) {
  std::error_code ignored;
  fs::path full = fs::absolute(path, ignored).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  if (directory) return full.filename().string();
  if (full.filename() == "config.json") return full.parent_path().filename().string();
  return full.stem().string();
}

bool is_plain_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." && text.find('/') == std::string::npos &&
         text.find('\0') == std::string::npos;
}

tl::unexpected<Error> unknown_model(const std::string& name, const fs::path& models_dir) {
  const auto names = list_models(models_dir);
  if (!names) return tl::unexpected<Error>(names.error());
  return fail("--model",
              fmt::format("unknown model '{}'; closest: {}; or give the path of a "
                          "config.json or of its directory",
                          name, fmt::join(closest_names(name, *names, kSuggestions), ", ")));
}

}  // namespace

Result<NamedModel> load_model(const std::string& name_or_path, const fs::path& models_dir) {
  std::error_code ignored;
  if (is_plain_name(name_or_path)) {
    const fs::path built_in = models_dir / name_or_path / "config.json";
    if (fs::exists(built_in, ignored)) return read_model(name_or_path, built_in);
  }
  const fs::path path(name_or_path);
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) {
    const fs::path inside = path / "config.json";
    if (!fs::exists(inside, ignored))
      return fail(name_or_path, "expected a directory with a config.json, found none in it");
    return read_model(name_of_path(path, true), inside);
  }
  if (fs::exists(status)) return read_model(name_of_path(path, false), path);
  const bool looks_like_path = !is_plain_name(name_or_path) || name_or_path.ends_with(".json");
  if (looks_like_path && !name_or_path.empty())
    return fail(name_or_path, "expected a config.json or its directory, found nothing there");
  return unknown_model(name_or_path, models_dir);
}

Result<std::vector<std::string>> list_models(const fs::path& models_dir) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(models_dir, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (fs::exists(at->path() / "config.json", ignored))
      names.push_back(at->path().filename().string());
  }
  if (error)
    return fail(models_dir.string(),
                fmt::format("cannot list the built-in models: {}", error.message()),
                Fault::environment);
  std::ranges::sort(names);
  return names;
}

}  // namespace mfsdp
