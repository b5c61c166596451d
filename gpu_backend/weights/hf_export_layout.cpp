#include "gpu_backend/weights/hf_export_layout.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "core/formats/safetensors.hpp"
#include "gpu_backend/weights/hf_folder.hpp"
#include "gpu_backend/weights/hf_model_config.hpp"
#include "gpu_backend/weights/peft_config.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// transformers requires the format. The producer distinguishes our files from downloaded ones.
const std::map<std::string, std::string>& metadata() {
  static const std::map<std::string, std::string> own{{"format", "pt"}, {"producer", "mfsdp"}};
  return own;
}

ExportFile text_file(std::string_view name, std::string text) {
  const std::int64_t size = std::ssize(text);
  return {.name = std::string(name), .beginning = std::move(text), .size = size};
}

/// The first tensor of each file, and the total number at the end.
std::vector<std::size_t> split(const std::vector<TensorShape>& tensors, std::int64_t shard_bytes) {
  std::vector<std::size_t> begins{0};
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > begins.back() && checked_add(filled, tensors[i].bytes()) > shard_bytes) {
      begins.push_back(i);
      filled = 0;
    }
    filled = checked_add(filled, tensors[i].bytes());
  }
  begins.push_back(tensors.size());
  return begins;
}

std::string file_name(std::size_t number, std::size_t of) {
  return of == 1 ? std::string(kHfSingleFile)
                 : fmt::format("model-{:05}-of-{:05}.safetensors", number, of);
}

bool is_own_safetensors(const fs::path& path) {
  const auto file = MappedFile::open(path, "safetensors");
  if (!file) return false;
  const auto parsed = parse_safetensors(file->bytes(), file->name());
  return parsed && parsed->metadata == metadata();
}

}  // namespace

std::int64_t ExportLayout::bytes() const {
  std::int64_t sum = 0;
  for (const ExportFile& file : files) sum = checked_add(sum, file.size);
  return sum;
}

Result<ExportLayout> lay_out_export(const Program& program, const HfTensors& tensors,
                                    std::int64_t shard_bytes) {
  const DType dtype = program.config.param_dtype;
  MFSDP_LET(config, hf_config_text(program.config.model, dtype));
  std::vector<TensorShape> shapes;
  for (const HfTensor& tensor : tensors.all())
    shapes.push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});

  ExportLayout layout;
  layout.files.push_back(text_file(kHfConfig, std::move(config)));
  nlohmann::json weight_map;
  std::int64_t total = 0;
  const std::vector<std::size_t> begins = split(shapes, shard_bytes);
  const std::size_t files = begins.size() - 1;
  for (std::size_t f = 0; f < files; ++f) {
    const auto held = std::span(shapes).subspan(begins[f], begins[f + 1] - begins[f]);
    ExportFile file = text_file(file_name(f + 1, files), safetensors_header(held, metadata()));
    for (const TensorShape& tensor : held) {
      layout.places.push_back({.file = layout.files.size(), .offset = file.size});
      weight_map[tensor.name] = file.name;
      file.size = checked_add(file.size, tensor.bytes());
      total = checked_add(total, tensor.bytes());
    }
    layout.files.push_back(std::move(file));
  }
  if (files == 1) return layout;
  const nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  layout.files.push_back(text_file(kHfIndex, index.dump(2) + "\n"));
  return layout;
}

namespace {

/// Puts all adapters into one file of that name, after the files of the layout.
void add_adapters(ExportLayout& layout, std::string_view name, const Program& program,
                  const HfTensors& adapters) {
  std::vector<TensorShape> shapes;
  for (const HfTensor& tensor : adapters.all())
    shapes.push_back(
        {.name = tensor.name, .dtype = program.config.main_dtype, .shape = tensor.shape});
  ExportFile file = text_file(name, safetensors_header(shapes, metadata()));
  for (const TensorShape& tensor : shapes) {
    layout.places.push_back({.file = layout.files.size(), .offset = file.size});
    file.size = checked_add(file.size, tensor.bytes());
  }
  layout.files.push_back(std::move(file));
}

}  // namespace

Result<ExportLayout> lay_out_adapters(const Program& program, const HfTensors& adapters) {
  MFSDP_LET(config, peft_config_text(program.config));
  ExportLayout layout;
  layout.files.push_back(text_file(kPeftConfig, std::move(config)));
  add_adapters(layout, kPeftWeights, program, adapters);
  return layout;
}

ExportLayout lay_out_merged(const Program& program, const HfTensors& adapters) {
  ExportLayout layout;
  add_adapters(layout, kMergedAdapters, program, adapters);
  return layout;
}

bool is_export_name(const std::string& name) {
  return name == kHfConfig || name == kHfIndex || name == kHfSingleFile || name == kPeftConfig ||
         name == kPeftWeights || (name.starts_with("model-") && name.ends_with(".safetensors"));
}

bool is_earlier_export(const fs::path& folder) {
  std::error_code error;
  bool weights = false;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!is_export_name(name)) return false;
    if (!name.ends_with(".safetensors")) continue;
    if (!is_own_safetensors(at->path())) return false;
    weights = true;
  }
  return !error && weights;
}

}  // namespace mfsdp
