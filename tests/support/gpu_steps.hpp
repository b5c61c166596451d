// Times of training steps that were measured on a GPU (tests/reports/statistics/h100_steps.csv).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp::test {

/// Nanoseconds of each step of each run of a program ("a", "b" or "noisy").
inline std::vector<std::vector<double>> gpu_steps(const std::string& program) {
  std::istringstream in(
      read_file(std::string(MFSDP_SOURCE_DIR) + "/tests/reports/statistics/h100_steps.csv"));
  std::map<int, std::vector<double>> runs;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(program + ",")) continue;
    std::istringstream fields(line.substr(program.size() + 1));
    int run = 0;
    int step = 0;
    char comma = 0;
    double nanos = 0;
    fields >> run >> comma >> step >> comma >> nanos;
    runs[run].push_back(nanos);
  }
  std::vector<std::vector<double>> series;
  for (auto& [run, steps] : runs) series.push_back(std::move(steps));
  return series;
}

/// Numbers that are the same on every machine, which the standard's distributions are not.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}

  std::size_t below(std::size_t limit) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's constants
    return static_cast<std::size_t>((state_ >> 33U) % limit);
  }

  /// From 0 to below 1.
  double share() { return static_cast<double>(below(1U << 30U)) / static_cast<double>(1U << 30U); }

 private:
  std::uint64_t state_;
};

}  // namespace mfsdp::test
