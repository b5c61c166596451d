#include "sim/tool/find_why.hpp"

#include <gtest/gtest.h>

#include "core/plan/mesh.hpp"

namespace mfsdp {
namespace {

/// 1,000 tokens a step on 8 GPUs; times in microseconds, contention inside compute.
RunFigures run(std::int64_t compute, std::int64_t contention, std::int64_t exposed,
               std::int64_t idle) {
  RunFigures figures;
  figures.config.seq_len = 1000;
  figures.cluster = {.gpu = "h100", .gpus = 8, .nodes = 1, .gpus_per_node = 8, .network = ""};
  figures.time.compute = Nanos(1000 * compute);
  figures.time.contention = Nanos(1000 * contention);
  figures.time.exposed_communication = Nanos(1000 * exposed);
  figures.time.idle = Nanos(1000 * idle);
  return figures;
}

TEST(FindWhy, NamesRecomputationWhereAllElseIsTheSame) {
  const RunFigures best = run(1000, 10, 0, 0);
  RunFigures second = run(1047, 10, 0, 0);  // 1047 / 1000: 4.7 %
  second.config.recompute = {.kind = Recompute::full};
  EXPECT_EQ(why_better({best}, {second}, Find::fastest),
            "4.7 % faster than the second best, nearly all from less recomputation");
  // Another micro-batch has other kernels: it may be that as well.
  second.config.micro_batch = 2;
  second.time.compute = Nanos(2'094'000);
  second.time.contention = Nanos(20'000);
  EXPECT_EQ(why_better({best}, {second}, Find::fastest),
            "4.7 % faster than the second best, nearly all from less compute");
}

TEST(FindWhy, NamesWhatHelpsAndWhatHurts) {
  // Kernels 1000 against 1000, contention 100 against 130, exposed 20 against 90: 30 and 70 of 100.
  EXPECT_EQ(why_better({run(1100, 100, 20, 0)}, {run(1130, 130, 90, 0)}, Find::fastest),
            "8.9 % faster than the second best, mostly from less exposed communication");
  // 55 and 45 of 100.
  EXPECT_EQ(why_better({run(1100, 100, 20, 0)}, {run(1155, 155, 65, 0)}, Find::fastest),
            "8.9 % faster than the second best, from less slowdown by collectives and less "
            "exposed communication");
  // 100 less compute, 30 more idle time.
  EXPECT_EQ(why_better({run(900, 0, 0, 30)}, {run(1000, 0, 0, 0)}, Find::fastest),
            "7.5 % faster than the second best, nearly all from less compute, in spite of more "
            "idle time");
}

TEST(FindWhy, NamesPricesAndGpus) {
  const RunFigures best = run(1000, 0, 0, 0);
  RunFigures second = run(1000, 0, 0, 0);
  EXPECT_EQ(why_better({best, 2.0}, {second, 2.5}, Find::cheapest),  // 1 - 2 / 2.5
            "20 % cheaper than the second best, nearly all from a lower price");
  second.cluster.gpus = 4;
  EXPECT_EQ(why_better({best}, {second}, Find::fastest),
            "100 % faster than the second best, nearly all from more GPUs");
  EXPECT_EQ(why_better({best, 0.0}, {best, 0.0}, Find::cheapest),
            "as cheap as the second best, to 0.1 %");
  EXPECT_EQ(why_better({best}, {best}, Find::fastest), "as fast as the second best, to 0.1 %");
}

}  // namespace
}  // namespace mfsdp
