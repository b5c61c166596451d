#include "gpu_backend/weights/hf_folder.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

bool is_file_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." &&
         text.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

}  // namespace

Result<std::map<std::string, std::string>> read_weight_map(const fs::path& path) {
  MFSDP_LET(text, read_file(path, "an index of safetensors", kLargestSafetensorsHeader));
  MFSDP_LET(index, parse_json(text, path.string()));
  const Json empty;
  const Json& map = index.is_object() && index.contains("weight_map") ? index["weight_map"] : empty;
  if (!map.is_object() || map.empty())
    return fail(path.string() + ", weight_map",
                fmt::format("expected an object from tensors to files, got {}",
                            map.is_null() ? "nothing" : json_excerpt(map)));
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string() || !is_file_name(file.get_ref<const std::string&>()))
      return fail(fmt::format("{}, weight_map, tensor {}", path.string(), shown_name(tensor)),
                  fmt::format("expected the name of a file in the same folder, got {}",
                              json_excerpt(file)));
    files[tensor] = file.get<std::string>();
  }
  return files;
}

Result<HfFolder> HfFolder::open(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    return fail(folder.string(), "expected a folder with a Hugging Face model, found none");
  HfFolder opened;
  const fs::path single = folder / kHfSingleFile;
  const fs::path index = folder / kHfIndex;
  if (fs::exists(single, ignored)) {
    MFSDP_TRY(opened.add_file(single));
  } else if (fs::exists(index, ignored)) {
    MFSDP_TRY(opened.add_sharded(folder, index));
  } else {
    return fail(folder.string(),
                fmt::format("expected {} or {} in it, found neither", kHfSingleFile, kHfIndex));
  }
  return opened;
}

Result<void> HfFolder::add_file(const fs::path& path) {
  MFSDP_LET(file, MappedFile::open(path, "safetensors"));
  const MappedFile& mapped = files_.emplace_back(std::move(file));
  MFSDP_LET(parsed, parse_safetensors(mapped.bytes(), mapped.name()));
  for (SafeTensor& tensor : parsed.tensors) {
    std::string name = tensor.name;
    const auto [at, fresh] = tensors_.try_emplace(
        std::move(name), StoredTensor{.file = &mapped, .tensor = std::move(tensor)});
    if (!fresh)
      return fail(fmt::format("{}, tensor {}", mapped.name(), shown_name(at->first)),
                  "is in " + at->second.file->name() + " too; expected it once");
  }
  return {};
}

Result<void> HfFolder::add_sharded(const fs::path& folder, const fs::path& index) {
  MFSDP_LET(weight_map, read_weight_map(index));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  for (const std::string& name : names) MFSDP_TRY(add_file(folder / name));
  for (const auto& [name, stored] : tensors_)
    if (!weight_map.contains(name))
      return fail(fmt::format("{}, tensor {}", stored.file->name(), shown_name(name)),
                  fmt::format("is not in the weight_map of {}", kHfIndex));
  for (const auto& [name, file] : weight_map) {
    const StoredTensor* stored = find(name);
    if (stored == nullptr || fs::path(stored->file->name()).filename() != file)
      return fail(fmt::format("{}, weight_map, tensor {}", index.string(), shown_name(name)),
                  fmt::format("is not in {}", json_excerpt(file)));
  }
  return {};
}

const StoredTensor* HfFolder::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace mfsdp
