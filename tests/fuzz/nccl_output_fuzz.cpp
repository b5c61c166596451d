// Arbitrary bytes as nccl-tests' text and JSON: an error of one line, or samples that can be
// priced.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/calibrate/nccl_run.hpp"

namespace {

using namespace mfsdp;

void check(const Error& error) {
  if (!error.message().starts_with("f")) std::abort();
  if (error.message().find('\n') != std::string::npos) std::abort();
}

void check(const NcclRun& run) {
  const auto samples = samples_of(run);
  if (!samples) return check(samples.error());
  for (const CollectiveSample& sample : *samples)
    if (!(sample.ns > 0 && sample.ranks > 1 && sample.bytes > Bytes(0))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (is_nccl_text(text)) {
    const auto runs = read_nccl_text(text, "f.txt");
    if (!runs) check(runs.error());
    if (runs)
      for (const NcclRun& run : *runs) check(run);
  }
  if (const auto run = read_nccl_json(text, "f.json"))
    check(*run);
  else
    check(run.error());
  return 0;
}
