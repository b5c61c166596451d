#include "gpu_backend/weights/lora_weights.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "gpu_backend/weights/peft_config.hpp"
#include "gpu_backend/weights/tensor_elements.hpp"

namespace mfsdp {

Result<PeftAdapters> PeftAdapters::open(const std::filesystem::path& folder,
                                        const Program& program) {
  if (!program.config.has_lora())
    return fail(folder.string(),
                "holds adapters, but the plan has none: --lora-rank sets their "
                "rank");
  MFSDP_TRY(check_peft_config(folder, program.config));
  MFSDP_LET(tensors, HfTensors::of_adapters(program));
  MFSDP_LET(opened, MappedFile::open(folder / kPeftWeights, "safetensors"));
  PeftAdapters made(std::move(tensors), std::make_unique<MappedFile>(std::move(opened)));
  const MappedFile& file = *made.file_;
  MFSDP_LET(parsed, parse_safetensors(file.bytes(), file.name()));
  std::map<std::string_view, const SafeTensor*> left;
  for (const SafeTensor& tensor : parsed.tensors) left[tensor.name] = &tensor;
  for (const HfTensor& wanted : made.tensors_.all()) {
    const std::string where = fmt::format("{}, tensor {}", file.name(), wanted.name);
    const auto found = left.find(wanted.name);
    if (found == left.end())
      return fail(
          where, fmt::format("expected shape {}, found no such tensor", shown_shape(wanted.shape)));
    if (found->second->shape != wanted.shape)
      return fail(where, fmt::format("expected shape {}, got {}", shown_shape(wanted.shape),
                                     shown_shape(found->second->shape)));
    if (!floating_dtype(found->second->dtype))
      return fail(
          where, fmt::format("expected dtype BF16, F16, F32 or F64, got {}", found->second->dtype));
    made.stored_.push_back(*found->second);
    left.erase(found);
  }
  if (!left.empty())
    return fail(fmt::format("{}, tensor {}", file.name(), shown_name(left.begin()->first)),
                "the plan's adapters have no such tensor");
  return made;
}

Result<void> PeftAdapters::read(const PlacedParameter& parameter, std::int64_t begin,
                                std::span<double> out) const {
  MFSDP_TRY(file_->check_unchanged());
  for (const HfPart& part :
       tensors_.parts(parameter, {.begin = begin, .end = begin + std::ssize(out)}))
    read_elements(stored_[part.tensor], part.elements.begin, out);
  return {};
}

}  // namespace mfsdp
