// Arbitrary bytes as a token file of llm.c: an error of one line, or tokens that can be read.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "gpu_backend/train/data/llmc_tokens.hpp"

namespace {

void check(const mfsdp::Error& error) {
  if (!error.message().starts_with("f.bin")) std::abort();
  if (error.message().find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  constexpr std::int64_t kVocab = 1000;
  const auto run = parse_llmc_tokens(std::as_bytes(std::span(data, size)), "f.bin");
  if (!run) {
    check(run.error());
    return 0;
  }
  if (run->count() < 1) std::abort();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(run->count()));
  if (const auto copied = copy_tokens(*run, 0, kVocab, tokens); !copied) {
    check(copied.error());
    return 0;
  }
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= kVocab) std::abort();
  return 0;
}
