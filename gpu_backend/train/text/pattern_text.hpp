// Converts the regular expressions of tokenizer.json, which are Oniguruma's, to PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// The pattern of PCRE2 (with UTF and UCP) that matches the same as Oniguruma's. Supported are
/// characters, classes without nested classes, \r \n \t \f \v \s \S, general categories (\p{L},
/// \p{^Lu}, \P{N}), groups (?: (?i: (?= (?! (?<= (?<!, alternatives and quantifiers. Anything else
/// would need a proof that the two agree. \s becomes Unicode's White_Space, because PCRE2's \s also
/// matches U+180E. Errors name `where` and the unsupported part.
[[nodiscard]] Result<std::string> pcre2_pattern(std::string_view pattern, const std::string& where);

}  // namespace mfsdp
