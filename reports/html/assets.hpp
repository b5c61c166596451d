// The files of reports/html as data of the program; cmake/WriteAssets.cmake writes the source.
#pragma once

#include <span>
#include <string_view>

namespace mfsdp {

struct Asset {
  std::string_view name;    ///< of the file, without its folder
  std::string_view sha256;  ///< of the text, hexadecimal
  std::string_view text;
};

/// In the order of reports/CMakeLists.txt, which is that of the page.
[[nodiscard]] std::span<const Asset> html_assets();

}  // namespace mfsdp
