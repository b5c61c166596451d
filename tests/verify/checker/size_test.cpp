// The checker is short enough to be read by whoever is to trust it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mfsdp {
namespace {

/// Lines with code: not those that are blank, or hold a comment or brackets alone.
int lines_of_code(const std::filesystem::path& path) {
  int count = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    line.erase(std::min(line.size(), line.find("//")));
    if (line.find_first_not_of(" \t{}()[];,") != std::string::npos) ++count;
  }
  return count;
}

TEST(CheckerSize, IsReadInOneSitting) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(MFSDP_SOURCE_DIR) / "verify" / "checker"))
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".hpp")
      count += lines_of_code(entry.path());
  EXPECT_GT(count, 300);
  EXPECT_LE(count, 600);
}

}  // namespace
}  // namespace mfsdp
