// Text inside documents of XML: JUnit reports and SVG pictures.
#pragma once

#include <string>
#include <string_view>

namespace mfsdp {

/// `text` as the content of an element or an attribute: `<` becomes `&lt;` and so on. Characters
/// that XML 1.0 cannot hold are shown as printable() shows them.
[[nodiscard]] std::string xml_text(std::string_view text);

}  // namespace mfsdp
