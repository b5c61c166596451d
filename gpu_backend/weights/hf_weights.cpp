#include "gpu_backend/weights/hf_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "gpu_backend/weights/hf_model_config.hpp"
#include "gpu_backend/weights/tensor_elements.hpp"

namespace mfsdp {
namespace {

std::string place_of(const StoredTensor& stored) {
  return fmt::format("{}, tensor {}", stored.file->name(), shown_name(stored.tensor.name));
}

Result<const StoredTensor*> find_tensor(const HfFolder& files, const HfTensor& tensor,
                                        const std::filesystem::path& folder) {
  const StoredTensor* stored = files.find(tensor.name);
  if (stored == nullptr)
    return fail(fmt::format("{}, tensor {}", folder.string(), tensor.name),
                fmt::format("expected shape {}, found no such tensor", shown_shape(tensor.shape)));
  if (stored->tensor.shape != tensor.shape)
    return fail(place_of(*stored),
                fmt::format("expected shape {}, got {}", shown_shape(tensor.shape),
                            shown_shape(stored->tensor.shape)));
  if (!floating_dtype(stored->tensor.dtype))
    return fail(place_of(*stored),
                fmt::format("expected dtype BF16, F16, F32 or F64, got {}", stored->tensor.dtype));
  return stored;
}

/// Tensors that older checkpoints contain although they follow from config.json: RoPE's
/// frequencies, and GPT-2's causal masks.
bool is_derived(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

/// The name in a model that was saved without its head.
std::string without_first_word(const std::string& name) { return name.substr(name.find('.') + 1); }

/// Whether names are those of the transformers class in memory: models are saved with them unless
/// the published form is requested.
bool has_class_names(const HfFolder& files, const ModuleNames& modules) {
  if (modules.class_mlp.empty()) return false;
  const auto held = [&](std::string_view mlp) {
    return std::ranges::any_of(files.tensors(), [&](const auto& tensor) {
      return tensor.first.find(fmt::format(".{}{}.", mlp, modules.router)) != std::string::npos;
    });
  };
  return !held(modules.mlp) && held(modules.class_mlp);
}

Result<void> check_tied_head(const StoredTensor& head, const StoredTensor& embedding) {
  const bool same = head.tensor.dtype == embedding.tensor.dtype &&
                    std::ranges::equal(head.tensor.data, embedding.tensor.data);
  if (same) return {};
  return fail(place_of(head), fmt::format("expected the bytes of {} or no such tensor, as the "
                                          "plan's model has tie_word_embeddings",
                                          shown_name(embedding.tensor.name)));
}

}  // namespace

Result<HfWeights> HfWeights::open(const std::filesystem::path& folder, const Program& program) {
  MFSDP_TRY(check_hf_config(folder, program.config.model));
  MFSDP_LET(files, HfFolder::open(folder));
  const ModuleNames& modules = program.config.model.traits().names;
  const std::string embedding = std::string(modules.embedding) + ".weight";
  const bool without_head =
      files.find(embedding) == nullptr && files.find(without_first_word(embedding)) != nullptr;
  const bool in_memory = has_class_names(files, modules);
  const auto stored_name = [&](const std::string& name) {
    std::string stored = without_head ? without_first_word(name) : name;
    const std::size_t at = in_memory ? stored.find(modules.mlp) : std::string::npos;
    if (at != std::string::npos) stored.replace(at, modules.mlp.size(), modules.class_mlp);
    return stored;
  };
  MFSDP_LET(tensors, HfTensors::of(program, [&](const std::string& name) {
              return files.find(stored_name(name)) != nullptr;
            }));
  HfWeights opened(std::move(tensors), std::move(files));
  std::set<std::string> known;
  for (HfTensor tensor : opened.tensors_.all()) {
    tensor.name = stored_name(tensor.name);
    MFSDP_LET(stored, find_tensor(opened.folder_, tensor, folder));
    opened.stored_.push_back(stored);
    known.insert(tensor.name);
  }
  for (const auto& [name, stored] : opened.folder_.tensors()) {
    if (known.contains(name) || is_derived(name)) continue;
    if (name != std::string(modules.head) + ".weight")
      return fail(place_of(stored), "the plan's model has no such tensor");
    MFSDP_TRY(check_tied_head(stored, *opened.folder_.find(stored_name(embedding))));
  }
  return opened;
}

Result<void> HfWeights::read(const PlacedParameter& parameter, std::int64_t begin,
                             std::span<double> out) const {
  for (const HfPart& part :
       tensors_.parts(parameter, {.begin = begin, .end = begin + std::ssize(out)})) {
    const auto size = static_cast<std::size_t>(part.elements.size());
    const StoredTensor& stored = *stored_[part.tensor];
    MFSDP_TRY(stored.file->check_unchanged());
    if (tensors_.all()[part.tensor].transposed)
      read_transposed_elements(stored.tensor, part.elements.begin, out.first(size));
    else
      read_elements(stored.tensor, part.elements.begin, out.first(size));
    out = out.subspan(size);
  }
  return {};
}

}  // namespace mfsdp
