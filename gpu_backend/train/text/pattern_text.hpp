// Regular expressions of tokenizer.json, which Oniguruma reads, as PCRE2 must be given them.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// The pattern of PCRE2 (with UTF and UCP) that matches what Oniguruma matches. Known are
/// characters, classes without classes inside, \r \n \t \f \v \s \S, general categories (\p{L},
/// \p{^Lu}, \P{N}), groups (?: (?i: (?= (?! (?<= (?<!, alternatives and quantifiers; all else
/// would need a proof that the two agree. \s becomes what Unicode calls White_Space: PCRE2
/// takes U+180E for a space too.
/// Errors name `where` and what is not known.
[[nodiscard]] Result<std::string> pcre2_pattern(std::string_view pattern, const std::string& where);

}  // namespace mfsdp
