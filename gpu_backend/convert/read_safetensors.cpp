#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "core/formats/safetensors.hpp"
#include "gpu_backend/convert/readers.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"
#include "gpu_backend/weights/hf_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSharding = "DCP_SHARDING_INFO";

/// Where each tensor's chunk begins, of DCP's files; empty for others.
Result<std::map<std::string, std::vector<std::int64_t>>> offsets_of(const SafetensorsFile& file,
                                                                    const std::string& where) {
  std::map<std::string, std::vector<std::int64_t>> offsets;
  const auto text = file.metadata.find(kSharding);
  if (text == file.metadata.end()) return offsets;
  const std::string place = fmt::format("{}, {}", where, kSharding);
  MFSDP_LET(json, parse_json(text->second, place));
  if (!json.is_object()) return fail(place, "expected an object of tensors");
  for (const auto& [name, entry] : json.items()) {
    const Json* saved =
        entry.is_object() && entry.contains("saved_offsets") ? &entry["saved_offsets"] : nullptr;
    const bool is_list =
        saved != nullptr && saved->is_array() && std::ranges::all_of(*saved, [](const Json& one) {
          return one.is_number_unsigned() && one.get<std::uint64_t>() < (std::uint64_t{1} << 62);
        });
    if (!is_list)
      return fail(fmt::format("{}, {}", place, shown_name(name)),
                  "expected saved_offsets, integers from 0");
    offsets[name] = saved->get<std::vector<std::int64_t>>();
  }
  return offsets;
}

class SafetensorsReader {
 public:
  explicit SafetensorsReader(Checkpoint& read) : read_(read) {}

  Result<void> add(const fs::path& path) {
    MFSDP_LET(mapped, MappedFile::open(path, "safetensors"));
    const std::string where = path.string();
    MFSDP_LET(parsed, parse_safetensors(mapped.bytes(), where));
    MFSDP_LET(offsets, offsets_of(parsed, where));
    const bool is_dcp = parsed.metadata.contains(kSharding);
    if (is_dcp) read_.format = CheckpointFormat::dcp;
    const std::size_t file = read_.files.size();
    read_.files.push_back({.path = path, .size = mapped.bytes().size()});
    for (const SafeTensor& tensor : parsed.tensors) {
      std::vector<std::int64_t> at(tensor.shape.size());
      if (const auto found = offsets.find(tensor.name); found != offsets.end()) at = found->second;
      const std::string place = fmt::format("{}, tensor {}", where, shown_name(tensor.name));
      if (at.size() != tensor.shape.size())
        return fail(place, "expected a saved offset for each dim");
      MFSDP_TRY(add_chunk(
          tensor, is_dcp, place,
          {.box = {.offsets = std::move(at), .sizes = tensor.shape},
           .file = file,
           .offset = static_cast<std::uint64_t>(tensor.data.data() - mapped.bytes().data())}));
    }
    return {};
  }

  void finish() {
    for (auto& [name, tensor] : tensors_) read_.tensors.push_back(std::move(tensor));
  }

 private:
  Result<void> add_chunk(const SafeTensor& stored, bool is_dcp, const std::string& place,
                         StoredBox box) {
    const ElementType* type = type_of_safetensors(stored.dtype);
    if (type->bits % 8 != 0)
      return fail(place, fmt::format("has elements of {} bits, which are not read", type->bits));
    CheckpointTensor chunk{.name = stored.name, .type = type, .shape = stored.shape, .boxes = {}};
    const auto [at, fresh] = tensors_.try_emplace(stored.name, std::move(chunk));
    CheckpointTensor& tensor = at->second;
    if (!fresh && !is_dcp) return fail(place, "is in another file too; expected it once");
    if (tensor.type != type || tensor.shape.size() != stored.shape.size())
      return fail(place, "has another dtype or number of dims than in another file");
    Int128 elements = 1;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      tensor.shape[i] = std::max(fresh ? 0 : tensor.shape[i], box.box.offsets[i] + stored.shape[i]);
      elements *= tensor.shape[i];
      if (elements > (Int128{1} << 58)) return fail(place, "has 2^58 elements or more");
    }
    if (box.box.elements() > 0) tensor.boxes.push_back(std::move(box));
    return {};
  }

  Checkpoint& read_;
  std::map<std::string, CheckpointTensor> tensors_;
};

}  // namespace

bool is_plain_file_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." &&
         text.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Result<void> read_safetensors_files(const std::vector<fs::path>& files, Checkpoint& read) {
  SafetensorsReader reader(read);
  for (const fs::path& file : files) MFSDP_TRY(reader.add(file));
  reader.finish();
  return {};
}

Result<void> read_safetensors_folder(Checkpoint& read) {
  std::error_code ignored;
  if (fs::exists(read.path / kHfSingleFile, ignored))
    return read_safetensors_files({read.path / kHfSingleFile}, read);
  std::set<fs::path> files;
  const fs::path index = read.path / kHfIndex;
  std::map<std::string, std::string> indexed;
  if (fs::exists(index, ignored)) {
    MFSDP_SET(indexed, read_weight_map(index));
    for (const auto& [tensor, file] : indexed) files.insert(read.path / file);
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(read.path, ignored))
      if (entry.path().extension() == ".safetensors") files.insert(entry.path());
  }
  std::vector<fs::path> present;
  for (const fs::path& file : files)
    if (fs::exists(file, ignored))
      present.push_back(file);
    else
      read.problems.push_back(fail(file.string(), "is missing; the index names it").value());
  MFSDP_TRY(read_safetensors_files(present, read));
  std::set<std::string_view> names;
  for (const CheckpointTensor& tensor : read.tensors) names.insert(tensor.name);
  for (const auto& [tensor, file] : indexed)
    if (!names.contains(tensor))
      read.problems.push_back(fail(fmt::format("{}: {}", index.string(), shown_name(tensor)),
                                   fmt::format("is not in {}, which the index names", file))
                                  .value());
  return {};
}

}  // namespace mfsdp
