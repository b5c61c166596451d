// Finds the config.json of a built-in model or a path.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/closest.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/model/hf_config.hpp"
#include "core/model/not_modelled.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// Far above any config.json, so that a mistyped path to weights is not read.
constexpr std::size_t kLargestFile = std::size_t{16} << 20;
constexpr std::size_t kSuggestions = 3;

Result<NamedModel> read_model(std::string name, const fs::path& path) {
  MFSDP_LET(text, read_file(path, "a config.json", kLargestFile));
  MFSDP_LET(model, read_hf_config(text, path.string()));
  return NamedModel{.name = std::move(name),
                    .shape = std::move(model.shape),
                    .gaps = std::move(model.gaps),
                    .notes = std::move(model.notes)};
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

/// Parts of names on Hugging Face's hub that are not part of the model's name: the publisher, and
/// the purpose of fine-tuning.
constexpr std::array<std::string_view, 6> kIdleWords{"meta", "hf",   "instruct",
                                                     "chat", "base", "it"};

/// "meta-llama/Llama-2-7b-chat-hf" and "llama2_7b" -> "llama27b"
std::string squashed(std::string_view name) {
  name = name.substr(name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1);
  std::string all;
  std::string word;
  const auto close_word = [&] {
    if (std::ranges::find(kIdleWords, word) == kIdleWords.end()) all += word;
    word.clear();
  };
  for (const char c : name) {
    if (c == '-' || c == '_')
      close_word();
    else
      word += lower_case(c);
  }
  close_word();
  return all;
}

/// Versions with the shape of a built-in model of another name. Llama 3.1 and 3.3 equal theirs;
/// Llama 3 has a shorter context and unscaled RoPE.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kVersions{
    {{"deepseekr1", "deepseek_v3"},
     {"deepseekv30324", "deepseek_v3"},
     {"deepseekv3.1", "deepseek_v3"},
     {"llama3.18b", "llama3_8b"},
     {"llama3.170b", "llama3_70b"},
     {"llama3.1405b", "llama3_405b"},
     {"llama3.21b", "llama3_1b"},
     {"llama3.23b", "llama3_3b"},
     {"llama3.370b", "llama3_70b"},
     {"mistral7bv0.3", "mistral_7b"},
     {"mixtral8x7bv0.1", "mixtral_8x7b"},
     {"olmoe1b7b0924", "olmoe_1b_7b"},
     {"phi3mini4k", "phi3_mini"}}};

/// The built-in model with that name in another spelling, if there is one.
std::optional<std::string> built_in_name(const std::string& name, const fs::path& models_dir) {
  const std::string asked = squashed(name);
  for (const auto& [version, built_in] : kVersions)
    if (asked == version) return std::string(built_in);
  const auto names = list_models(models_dir);
  if (!names) return std::nullopt;
  const auto found = std::ranges::find(*names, asked, squashed);
  return found == names->end() ? std::nullopt : std::optional(*found);
}

tl::unexpected<Error> unknown_model(const std::string& name, const fs::path& models_dir) {
  if (const auto what = what_is_not_modelled(name))
    return fail("--model", not_modelled_text(name, *what));
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
  if (const auto name = built_in_name(name_or_path, models_dir))
    return read_model(*name, models_dir / *name / "config.json");
  const bool looks_like_path = !is_plain_name(name_or_path) || name_or_path.ends_with(".json");
  if (looks_like_path && !name_or_path.empty() && !what_is_not_modelled(name_or_path))
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
