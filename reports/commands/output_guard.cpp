#include "reports/commands/output_guard.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/cli/format.hpp"
#include "core/cli/path_check.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

bool is_device(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::is_regular_file(path, error);
}

bool is_of_store(const fs::path& path, const std::string& db) {
  return std::ranges::any_of(kStoreFileEndings, [&](std::string_view ending) {
    return is_same_file(path, db + std::string(ending));
  });
}

}  // namespace

Result<void> check_outputs(std::span<const OutputName> outputs, const std::string& db,
                           std::span<const std::string> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const OutputName& output = outputs[i];
    const std::string named = in_quotes(output.path);
    if (is_of_store(output.path, db)) return fail(output.flag, named + " is the store itself");
    for (const std::string& input : inputs)
      if (is_same_file(output.path, input))
        return fail(output.flag, named + " is read by this command");
    for (const OutputName& other : outputs.first(i))
      if (!is_device(output.path) && is_same_file(output.path, other.path))
        return fail(output.flag, named + " is written by " + other.flag);
  }
  return {};
}

}  // namespace mfsdp
