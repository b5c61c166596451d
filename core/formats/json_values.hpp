// JSON as the values that pickles hold: formats that are written as both have one reader.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/formats/read_pickle.hpp"

namespace mfsdp {

/// Whole numbers beyond 64 bits become floats. Errors name `where` and the byte, or a document that
/// lies deeper than 64 levels.
[[nodiscard]] Result<PickleDocument> read_json_values(std::string_view bytes,
                                                      const std::string& where);

}  // namespace mfsdp
