// Arbitrary bytes as a line of JSONL: an error of one line, or a sample whose labels
// are its tokens moved by one.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_backend/train/data/byte_tokens.hpp"
#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/sft_line.hpp"
#include "tests/fuzz/json_mutator.hpp"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return mfsdp::fuzz::mutate_json(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto sequence = LineEncoder().encode(text.substr(0, text.find('\n')), "f.jsonl", 7);
  if (!sequence) {
    const std::string message = sequence.error().message();
    if (!message.starts_with("f.jsonl")) std::abort();
    if (message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (sequence->tokens.size() != sequence->learned.size()) std::abort();
  std::vector<std::int32_t> tokens(std::min<std::size_t>(sequence->tokens.size(), 32));
  std::vector<std::int32_t> labels(tokens.size());
  fill_sft_piece(*sequence, 0, tokens, labels);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0) std::abort();
    if (sequence->kind != LineKind::tokens && tokens[i] >= kByteVocab) std::abort();
    if (labels[i] == kIgnoreIndex) continue;
    if (i + 1 < tokens.size() && labels[i] != tokens[i + 1]) std::abort();
  }
  return 0;
}
