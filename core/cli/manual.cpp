#include "core/cli/manual.hpp"

#include <algorithm>
#include <system_error>

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// Names of TOML files ("h100" for h100.toml) and of folders that hold a config.json; sorted.
std::vector<std::string> names_below(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const fs::path& path = entry->path();
    if (path.extension() == ".toml" || fs::exists(path / "config.json", ignored))
      names.push_back(path.extension() == ".toml" ? path.stem().string()
                                                  : path.filename().string());
  }
  std::ranges::sort(names);
  return names;
}

void add_names(FlagValues& values, const fs::path& scenarios) {
  if (values.catalogue.empty()) return;
  const std::vector<std::string> names = names_below(scenarios / values.catalogue);
  values.names.insert(values.names.end(), names.begin(), names.end());
}

}  // namespace

Manual with_catalogues(Manual manual, const fs::path& scenarios) {
  for (FlagGroup& group : manual.groups)
    for (Flag& flag : group.flags) add_names(flag.values, scenarios);
  return manual;
}

std::string render_manual(const Manual& manual, HelpFormat format) {
  switch (format) {
    case HelpFormat::man: return render_man_page(manual);
    case HelpFormat::bash: return render_bash_completion(manual);
    case HelpFormat::zsh: return render_zsh_completion(manual);
    case HelpFormat::fish: return render_fish_completion(manual);
    case HelpFormat::json: return render_help_json(manual);
    case HelpFormat::text: break;
  }
  return render_help(manual);
}

}  // namespace mfsdp
