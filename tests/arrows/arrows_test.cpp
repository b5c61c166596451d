// Guards the arrows of the design (table in core/README.md): first that each rule can fail, then
// that the tree keeps them all.
#include "tests/arrows/arrows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/arrows/table.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp::arrows {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string listing(const std::vector<Violation>& violations) {
  std::ostringstream text;
  for (const auto& v : violations) text << v.path << ":" << v.line << ": " << v.what << "\n";
  return text.str();
}

// ---- the tree --------------------------------------------------------------------------------

TEST(Tree, KeepsEveryRule) {
  const std::vector<File> files = read_tree(MFSDP_SOURCE_DIR);
  ASSERT_GT(files.size(), 20u) << "the tree was not found at " << MFSDP_SOURCE_DIR;
  EXPECT_EQ(listing(check(files)), "");
}

TEST(Tree, EveryRoomSeesRoomsOfTheTable) {
  std::set<std::string_view> names;
  for (const Room& room : rooms()) {
    // Only modules above it in the table, so there is no cycle.
    for (const auto seen : room.sees) EXPECT_TRUE(names.contains(seen)) << room.name << ' ' << seen;
    EXPECT_TRUE(names.insert(room.name).second) << room.name;
  }
}

TEST(Tree, TheReadmeShowsTheSameTable) {
  std::ifstream in(std::string(MFSDP_SOURCE_DIR) + "/core/README.md");
  const std::string readme{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  for (const Room& room : rooms()) {
    std::string row = "| " + std::string(room.name) + " | `" + std::string(room.target) + "` | ";
    for (std::size_t i = 0; i < room.folders.size(); ++i)
      row += (i > 0 ? ", `" : "`") + std::string(room.folders[i]) + "`";
    row += " | ";
    for (std::size_t i = 0; i < room.sees.size(); ++i)
      row += (i > 0 ? ", " : "") + std::string(room.sees[i]);
    row += room.sees.empty() ? "– |" : " |";
    EXPECT_THAT(readme, HasSubstr(row));
  }
}

// ---- rules that must be able to fail ---------------------------------------------------------

TEST(Includes, FollowTheTable) {
  EXPECT_THAT(check_includes({"sim/simulator/a.cpp", "#include \"core/memory/allocation.hpp\"\n"}),
              IsEmpty());
  // Visibility is transitive: sim -> planner -> plan.
  EXPECT_THAT(check_includes({"sim/simulator/a.cpp", "#include \"core/plan/plan.hpp\"\n"}),
              IsEmpty());
  EXPECT_THAT(check_includes({"sim/simulator/a.cpp", "#include \"sim/cost/b.hpp\"\n"}), IsEmpty());
}

TEST(Includes, ArrowsAgainstTheTableAreFound) {
  const std::vector<File> wrong{
      {"core/plan/a.cpp", "#include \"core/memory/allocation.hpp\"\n"},
      {"core/memory/a.cpp", "#include \"sim/simulator/engine.hpp\"\n"},
      {"core/cli/a.hpp", "#include \"core/memory/allocation.hpp\"\n"},
      {"core/cli/a.cpp", "#include \"reports/record/result.hpp\"\n"},
      {"sim/simulator/a.cpp", "#include \"reports/store/store.hpp\"\n"},
      {"sim/simulator/a.cpp", "#include \"core/cli/flags.hpp\"\n"},
      {"reports/store/a.cpp", "#include \"core/memory/allocation.hpp\"\n"},
      {"reports/store/a.cpp", "#include \"reports/html/page.hpp\"\n"},
      {"verify/checker/a.cpp", "#include \"core/plan/plan.hpp\"\n"},
      {"verify/cpu/a.cpp", "#include \"core/memory/allocation.hpp\"\n"},
      {"gpu_backend/train/a.cpp", "#include \"gpu_backend/cuda/stream.hpp\"\n"},
      {"gpu_backend/cuda/a.cu", "#include \"gpu_backend/train/loop.hpp\"\n"},
  };
  for (const File& file : wrong)
    EXPECT_THAT(check_includes(file), SizeIs(1)) << file.path << ' ' << file.text;
}

TEST(Includes, NameTheLine) {
  const auto found =
      check_includes({"core/plan/a.cpp", "// one\n#include <vector>\n#include \"sim/x.hpp\"\n"});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].line, 3u);
  EXPECT_EQ(found[0].what, "plan may not see sim: \"sim/x.hpp\"");
}

TEST(Includes, StartAtTheRoot) {
  EXPECT_THAT(check_includes({"core/plan/a.cpp", "#include \"plan.hpp\"\n"}), SizeIs(1));
  EXPECT_THAT(check_includes({"core/plan/a.cpp", "#include \"../base/error.hpp\"\n"}), SizeIs(1));
}

TEST(Includes, EverySourceLiesInARoom) {
  EXPECT_THAT(check_includes({"core/helpers/a.cpp", ""}), SizeIs(1));
  EXPECT_THAT(check_includes({"verify/a.cpp", ""}), SizeIs(1));
  EXPECT_THAT(check_includes({"extra/a.cpp", ""}), SizeIs(1));
}

TEST(Includes, ATreeIsReadInEveryFolder) {
  const test::ScratchFolder root;
  for (const char* path : {"sim/tool/a.cpp", "extra/deep/b.hpp", "docs/c.md", "build/d.cpp",
                           "build-other/e.cpp", ".cache/f.cpp"}) {
    std::filesystem::create_directories((root / path).parent_path());
    test::write_file(root / path, "");
  }
  const std::vector<File> files = read_tree(root.path());
  EXPECT_EQ(listing(check(files)), "extra/deep/b.hpp:1: lies in no room of the table\n");
  EXPECT_THAT(files, SizeIs(2));
}

TEST(Includes, AToolHasArrowsAsAnyRoom) {
  const auto includes = [](const char* path, const std::string& seen) {
    return check_includes({path, "#include \"" + seen + "\"\n"});
  };
  EXPECT_THAT(includes("sim/tool/a.cpp", "reports/budget/budget.hpp"), IsEmpty());
  EXPECT_THAT(includes("verify/tool/a.cpp", "core/request/plan_request.hpp"), IsEmpty());
  EXPECT_THAT(includes("verify/tool/a.cpp", "sim/tool/sweep.hpp"), SizeIs(1));
  EXPECT_THAT(includes("verify/bugs/a.cpp", "sim/predict/predict.hpp"), SizeIs(1));
  EXPECT_THAT(includes("gpu_backend/tool/a.cpp", "verify/cpu/machine/machine.hpp"), IsEmpty());
  EXPECT_THAT(includes("gpu_backend/tool/cuda/a.cpp", "gpu_backend/cuda/b.hpp"), IsEmpty());
  EXPECT_THAT(includes("sim/tool/a.cpp", "verify/proof/prove.hpp"), SizeIs(1));
  EXPECT_THAT(includes("sim/calibrate/a.cpp", "sim/tool/sweep.hpp"), SizeIs(1));
  EXPECT_THAT(includes("verify/tool/a.cpp", "gpu_backend/train/trainer.hpp"), SizeIs(1));
  EXPECT_THAT(includes("gpu_backend/tool/a.cpp", "gpu_backend/cuda/b.hpp"), SizeIs(1));
  EXPECT_THAT(includes("gpu_backend/tool/a.cpp", "gpu_backend/tool/cuda/b.hpp"), SizeIs(1));
}

TEST(Includes, TestsSeeEveryRoomAndNoneSeesThem) {
  const std::string text = "#include \"sim/cost/a.hpp\"\n#include \"tests/support/samples.hpp\"\n";
  EXPECT_THAT(check_includes({"tests/verify/a_test.cpp", text}), IsEmpty());
  EXPECT_THAT(check_includes({"tests/a_test.cpp", "#include \"nowhere/a.hpp\"\n"}), SizeIs(1));
  for (const char* other : {"sim/cost/b.cpp", "sim/main.cpp", "sim/tool/b.cpp"})
    EXPECT_THAT(check_includes({other, text}), SizeIs(1)) << other;
}

TEST(Includes, OnlyMainsCompose) {
  const std::string text =
      "#include \"core/cli/flags.hpp\"\n#include \"reports/store/store.hpp\"\n";
  EXPECT_THAT(check_includes({"sim/main.cpp", text}), IsEmpty());
  EXPECT_THAT(check_includes({"sim/app.cpp", text}), SizeIs(2));
}

TEST(Libraries, StayInTheirRooms) {
  const std::vector<File> wrong{
      {"gpu_backend/train/a.cpp", "#include <cuda_runtime.h>\n"},
      {"sim/simulator/a.cpp", "#include <nccl.h>\n"},
      {"core/runtime/a.hpp", "#include <cudnn.h>\n"},
      {"sim/simulator/a.cpp", "#include <SQLiteCpp/SQLiteCpp.h>\n"},
      {"sim/main.cpp", "#include <sqlite3.h>\n"},
      {"core/plan/a.cpp", "#include <boost/graph/adjacency_list.hpp>\n"},
      {"sim/main.cpp", "#include <boost/program_options.hpp>\n"},
      {"core/model/a.cpp", "#include <toml++/toml.h>\n"},
      {"sim/simulator/a.cpp", "#include <zlib.h>\n"},
      // The right module, but a header:
      {"core/schedule/a.hpp", "#include <boost/graph/adjacency_list.hpp>\n"},
      {"core/plan/a.hpp", "#include <nlohmann/json.hpp>\n"},
      {"sim/hardware/a.hpp", "#include <toml++/toml.h>\n"},
      {"reports/store/a.hpp", "#include <SQLiteCpp/Database.h>\n"},
      {"core/cli/a.hpp", "#include <boost/program_options.hpp>\n"},
      {"sim/simulator/a.hpp", "#include <boost/dynamic_bitset.hpp>\n"},
  };
  for (const File& file : wrong)
    EXPECT_THAT(check_libraries(file), SizeIs(1)) << file.path << ' ' << file.text;
}

TEST(Libraries, AreFreeWhereTheyBelong) {
  const std::vector<File> right{
      {"gpu_backend/cuda/a.hpp", "#include <cuda_runtime.h>\n#include <nccl.h>\n"},
      {"reports/store/a.cpp", "#include <SQLiteCpp/SQLiteCpp.h>\n#include <sqlite3.h>\n"},
      {"reports/trace/a.cpp", "#include <zlib.h>\n"},
      {"core/schedule/a.cpp", "#include <boost/graph/topological_sort.hpp>\n"},
      {"core/cli/a.cpp", "#include <boost/program_options.hpp>\n"},
      {"core/plan/a.cpp", "#include <nlohmann/json.hpp>\n#include <fmt/format.h>\n"},
      {"core/base/a.cpp", "#include <toml++/toml.h>\n"},
      {"sim/hardware/a.cpp", "#include <toml++/toml.h>\n"},
      {"core/base/a.hpp", "#include <tl/expected.hpp>\n#include <vector>\n"},
  };
  for (const File& file : right) EXPECT_EQ(listing(check_libraries(file)), "");
}

TEST(Libraries, MayStandInAPrivateHeader) {
  const std::vector<File> files{
      {"core/plan/reader.hpp", "#include <nlohmann/json.hpp>\n"},
      {"core/plan/plan_json.cpp", "#include \"core/plan/reader.hpp\"\n"},
  };
  EXPECT_EQ(listing(check(files)), "");
  std::vector<File> by_another = files;
  by_another.push_back({"core/plan/lexer.hpp", "#include \"core/plan/reader.hpp\"\n"});
  by_another.push_back({"core/plan/lexer.cpp", "#include \"core/plan/lexer.hpp\"\n"});
  EXPECT_EQ(listing(check(by_another)), "");
  for (const char* outsider : {"core/plan/plan.hpp", "core/memory/a.cpp"}) {
    std::vector<File> more = files;
    more.push_back({outsider, "#include \"core/plan/reader.hpp\"\n"});
    EXPECT_THAT(check(more), SizeIs(1)) << outsider;
  }
  // Privacy does not open a module to a library.
  EXPECT_THAT(check({{"core/plan/a.hpp", "#include <toml++/toml.h>\n"}}), SizeIs(1));
}

TEST(Manners, LibrariesNeitherPrintNorExit) {
  const std::vector<std::string> wrong{
      "#include <iostream>\n", "std::cerr << 1;\n",        "printf(\"%d\", 1);\n",
      "std::printf(\"x\");\n", "fprintf(stderr, \"\");\n", "fmt::print(\"x\");\n",
      "if (x) exit(1);\n",     "std::exit(2);\n",          "std::abort();\n",
      "  puts(\"x\");\n",
  };
  for (const std::string& text : wrong) {
    EXPECT_THAT(check_manners({"core/plan/a.cpp", text}), SizeIs(1)) << text;
    EXPECT_THAT(check_manners({"sim/tool/a.cpp", text}), SizeIs(1)) << text;
    EXPECT_THAT(check_manners({"sim/main.cpp", text}), IsEmpty()) << text;
    EXPECT_THAT(check_manners({"gpu_backend/cuda/memory_probe.cpp", text}), IsEmpty()) << text;
  }
}

TEST(Manners, WordsInCommentsStringsAndNamesAreFree) {
  const std::vector<std::string> right{
      "// printf(1) and exit(1)\n",   "/* std::cout\n exit(1) */ int a;\n",
      "auto s = \"exit(1)\";\n",      "snprintf(buffer, size, \"x\");\n",
      "on_exit(2); exit_code(3);\n",  "stack.exit(1);\n",
      "auto r = R\"(exit(1))\";\n",   "const int n = 1'000; // exit(1)\n",
      "char c = '\"'; // printf()\n",
  };
  for (const std::string& text : right)
    EXPECT_EQ(listing(check_manners({"core/plan/a.cpp", text})), "") << text;
}

TEST(Manners, ProgramsStartInTheMainsAlone) {
  EXPECT_THAT(check_manners({"sim/simulator/tool.cpp", "int main() { return 0; }\n"}), SizeIs(1));
  EXPECT_THAT(check_manners({"sim/main.cpp", "int main() { return 0; }\n"}), IsEmpty());
}

TEST(Links, FollowTheTable) {
  EXPECT_THAT(check_links({"core/CMakeLists.txt",
                           "mfsdp_room(mfsdp_planner FOLDERS core/recipe core/memory\n"
                           "  SEES mfsdp_plan fmt::fmt)  # mfsdp_sim in a comment\n"}),
              IsEmpty());
  EXPECT_THAT(check_links({"sim/CMakeLists.txt",
                           "target_link_libraries(mfsdp-sim PRIVATE mfsdp_sim mfsdp_store)\n"}),
              IsEmpty());
}

TEST(Links, AgainstTheTableAreFound) {
  const std::vector<std::string> wrong{
      "mfsdp_room(mfsdp_plan FOLDERS core/base SEES mfsdp_planner)\n",
      "mfsdp_room(mfsdp_sim FOLDERS sim/simulator SEES mfsdp_planner mfsdp_store)\n",
      "mfsdp_room(mfsdp_sim FOLDERS sim/simulator reports/store SEES mfsdp_planner)\n",
      "mfsdp_room(mfsdp_extra FOLDERS core/base)\n",
      "target_link_libraries(mfsdp_sim PRIVATE mfsdp_cli)\n",
      "target_link_libraries(mfsdp-tool PRIVATE mfsdp_sim)\n",
  };
  for (const std::string& text : wrong)
    EXPECT_THAT(check_links({"core/CMakeLists.txt", text}), SizeIs(1)) << text;
}

TEST(Types, HaveOneDefinition) {
  const auto header = [](std::string path, const std::string& body) {
    return File{std::move(path), "namespace mfsdp {\n" + body + "\n}\n"};
  };
  const File first = header("core/a.hpp", "struct Row {\n};\nenum class Kind { a };");
  for (const char* body :
       {"struct Row {", "class Row {", "class Row final : public Base {", "struct Row : Base {",
        "enum class Row { a };", "struct Row {};", "enum class Kind : int {"})
    EXPECT_THAT(check_types({first, header("sim/b.hpp", body)}), SizeIs(1)) << body;
  for (const char* body :
       {"struct Row;", "  struct Row {", "struct Rows {", "// struct Row {",
        "template <>\nstruct Row<int> {", "}\nnamespace mfsdp::plan {\nstruct Row {"})
    EXPECT_EQ(listing(check_types({first, header("sim/b.hpp", body)})), "") << body;
  EXPECT_THAT(check_types({first, header("sim/b.cpp", "struct Row {")}), IsEmpty());
  EXPECT_THAT(check_types({first, header("tests/b.hpp", "struct Row {")}), IsEmpty());
  const auto found = check_types({first, header("sim/b.hpp", "\nstruct Row {")});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].line, 3u);
  EXPECT_EQ(found[0].what, "mfsdp::Row is also defined in core/a.hpp");
}

TEST(OwnHeaders, ComeFirst) {
  const File header{"core/plan/a.hpp", ""};
  const File right{"core/plan/a.cpp", "// a\n#include \"core/plan/a.hpp\"\n#include <vector>\n"};
  const File wrong{"core/plan/a.cpp", "#include <vector>\n#include \"core/plan/a.hpp\"\n"};
  EXPECT_THAT(check_own_headers({header, right}), IsEmpty());
  EXPECT_THAT(check_own_headers({wrong}), IsEmpty());  // no header of its name
  const auto found = check_own_headers({header, wrong});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].what, "expected \"core/plan/a.hpp\" before other includes");
}

TEST(Check, AppliesEachRuleToItsFiles) {
  const std::vector<File> files{
      {"core/CMakeLists.txt", "mfsdp_room(mfsdp_plan FOLDERS core/base SEES mfsdp_sim)\n"},
      {"core/plan/a.cpp", "#include \"sim/simulator/e.hpp\"\n#include <nccl.h>\nexit(1);\n"},
  };
  EXPECT_THAT(check(files), SizeIs(4));
}

}  // namespace
}  // namespace mfsdp::arrows
