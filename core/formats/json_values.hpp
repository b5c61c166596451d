// JSON as the values of pickles: formats that are written as both have one reader.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/formats/read_pickle.hpp"

namespace mfsdp {

/// Whole numbers beyond 64 bits become floats. Errors name `where` and the byte; nesting deeper
/// than 64 levels is an error.
[[nodiscard]] Result<PickleDocument> read_json_values(std::string_view bytes,
                                                      const std::string& where);

}  // namespace mfsdp
