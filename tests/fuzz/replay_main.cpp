// Stands in for libFuzzer where the compiler has none: runs a target over seeds, and over a few
// changes of each where the target has a mutator of its own. So an ordinary build compiles every
// target, and its tests run them: fuzz/<target>.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                                                     std::size_t size,
                                                                     std::size_t most,
                                                                     unsigned seed);

namespace {

std::mt19937 random_bits(1);  // NOLINT: the same bytes in every run

void run(const std::vector<std::uint8_t>& input) {
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

void run_changes(const std::vector<std::uint8_t>& seed, unsigned changes) {
  if (LLVMFuzzerCustomMutator == nullptr) return;
  for (unsigned change = 0; change < changes; ++change) {
    std::vector<std::uint8_t> input = seed;
    input.resize(seed.size() + 4096);
    input.resize(LLVMFuzzerCustomMutator(input.data(), seed.size(), input.size(), change));
    run(input);
  }
}

}  // namespace

/// The function of libFuzzer that mutators call: here it changes a byte, or leaves one out.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t /*most*/) {
  if (size == 0) return 0;
  const std::size_t at = random_bits() % size;
  if (random_bits() % 2 == 0) {
    data[at] = static_cast<std::uint8_t>(random_bits());
    return size;
  }
  std::copy(data + at + 1, data + size, data + at);
  return size - 1;
}

/// CHANGES FOLDER...
int main(int argc, char** argv) {
  const auto changes = static_cast<unsigned>(std::atoi(argc > 1 ? argv[1] : "0"));
  std::vector<std::filesystem::path> files;
  for (int i = 2; i < argc; ++i)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i]))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  run({});
  for (const auto& file : files) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);  // so that the last line names what ended the run
    std::ifstream in(file, std::ios::binary);
    const std::vector<std::uint8_t> seed{std::istreambuf_iterator<char>(in), {}};
    run(seed);
    run_changes(seed, changes);
  }
  std::printf("%zu seeds\n", files.size());
  return files.empty() ? 1 : 0;
}
