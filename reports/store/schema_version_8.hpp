// Internal to this folder: the entry of the list in schema.cpp that is too long to stand there.
#pragma once

#include <string_view>

namespace mfsdp {

[[nodiscard]] std::string_view store_version_8();

}  // namespace mfsdp
