#include "gpu_backend/tool/step_tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/cli/flags.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

/// A step of a gemm on compute and an all-gather beside it.
template <class Run>
Run step_of(std::int64_t gemm_us, std::int64_t gather_us) {
  const auto op = [](const char* stream, const char* kind, std::int64_t microseconds) {
    OpTime time;
    time.stream = stream;
    time.kind = kind;
    time.end = Nanos(1'000 * microseconds);
    return time;
  };
  Run run;
  run.time.step = Nanos(1'000 * gemm_us);
  run.time.compute = run.time.step;
  run.timeline = {op("compute", "gemm", gemm_us), op("all_gather", "all_gather", gather_us)};
  return run;
}

constexpr auto predicted = step_of<PredictedRun>;
constexpr auto measured = step_of<MeasuredRun>;

TEST(StepTables, CompareStepStreamsAndKinds) {
  EXPECT_EQ(render_step_tables(predicted(100, 40), measured(110, 30), {}),
            "step of rank 0         launches  predicted   measured  difference\n"
            "step                             100.00 us  110.00 us     +10.0 %\n"
            "compute                          100.00 us  110.00 us     +10.0 %\n"
            "exposed communication                 0 ns       0 ns         n/a\n"
            "idle                                  0 ns       0 ns         n/a\n"
            "stream all_gather             1   40.00 us   30.00 us     -25.0 %\n"
            "stream compute                1  100.00 us  110.00 us     +10.0 %\n"
            "\n"
            "by kind of op            launches  predicted   measured  difference\n"
            "gemm (compute)                  1  100.00 us  110.00 us     +10.0 %\n"
            "all_gather (all_gather)         1   40.00 us   30.00 us     -25.0 %\n");
}

TEST(StepTables, KeepToTheTerminal) {
  for (const std::size_t width : {64U, 30U}) {
    const std::string shown =
        render_step_tables(predicted(100, 40), measured(110, 30), TextStyle{.width = width});
    for (const std::string& line : split(shown, '\n'))
      EXPECT_LE(display_width(line), width) << shown;
    EXPECT_THAT(shown, testing::HasSubstr("110.00 us"));
  }
}

TEST(StepTables, AreEmptyWhereNothingWasTimed) {
  EXPECT_EQ(render_step_tables(predicted(100, 40), MeasuredRun(), {}), "");
}

}  // namespace
}  // namespace mfsdp
