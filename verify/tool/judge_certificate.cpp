#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/wrap.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/tool/judge.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{4} << 30;

std::string coverage_text(bool covered) {
  std::string text = covered ? "covered:\n" : "not covered:\n";
  for (const Coverage& row : coverage())
    if (row.covered == covered) text += fmt::format("  {:12} {}\n", row.check, row.words);
  return text;
}

nlohmann::ordered_json coverage_json() {
  auto rows = nlohmann::ordered_json::array();
  for (const Coverage& row : coverage())
    rows.push_back({{"check", row.check},
                    {"covered", row.covered},
                    {"words", row.words},
                    {"rules", row.rules}});
  return rows;
}

/// Whether the certificate belongs to the same plan without the defaults that the file contains.
/// Plans omit defaults; a file that contains them has another text and another hash.
bool is_accepted_without_defaults(const Job& job, std::string_view plan_text,
                                  std::string_view certificate) {
  const std::string usual = to_canonical_json(job);
  return usual != plan_text && check_certificate(usual, certificate).has_value();
}

/// Checks that a file is JSON with the schema of a certificate, of any version.
Result<void> expect_certificate(const std::string& text, const std::string& path) {
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded())
    return fail(path, "not JSON: expected a certificate, as --certificate writes it");
  const bool has_schema = document.is_object() && document.contains("schema") &&
                          document["schema"].is_string() &&
                          document["schema"].get<std::string>().starts_with("mfsdp.certificate");
  if (has_schema) return {};
  return fail(path,
              "is no certificate: expected one that --certificate writes, with the schema "
              "mfsdp.certificate");
}

}  // namespace

Result<ExitCode> check_plan(const Job& job, const VerifyOptions& options, const Session& session) {
  std::string plan_text;
  if (options.common.plan) {
    MFSDP_SET(plan_text, read_file(*options.common.plan, "a plan", kMostFileBytes));
  } else {
    plan_text = to_canonical_json(job);
  }
  MFSDP_LET(certificate, read_file(*options.check, "a certificate", kMostFileBytes));
  MFSDP_TRY(expect_certificate(certificate, *options.check));
  const auto checked = check_certificate(plan_text, certificate);
  const bool is_other_text = !checked && is_accepted_without_defaults(job, plan_text, certificate);
  if (options.output == FindingsFormat::json) {
    nlohmann::ordered_json verdict{{"accepted", checked.has_value()}};
    if (checked)
      verdict.update({{"plan_hash", checked->hash},
                      {"instances", checked->instances},
                      {"orderings", checked->orderings},
                      {"accesses", checked->accesses},
                      {"gradients", checked->gradients},
                      {"coverage", coverage_json()}});
    else
      verdict.update(
          {{"refusal", checked.error().what}, {"accepted_without_defaults", is_other_text}});
    session.out << verdict.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else if (checked) {
    const std::string text = fmt::format(
        "certificate accepted: plan {}\n"
        "re-checked: {} ops in two steps, {} orderings, {} accesses, {} ranges of gradients\n",
        checked->hash, format_count(checked->instances), format_count(checked->orderings),
        format_count(checked->accesses), format_count(checked->gradients));
    session.out << wrap_text(text + coverage_text(true) + coverage_text(false), session.style);
  } else {
    session.out << wrap_text("certificate " + printable(checked.error().message()) + "\n" +
                                 (is_other_text ? "It is accepted for the same plan as --plan-out "
                                                  "writes it, without defaults.\n"
                                                : ""),
                             session.style);
  }
  return checked ? ExitCode::good : ExitCode::negative;
}

}  // namespace mfsdp
