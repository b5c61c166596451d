// Arbitrary bytes as a config.json: an error or a shape that a model can be made of.
#include <algorithm>
#include <cstdlib>

#include "core/model/hf_config.hpp"
#include "tests/fuzz/json_mutator.hpp"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return mfsdp::fuzz::mutate_json(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto shape = parse_hf_config(text, "config.json");
  if (!shape) {
    // One line, and it names the file.
    const std::string message = shape.error().message();
    if (!message.starts_with("config.json")) std::abort();
    if (message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  // A hundred thousand layers are a valid shape, and so are 65,536 experts in each of a hundred;
  // but these would make each run take seconds.
  ModelShape small = *shape;
  const std::int64_t fewer =
      std::max<std::int64_t>(1, 65'536 / std::max<std::int64_t>(1, small.experts));
  small.layers = std::min({small.layers, std::int64_t{64}, fewer});
  try {
    const Model model = make_model(small, DType::bf16);
    if (model.parameter_count() <= 0) std::abort();
  } catch (const OverflowError&) {
    // Allowed: the caller reports it.
  }
  return 0;
}
