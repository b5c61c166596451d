#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/read_file.hpp"
#include "core/formats/safetensors.hpp"
#include "core/formats/torch_archive.hpp"
#include "core/plan/config.hpp"
#include "core/shard/element_order.hpp"
#include "gpu_backend/checkpoint/disk.hpp"
#include "gpu_backend/checkpoint/saved_state.hpp"
#include "gpu_backend/convert/data_file.hpp"
#include "gpu_backend/convert/readers.hpp"

namespace mfsdp {
namespace {

/// A parameter of ours that Hugging Face stores as several tensors: where each begins in it.
struct NamedPart {
  std::string name;
  std::vector<std::int64_t> shape;
  Interval elements;
};

std::vector<NamedPart> parts_of(const Parameter& parameter) {
  if (parameter.parts.empty() || parameter.transposed)
    return {{.name = parameter.name,
             .shape = parameter.shape,
             .elements = {.begin = 0, .end = parameter.elements()}}};
  std::vector<NamedPart> parts;
  std::int64_t begin = 0;
  for (const ParameterPart& part : parameter.parts) {
    std::vector<std::int64_t> shape = parameter.shape;
    shape.front() = part.rows;
    const std::int64_t end = begin + part.rows * parameter.row_elements();
    parts.push_back({.name = part.name, .shape = shape, .elements = {.begin = begin, .end = end}});
    begin = end;
  }
  return parts;
}

/// The name of a parameter's state as torchtitan has it; states that it does not have keep theirs.
std::string name_of_state(const std::string& parameter, const std::string& kind) {
  if (kind == kSavedWeight) return parameter;
  std::string_view state = kind;
  if (kind == "first_moment") state = "exp_avg";
  if (kind == "second_moment") state = "exp_avg_sq";
  return fmt::format("optimizer.state.{}.{}", parameter, state);
}

class SaveReader {
 public:
  SaveReader(Checkpoint& read, const Manifest& manifest)
      : read_(read), config_(manifest.run.config), model_(make_model(config_)) {
    for (const Parameter& parameter : model_.parameters) parameters_[parameter.name] = &parameter;
  }

  Result<void> add(const StateFile& file) {
    const std::size_t index = read_.files.size();
    read_.files.push_back(
        {.path = file.path,
         .size = static_cast<std::uint64_t>(file.data) +
                 (file.header.entries.empty()
                      ? 0
                      : static_cast<std::uint64_t>(file.header.entries.back().offset +
                                                   bytes_of(file.header.entries.back())))});
    for (const StateEntry& entry : file.header.entries) {
      const std::string where =
          fmt::format("{}: {}", file.path.string(), shown_name(entry.parameter));
      const auto found = parameters_.find(entry.parameter);
      if (found == parameters_.end()) return fail(where, "is no parameter of the save's model");
      const ElementType* type = type_of(entry.dtype);
      if (type == nullptr) return fail(where, "has a dtype that is not read");
      const auto at = static_cast<std::uint64_t>(file.data + entry.offset);
      if (entry.kind.ends_with("_scale"))
        add_scale(entry, *type, index, at);
      else
        MFSDP_TRY(add_entry(entry, *found->second, *type, index, at, where));
    }
    return {};
  }

  void finish() {
    for (auto& [name, tensor] : tensors_) read_.tensors.push_back(std::move(tensor));
  }

 private:
  [[nodiscard]] static const ElementType* type_of(DType dtype) {
    if (dtype == DType::uint8) return type_of_torch("uint8");
    if (dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32 ||
        dtype == DType::fp64)
      return &element_type(dtype);
    return nullptr;
  }

  CheckpointTensor& tensor_named(const std::string& name, const ElementType& type,
                                 const std::vector<std::int64_t>& shape) {
    CheckpointTensor tensor{.name = name, .type = &type, .shape = shape, .boxes = {}};
    return tensors_.try_emplace(name, std::move(tensor)).first->second;
  }

  /// Scales count blocks of the parameter: a vector of its own.
  void add_scale(const StateEntry& entry, const ElementType& type, std::size_t file,
                 std::uint64_t at) {
    CheckpointTensor& tensor = tensor_named(name_of_state(entry.parameter, entry.kind), type, {0});
    tensor.shape.front() = std::max(tensor.shape.front(), entry.elements.end);
    tensor.boxes.push_back(
        {.box = {.offsets = {entry.elements.begin}, .sizes = {entry.elements.size()}},
         .file = file,
         .offset = at});
  }

  Result<void> add_entry(const StateEntry& entry, const Parameter& parameter,
                         const ElementType& type, std::size_t file, std::uint64_t at,
                         const std::string& where) {
    if (entry.elements.end > parameter.elements())
      return fail(where, fmt::format("expected at most {} elements, got {}", parameter.elements(),
                                     entry.elements.end));
    const ElementOrder order(
        PlacedParameter{.name = parameter.name, .role = parameter.role, .shape = parameter.shape},
        config_.model, config_.mesh.size(Axis::tp));
    const std::vector<NamedPart> parts = parts_of(parameter);
    order.in_parameter(
        entry.elements, [&](std::int64_t begin, std::int64_t place, std::int64_t count) {
          for (const NamedPart& part : parts) {
            const Interval held =
                common_part(part.elements, Interval{.begin = place, .end = place + count});
            if (held.empty()) continue;
            CheckpointTensor& tensor =
                tensor_named(name_of_state(part.name, entry.kind), type, part.shape);
            std::uint64_t offset =
                at + static_cast<std::uint64_t>(
                         (begin - entry.elements.begin + held.begin - place) * bytes_of(type));
            for (TensorBox& box : boxes_of_interval(part.shape, held.begin - part.elements.begin,
                                                    held.end - part.elements.begin)) {
              const auto size = static_cast<std::uint64_t>(box.elements() * bytes_of(type));
              tensor.boxes.push_back({.box = std::move(box), .file = file, .offset = offset});
              offset += size;
            }
          }
        });
    return {};
  }

  Checkpoint& read_;
  const PlanConfig& config_;
  Model model_;
  std::map<std::string, const Parameter*> parameters_;
  std::map<std::string, CheckpointTensor> tensors_;
};

}  // namespace

Result<void> read_torch_file(Checkpoint& read) {
  MFSDP_LET(file, DataFile::open(read.path));
  MFSDP_LET(archive, read_torch_archive(file.source(), {.offset = 0, .size = file.size()}));
  read.files.push_back({.path = read.path, .size = file.size()});
  std::set<std::string> names;
  for (TorchTensor& tensor : archive.tensors) {
    std::string name = tensor.name.empty() ? "tensor" : std::move(tensor.name);
    if (!names.insert(name).second)
      return fail(fmt::format("{}: {}", read.path.string(), shown_name(name)), "is there twice");
    CheckpointTensor one{.name = std::move(name),
                         .type = tensor.type,
                         .shape = std::move(tensor.shape),
                         .boxes = {}};
    if (one.elements() > 0)
      one.boxes.push_back(
          {.box = {.offsets = std::vector<std::int64_t>(one.shape.size()), .sizes = one.shape},
           .file = 0,
           .offset = tensor.bytes.offset});
    read.tensors.push_back(std::move(one));
  }
  read.facts = std::move(archive.values);
  return {};
}

Result<void> read_mfsdp(Checkpoint& read) {
  MFSDP_SET(read.path, find_save(read.path));
  const auto path = read.path / kManifestName;
  constexpr std::size_t kMostManifest = std::size_t{1} << 30;
  MFSDP_LET(text, read_file(path, "the manifest of a save", kMostManifest));
  MFSDP_LET(manifest, manifest_from_json(text, path.string()));
  read.step = manifest.position.step;
  read.facts.emplace_back("model", manifest.run.model_name);
  read.facts.emplace_back("ranks", fmt::format("{}", manifest.run.config.mesh.world_size()));
  read.facts.emplace_back("tokens", fmt::format("{}", manifest.position.tokens));
  if (std::ranges::any_of(make_model(manifest.run.config).parameters, &Parameter::transposed))
    return fail(path.string(),
                "is of a model whose checkpoints transpose matrices, which is not read; "
                "mfsdp-exec --resume with --export writes it for Hugging Face");
  SaveReader reader(read, manifest);
  for (const SavedFile& saved : manifest.files) {
    const auto file = read_state_file(read.path, saved);
    if (!file) {
      read.problems.push_back(file.error());
      continue;
    }
    if (file->header.step != manifest.position.step)
      read.problems.push_back(
          fail(file->path.string(), fmt::format("is of step {}, the manifest of step {}",
                                                file->header.step, manifest.position.step))
              .value());
    MFSDP_TRY(reader.add(*file));
  }
  reader.finish();
  return {};
}

}  // namespace mfsdp
