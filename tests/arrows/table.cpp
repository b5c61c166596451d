#include "tests/arrows/table.hpp"

#include <algorithm>
#include <array>

namespace mfsdp::arrows {
namespace {

constexpr std::array<std::string_view, 5> mains{"sim/main.cpp", "verify/main.cpp",
                                                "reports/main.cpp", "gpu_backend/main.cpp",
                                                "gpu_backend/convert/main.cpp"};
constexpr std::array<std::string_view, 5> main_targets{"mfsdp-sim", "mfsdp-verify", "mfsdp-report",
                                                       "mfsdp-exec", "mfsdp-convert"};

const Room* room_named(std::string_view name) {
  const auto found = std::ranges::find(rooms(), name, &Room::name);
  return found == rooms().end() ? nullptr : &*found;
}

}  // namespace

const std::vector<Room>& rooms() {
  static const std::vector<Room> table{
      // The one header of core that the checker sees; no target of its own.
      {"error", "mfsdp_error", {"core/base/error.hpp"}, {}},
      {"plan", "mfsdp_plan", {"core/base", "core/model", "core/shard", "core/plan"}, {"error"}},
      {"planner", "mfsdp_planner", {"core/recipe", "core/schedule", "core/memory"}, {"plan"}},
      {"formats", "mfsdp_formats", {"core/formats"}, {"plan"}},
      {"runtime", "mfsdp_runtime", {"core/runtime"}, {"plan"}},
      {"statistics", "mfsdp_statistics", {"reports/statistics"}, {"plan"}},
      {"record", "mfsdp_record", {"reports/record"}, {"statistics"}},
      {"cli", "mfsdp_cli", {"core/cli"}, {"plan"}},
      {"hardware", "mfsdp_hardware", {"sim/hardware"}, {"plan"}},
      {"request", "mfsdp_request", {"core/request"}, {"planner", "cli", "hardware"}},
      {"render", "mfsdp_render", {"reports/render"}, {"cli", "record"}},
      {"store", "mfsdp_store", {"reports/store", "reports/trace"}, {"record", "formats"}},
      {"html", "mfsdp_html", {"reports/html"}, {"store"}},
      {"session", "mfsdp_session", {"reports/session"}, {"cli", "store"}},
      {"reports", "mfsdp_reports", {"reports"}, {"render", "store"}},
      {"report_commands",
       "mfsdp_report_commands",
       {"reports/commands"},
       {"session", "reports", "html", "planner"}},
      {"allocator", "mfsdp_allocator", {"sim/allocator"}, {"plan", "formats"}},
      {"engines", "mfsdp_engines", {"sim/engines"}, {"plan", "allocator"}},
      {"sim", "mfsdp_sim", {"sim"}, {"planner", "hardware", "formats", "record", "engines"}},
      {"search", "mfsdp_search", {"sim/search"}, {"sim", "request"}},
      {"sim_tool", "mfsdp_sim_tool", {"sim/tool"}, {"search", "session", "reports"}},
      {"findings", "mfsdp_findings", {"verify/findings"}, {"plan"}},
      {"proof_order", "mfsdp_proof_order", {"verify/proof/order"}, {"findings"}},
      {"proof_memory", "mfsdp_proof_memory", {"verify/proof/memory"}, {"proof_order"}},
      {"proof_ledger", "mfsdp_proof_ledger", {"verify/proof/ledger"}, {"proof_order"}},
      {"proof_values", "mfsdp_proof_values", {"verify/proof/values"}, {"proof_ledger"}},
      {"proof_ranks", "mfsdp_proof_ranks", {"verify/proof/ranks"}, {"proof_ledger"}},
      {"proof", "mfsdp_proof", {"verify/proof"}, {"proof_memory", "proof_values", "proof_ranks"}},
      {"conformance", "mfsdp_conformance", {"verify/conformance"}, {"findings"}},
      {"bugs", "mfsdp_bugs", {"verify/bugs"}, {"proof", "request"}},
      {"traces", "mfsdp_traces", {"verify/traces"}, {"findings", "cli", "formats"}},
      // The checker reads a plan's JSON and shares nothing with what wrote it.
      {"checker", "mfsdp_checker", {"verify/checker"}, {"error"}},
      {"mutation", "mfsdp_mutation", {"verify/mutation"}, {"proof", "checker"}},
      {"verify_tool",
       "mfsdp_verify_tool",
       {"verify/tool"},
       {"request", "session", "proof", "conformance", "bugs", "traces", "checker", "mutation"}},
      {"cpu", "mfsdp_cpu", {"verify/cpu"}, {"runtime"}},
      {"launch", "mfsdp_launch", {"gpu_backend/launch"}, {"plan"}},
      {"train",
       "mfsdp_train",
       {"gpu_backend/train", "gpu_backend/checkpoint", "gpu_backend/weights"},
       {"runtime", "store", "launch", "formats"}},
      {"convert", "mfsdp_convert", {"gpu_backend/convert"}, {"train"}},
      {"convert_tool", "mfsdp_convert_tool", {"gpu_backend/convert/tool"}, {"convert", "session"}},
      {"oracle", "mfsdp_oracle", {"verify/oracle"}, {"train", "cpu"}},
      {"exec_tool",
       "mfsdp_exec_tool",
       {"gpu_backend/tool"},
       {"train", "cpu", "search", "session", "render"}},
      {"cuda", "mfsdp_cuda", {"gpu_backend/cuda"}, {"runtime"}},
      // A build compiles one of the folders.
      {"cuda_tool",
       "mfsdp_cuda_tool",
       {"gpu_backend/tool/cuda", "gpu_backend/tool/without_cuda"},
       {"exec_tool", "cuda"}},
  };
  return table;
}

// ---- paths -----------------------------------------------------------------------------------

bool is_under(std::string_view path, std::string_view folder) {
  return path == folder ||
         (path.starts_with(folder) && path.size() > folder.size() && path[folder.size()] == '/');
}

bool is_main(std::string_view path) { return std::ranges::find(mains, path) != mains.end(); }

bool is_main_target(std::string_view target) {
  return std::ranges::find(main_targets, target) != main_targets.end();
}

bool is_test(std::string_view path) { return is_under(path, "tests"); }

bool is_probe(std::string_view path) {
  return is_under(path, "gpu_backend/cuda") &&
         (path.ends_with("_probe.cpp") || path.ends_with("_probe.cu"));
}

const Room* room_of(std::string_view path) {
  const Room* best = nullptr;
  std::size_t longest = 0;
  for (const Room& room : rooms())
    for (const std::string_view folder : room.folders)
      if (is_under(path, folder) && folder.size() > longest) {
        best = &room;
        longest = folder.size();
      }
  return best;
}

const Room* room_of_target(std::string_view target) {
  const auto found = std::ranges::find(rooms(), target, &Room::target);
  return found == rooms().end() ? nullptr : &*found;
}

std::set<std::string_view> visible_from(const Room& room) {
  std::set<std::string_view> seen{room.name};
  std::vector<std::string_view> next = room.sees;
  while (!next.empty()) {
    const std::string_view name = next.back();
    next.pop_back();
    if (!seen.insert(name).second) continue;
    const Room* other = room_named(name);
    if (other != nullptr) next.insert(next.end(), other->sees.begin(), other->sees.end());
  }
  return seen;
}

// ---- other libraries and manners -------------------------------------------------------------

const std::vector<Library>& libraries() {
  static const std::vector<Library> table{
      {"CUDA",
       std::regex("(cuda|cublas|cudnn|nccl|nvtx|nvrtc|cupti|cooperative_groups|driver_types).*"),
       {"gpu_backend/cuda"},
       false},
      {"SQLite", std::regex("(SQLiteCpp/.*|sqlite3.*)"), {"reports"}, true},
      {"zlib", std::regex("zlib\\.h"), {"reports", "core/formats"}, true},
      {"PCRE2", std::regex("pcre2.*"), {"gpu_backend/train/text"}, true},
      {"Nettle", std::regex("nettle/.*"), {"gpu_backend/launch"}, true},
      {"utf8proc", std::regex("utf8proc.*"), {"gpu_backend/train/text"}, true},
      {"Boost.Graph",
       std::regex("boost/(graph|property_map)/.*"),
       {"core/recipe", "core/schedule", "core/memory", "sim"},
       true},
      {"Boost.Program_options", std::regex("boost/program_options.*"), {"core/cli"}, true},
      {"Boost", std::regex("boost/.*"), {}, true},
      // Forward declarations (json_fwd.hpp) are light enough for a header.
      {"nlohmann-json", std::regex("nlohmann/(?!json_fwd).*"), {}, true},
      {"toml++", std::regex("(toml\\+\\+|toml).*"), {"core/base", "sim", "reports"}, true},
  };
  return table;
}

const std::vector<Manner>& manners() {
  static const std::vector<Manner> table = [] {
    std::vector<Manner> list;
    list.push_back({"prints: <iostream> belongs to programs",
                    std::regex(R"(#\s*include\s*<(iostream|print)>)")});
    list.push_back({"prints", std::regex(R"(\bstd::(cout|cerr|clog)\b)")});
    list.push_back({"prints", std::regex(R"(\bfmt::(v9::)?(print|println)\s*\()")});
    list.push_back({"prints", std::regex(R"((^|[^\w.>])(v?f?printf|f?puts|putchar|perror)\s*\()")});
    // A forked child ends so.
    list.push_back({"exits", std::regex(R"((^|[^\w.>])(_?exit|_Exit|quick_exit|abort)\s*\()"),
                    "verify/mutation/run_apart.cpp"});
    return list;
  }();
  return table;
}

}  // namespace mfsdp::arrows
