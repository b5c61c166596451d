// Real output of nccl-tests, and changes to it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/base/read_file.hpp"

namespace mfsdp::testing_calibrate {

inline const std::filesystem::path kSource = MFSDP_SOURCE_DIR;
inline const std::filesystem::path kGpus = kSource / "scenarios/gpus";
inline const std::filesystem::path kData = kSource / "tests/sim/calibrate/data";

inline std::string sample(const std::string& name) {
  return read_file(kData / name, "a sample", std::size_t{1} << 20).value();
}

/// `text` with the first `from` replaced; `from` must occur.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

/// `text` before the first `end`.
inline std::string until(const std::string& text, const std::string& end) {
  EXPECT_NE(text.find(end), std::string::npos) << end;
  return text.substr(0, text.find(end));
}

}  // namespace mfsdp::testing_calibrate
