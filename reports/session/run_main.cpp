#include "reports/session/run_main.hpp"

#include <csignal>
#include <exception>
#include <new>
#include <utility>

#include "core/cli/manual.hpp"
#include "core/cli/scenarios.hpp"
#include "core/cli/wrap.hpp"

namespace mfsdp {

int run_main(std::string_view tool, const std::vector<std::string>& arguments, std::ostream& out,
             std::ostream& err, const std::function<Result<ExitCode>()>& work) {
  // A limit on file sizes is then an error that names the file, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  Error error;
  try {
    const auto code = work();
    const bool told = code && (*code == ExitCode::input || *code == ExitCode::environment);
    if (code && (out.flush() || told)) return static_cast<int>(*code);
    error = code ? Error{"standard output", "cannot be written", Fault::environment} : code.error();
  } catch (const std::bad_alloc&) {
    error = {"memory", "this machine has not enough for the plan", Fault::environment};
  } catch (const std::exception& fault) {
    error = {"internal error", fault.what(), Fault::environment};
  }
  return report_error(err, in_given_flags(std::move(error), arguments), tool);
}

std::optional<std::string> self_description(const CommonOptions& options, std::string_view tool,
                                            const std::function<Manual()>& manual) {
  if (options.help) return wrap_text(render_help(manual()), style_of(describe_stdout()));
  if (options.help_format) return manual_in_format(manual(), *options.help_format);
  if (options.version) return render_version(tool);
  return std::nullopt;
}

std::string manual_in_format(Manual manual, HelpFormat format) {
  // Without scenarios nothing of them is offered.
  const auto scenarios = scenarios_dir();
  return render_manual(scenarios ? with_catalogues(std::move(manual), *scenarios) : manual, format);
}

}  // namespace mfsdp
