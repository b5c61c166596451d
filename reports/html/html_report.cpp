#include "reports/html/html_report.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "reports/html/assets.hpp"
#include "reports/html/report_data.hpp"

namespace mfsdp {
namespace {

unsigned hex_value(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/// The base64 of bytes that are given in hexadecimal, as policies want a hash.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < hex.size(); i += 6) {  // three bytes
    const std::string_view part = hex.substr(i, 6);
    unsigned bits = 0;
    for (std::size_t k = 0; k < 6; ++k)
      bits = bits << 4 | (k < part.size() ? hex_value(part[k]) : 0);
    const std::size_t used = part.size() * 4 / 6 + 1;
    for (std::size_t k = 0; k < 4; ++k) text += k < used ? digits[bits >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

struct Parts {
  std::string_view skeleton;
  std::string policy = "default-src 'none'; base-uri 'none'; form-action 'none'; script-src";
  std::string style;
  std::string script;
};

Parts parts_of_page() {
  Parts parts;
  std::string style_hashes;
  for (const Asset& asset : html_assets()) {
    const std::string hash = fmt::format(" 'sha256-{}'", base64_of_hex(asset.sha256));
    if (asset.name.ends_with(".html")) {
      parts.skeleton = asset.text;
    } else if (asset.name.ends_with(".css")) {
      style_hashes += hash;
      parts.style += fmt::format("<style>{}</style>\n", asset.text);
    } else {
      parts.policy += hash;
      parts.script += fmt::format("<script>{}</script>\n", asset.text);
    }
  }
  parts.policy += "; style-src" + style_hashes;
  return parts;
}

}  // namespace

std::string html_report(std::span<const RunResult> runs, const HtmlOptions& options) {
  const Parts parts = parts_of_page();
  const std::string data = report_json(runs, options);
  std::string page;
  page.reserve(parts.skeleton.size() + parts.style.size() + parts.script.size() + data.size());
  std::string_view rest = parts.skeleton;
  while (true) {
    const std::size_t begin = rest.find("{{");
    page += rest.substr(0, begin);
    if (begin == std::string_view::npos) return page;
    rest.remove_prefix(begin + 2);
    const std::size_t end = rest.find("}}");
    const std::string_view name = rest.substr(0, end);
    if (name == "policy")
      page += parts.policy;
    else if (name == "style")
      page += parts.style;
    else if (name == "script")
      page += parts.script;
    else if (name == "data")
      page += data;
    else
      throw std::logic_error("report.html: no part is named " + std::string(name));
    rest.remove_prefix(end + 2);
  }
}

}  // namespace mfsdp
