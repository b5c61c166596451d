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

constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";

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

/// What older checkpoints carry along, though it follows from config.json.
bool is_derived(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

Result<void> check_tied_head(const StoredTensor& head, const StoredTensor& embedding) {
  const bool same = head.tensor.dtype == embedding.tensor.dtype &&
                    std::ranges::equal(head.tensor.data, embedding.tensor.data);
  if (same) return {};
  return fail(place_of(head), fmt::format("expected the bytes of {} or no such tensor, as the "
                                          "plan's model has tie_word_embeddings",
                                          kEmbedding));
}

}  // namespace

Result<HfWeights> HfWeights::open(const std::filesystem::path& folder, const Program& program) {
  MFSDP_TRY(check_hf_config(folder, program.config.model));
  MFSDP_LET(files, HfFolder::open(folder));
  MFSDP_LET(tensors, HfTensors::of(program, [&](const std::string& name) {
              return files.find(name) != nullptr;
            }));
  HfWeights opened(std::move(tensors), std::move(files));
  std::set<std::string_view> known;
  for (const HfTensor& tensor : opened.tensors_.all()) {
    MFSDP_LET(stored, find_tensor(opened.folder_, tensor, folder));
    opened.stored_.push_back(stored);
    known.insert(tensor.name);
  }
  for (const auto& [name, stored] : opened.folder_.tensors()) {
    if (known.contains(name) || is_derived(name)) continue;
    if (name != kHead) return fail(place_of(stored), "the plan's model has no such tensor");
    MFSDP_TRY(check_tied_head(stored, *opened.folder_.find(std::string(kEmbedding))));
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
    read_elements(stored.tensor, part.elements.begin, out.first(size));
    out = out.subspan(size);
  }
  return {};
}

}  // namespace mfsdp
