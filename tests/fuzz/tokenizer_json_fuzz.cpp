// Arbitrary bytes as tokenizer.json: an error of one line, or a tokenizer that gives text back.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_backend/train/text/tokenizer.hpp"
#include "tests/fuzz/json_mutator.hpp"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return mfsdp::fuzz::mutate_json(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const auto made = Tokenizer::parse({reinterpret_cast<const char*>(data), size}, "t.json");
  if (!made) {
    const std::string message = made.error().message();
    if (!message.starts_with("t.json")) std::abort();
    if (message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  // ASCII is its own normal form.
  const std::string text = "A plan's 12345 words,\n\n  <|im_end|> and\ttokens";
  std::vector<std::int32_t> ids;
  if (!TextEncoder(*made).encode(text, ids)) return 0;
  if ((*made)->decode(ids).value_or("") != text) std::abort();
  return 0;
}
