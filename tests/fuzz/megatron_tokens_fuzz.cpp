// Arbitrary bytes as an index of Megatron and the tokens it is for: an error of one line, or
// documents that cover the tokens. The first two bytes are the length of the index.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "gpu_backend/train/data/megatron_tokens.hpp"

namespace {

void check(const mfsdp::Error& error) {
  if (!error.message().starts_with("f.")) std::abort();
  if (error.message().find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  constexpr std::int64_t kVocab = 1000;
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  const std::size_t index_size =
      std::min(bytes.size(), static_cast<std::size_t>(data[0]) | std::size_t{data[1]} << 8U);
  const auto bin = bytes.subspan(index_size);
  const auto index = parse_megatron_index(bytes.first(index_size), bin.size(), "f.idx");
  if (!index) {
    check(index.error());
    return 0;
  }
  if (index->sequences < 1 || index->documents < 0) std::abort();
  const TokenRun run{.name = "f.bin", .bytes = bin, .type = index->type};
  if (run.count() != index->tokens) std::abort();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(run.count()));
  if (const auto copied = copy_tokens(run, 0, kVocab, tokens); !copied) {
    check(copied.error());
    return 0;
  }
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= kVocab) std::abort();
  return 0;
}
