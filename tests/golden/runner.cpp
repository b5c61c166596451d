#include "tests/golden/runner.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/golden/transcript.hpp"

namespace mfsdp::golden {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_file(const fs::path& path, std::string_view text) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

std::string quoted(std::string text) {
  replace_all(text, "'", "'\\''");
  return "'" + text + "'";
}

/// A temporary folder: work/ for the commands, home/ as HOME, and what they print.
class Sandbox {
 public:
  explicit Sandbox(const Settings& settings) : settings_(settings) {
    std::string pattern = (fs::canonical(fs::temp_directory_path()) / "mfsdp-golden-XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("cannot create " + pattern + ": " + std::strerror(errno));
    root_ = pattern;
    fs::create_directory(work());
    fs::create_directory(home());
    environment_ = {"PATH=" + settings.tool_path + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                    "HOME=" + home().string(),
                    "TMPDIR=" + root_.string(),
                    "LC_ALL=C.UTF-8",
                    "TZ=UTC",
                    "COLUMNS=100",
                    "NO_COLOR=1"};
    for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"})
      if (const char* value = std::getenv(name))
        environment_.push_back(std::string(name) + "=" + value);
  }
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;
  ~Sandbox() {
    std::error_code ignored;  // a leftover folder in /tmp must not turn a pass into a failure
    if (!keep_) fs::remove_all(root_, ignored);
  }

  [[nodiscard]] fs::path work() const { return root_ / "work"; }
  void keep() { keep_ = true; }

  /// Runs `/bin/sh -c line` with no terminal and no input.
  [[nodiscard]] Output run(const std::string& line) const {
    const int status = spawn(line);
    Output output;
    output.out = split_output(normalised(read_file(root_ / "stdout")));
    output.err = split_output(normalised(read_file(root_ / "stderr")));
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return output;
  }

  /// The same by hand.
  [[nodiscard]] std::string shell_line(const std::string& line) const {
    std::string text = "cd " + work().string() + " && env -i";
    for (const auto& variable : environment_) text += " " + quoted(variable);
    return text + " /bin/sh -c " + quoted(line);
  }

 private:
  [[nodiscard]] fs::path home() const { return root_ / "home"; }

  [[nodiscard]] int spawn(const std::string& line) const {
    const std::string out = root_ / "stdout";
    const std::string err = root_ / "stderr";
    const std::string folder = work();
    std::vector<const char*> environment;
    for (const auto& variable : environment_) environment.push_back(variable.c_str());
    environment.push_back(nullptr);
    const std::array<const char*, 4> arguments{"/bin/sh", "-c", line.c_str(), nullptr};
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error(std::string("cannot fork: ") + std::strerror(errno));
    if (child == 0) {
      constexpr int mode = 0600;
      constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
      const bool ready = chdir(folder.c_str()) == 0 && dup2(open("/dev/null", O_RDONLY), 0) == 0 &&
                         dup2(open(out.c_str(), flags, mode), 1) == 1 &&
                         dup2(open(err.c_str(), flags, mode), 2) == 2;
      if (ready)
        execve("/bin/sh", const_cast<char* const*>(arguments.data()),
               const_cast<char* const*>(environment.data()));
      _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
      if (errno != EINTR)
        throw std::runtime_error(std::string("cannot wait: ") + std::strerror(errno));
    return status;
  }

  /// Paths that differ between machines become words.
  [[nodiscard]] std::string normalised(std::string text) const {
    replace_all(text, work().string(), "[WORK]");
    replace_all(text, home().string(), "[HOME]");
    replace_all(text, settings_.build.string(), "[BUILD]");
    replace_all(text, settings_.source.string(), "[SOURCE]");
    return text;
  }

  Settings settings_;
  fs::path root_;
  std::vector<std::string> environment_;
  bool keep_ = false;
};

bool is_markdown(const Settings& settings) { return settings.transcript.extension() == ".md"; }

/// Goes through the entries in order. With `update`, commands take what was printed.
class Player {
 public:
  explicit Player(const Settings& settings) : settings_(settings), sandbox_(settings) {}

  void operator()(const Remark&) {}
  void operator()(const WriteFile& file) {
    std::string text;
    for (const auto& line : file.lines) text += line + "\n";
    write_file(sandbox_.work() / file.path, text);
  }
  void operator()(const Preparation& setup) {
    const Output output = sandbox_.run(setup.line);
    if (output.exit_code == 0) return;
    report_ += "setup failed: + " + setup.line + "\n";
    for (const auto& line : render(output)) report_ += "  " + line + "\n";
  }
  void operator()(Command& command) {
    const Output actual = sandbox_.run(command.line);
    Output expected = command.expected;
    if (is_markdown(settings_)) expected.out = fill_gaps(expected.out, actual.out);
    const std::string difference = unified_difference(render(expected), render(actual));
    if (difference.empty()) return;
    if (settings_.update && !is_markdown(settings_)) {
      command.expected.out = keep_masks(command.expected.out, actual.out);
      command.expected.err = keep_masks(command.expected.err, actual.err);
      command.expected.exit_code = actual.exit_code;
      return;
    }
    report_ += settings_.transcript.string() + ":" + std::to_string(command.at) + ": $ " +
               command.line + "\n" + difference + "by hand: " + sandbox_.shell_line(command.line) +
               "\n\n";
  }

  /// What went wrong; empty when nothing did.
  [[nodiscard]] std::string finish() {
    if (!report_.empty()) sandbox_.keep();
    return report_;
  }

 private:
  Settings settings_;
  Sandbox sandbox_;
  std::string report_;
};

}  // namespace

Outcome run(const Settings& settings) try {
  const std::string text = read_file(settings.transcript);
  const bool markdown = is_markdown(settings);
  Transcript transcript = markdown ? parse_markdown(text) : parse(text);
  if (!transcript.error.empty())
    return {false, settings.transcript.string() + ": " + transcript.error + "\n"};
  Player player(settings);
  for (Entry& entry : transcript.entries) std::visit(player, entry);
  std::string report = player.finish();
  if (!report.empty())
    return {false,
            report + (markdown ? "edit the file by hand: nothing rewrites Markdown\n"
                               : "to accept what is printed now: MFSDP_UPDATE_GOLDEN=1 and this "
                                 "test again\n")};
  if (settings.update && !markdown && render(transcript) != text) {
    write_file(settings.transcript, render(transcript));
    return {true, "rewritten: " + settings.transcript.string() + "\n"};
  }
  return {true, ""};
} catch (const std::exception& fault) {
  return {false, settings.transcript.string() + ": " + fault.what() + "\n"};
}

}  // namespace mfsdp::golden
